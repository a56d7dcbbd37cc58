// SPDX-License-Identifier: Apache-2.0
//
// Attention of prompts of one layer in bf16: many query tokens at the end of
// each sequence's context, each of which sees what stands before it and itself.
// Tiles of keys and values stream through shared memory past a block's query
// rows, the softmax running along; on tensor cores with fp32 sums. Floor: 2 x
// heads x (key + value width) operations for each pair of a query and a token
// that it sees.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>

namespace fabricwise {

struct PromptShape {
  int batch = 0;
  int query_tokens = 0;           // at most context_tokens
  int context_tokens = 0;         // with the queries' own
  int q_heads = 0, kv_heads = 0;  // q_heads a multiple of kv_heads
  int qk_dim = 0, v_dim = 0;      // 64, 128 or 256 both, or 192 and 128
};

struct PromptAttention {
  PromptShape shape;
  float scale = 1;                   // of the products of queries and keys
  const __nv_bfloat16* q = nullptr;  // [batch, query, q_heads, qk_dim]
  const __nv_bfloat16* k = nullptr;  // [batch, context, kv_heads, qk_dim]
  const __nv_bfloat16* v = nullptr;  // [batch, context, kv_heads, v_dim]
  __nv_bfloat16* out = nullptr;      // [batch, query, q_heads, v_dim]
};

// Kernels of each pair of widths; which is fastest, and which fits into shared
// memory, depends on the GPU.
inline constexpr int kPromptVariants = 2;

// Shared memory of a block; 0: there is no kernel for such widths.
size_t PromptSharedBytes(const PromptShape& shape, int variant);

cudaError_t LaunchPromptAttention(const PromptAttention& attention, int variant,
                                  cudaStream_t stream);

}  // namespace fabricwise
