// SPDX-License-Identifier: Apache-2.0
//
// Decode attention of one layer over a KV cache in bf16: one query token a
// sequence, its context cut into splits that run side by side and are then
// combined; on tensor cores with fp32 sums. Query heads that share a KV head
// share what is read. Floor: the KV cache once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fabricwise {

struct AttentionShape {
  int batch = 0;
  int context_tokens = 0;
  int q_heads = 0, kv_heads = 0;  // q_heads a multiple of kv_heads
  int qk_dim = 0;                 // 64, 128 or 256; latent: 576
  // One latent row a token is key and, less its last 64 values, value.
  bool latent = false;
};

// Values of a row of the output.
int ValueDim(const AttentionShape& shape);

// For each shape a kernel that keeps much under way and one that fits into 99
// KiB of shared memory, the least of the GPUs that this is for.
inline constexpr int kDecodeVariants = 2;
// Shared memory of a block; 0: there is no kernel for the shape.
size_t DecodeSharedBytes(const AttentionShape& shape, int variant);

struct DecodeAttention {
  AttentionShape shape;
  float scale = 1;                   // of the products of queries and keys
  const __nv_bfloat16* q = nullptr;  // [batch, q_heads, qk_dim]
  const __nv_bfloat16* k = nullptr;  // [batch, context, kv_heads, qk_dim]
  const __nv_bfloat16* v = nullptr;  // like k; latent: not read
  __nv_bfloat16* out = nullptr;      // [batch, q_heads, value dim]
  int splits = 1;                    // of the context
  float* partial = nullptr;          // PartialBytes; unused for one split
};

size_t PartialBytes(const AttentionShape& shape, int splits);

cudaError_t LaunchDecodeAttention(const DecodeAttention& attention, int variant,
                                  cudaStream_t stream);

}  // namespace fabricwise
