// SPDX-License-Identifier: Apache-2.0
//
// One of the two grouped products of routed experts, on tensor cores with fp32
// sums, in bf16 or in e4m3 with a scale a block. Weight rows stand where a
// matrix unit takes sixteen and token rows where it takes eight, so that few
// tokens waste little; both stream through shared memory several stages ahead.
// Floor: the weights of the experts hit, the input and the output once; 2 x
// rows x k x columns operations.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/expert_tile.h"

namespace fabricwise {

// A block of weights that has one scale is so wide and high; of the input, so
// wide.
inline constexpr int64_t kFp8BlockSide = 128;
inline constexpr float kFp8Largest = 448;  // of e4m3

struct GroupedProduct {
  // Input and weights are e4m3, to be multiplied by their scales; else bf16.
  bool fp8_block = false;
  // [rows, k]; rows of one expert side by side.
  const void* in = nullptr;
  const float* in_scales = nullptr;  // [k / 128, rows]
  // [experts, columns, k]; gated: [experts, 2 x columns, k], the gate's rows
  // before the others.
  const void* weights = nullptr;
  // The same with both sizes divided by 128.
  const float* weight_scales = nullptr;
  // [rows, columns]; gated: SiLU of the gate's product times the other.
  __nv_bfloat16* out = nullptr;
  // Columns and k are multiples of 8, in blocks of 128.
  int64_t rows = 0, columns = 0, k = 0;
  bool gated = false;
  const ExpertTile* tiles = nullptr;  // in device memory
  int64_t tile_count = 0;
};

// The kernels that there are: which is fastest depends on the rows an expert
// has and on how many tiles there are.
int GroupedVariants(bool fp8_block);

struct TileShape {
  int rows = 0;
  int columns = 0;  // of the output
};
// By format and whether gated.
TileShape GroupedTile(const GroupedProduct& product, int variant);

// The tiles must be of the variant's shape. In blocks of e4m3 on GPUs that
// multiply it (compute capability 8.9 and later).
cudaError_t LaunchGroupedProduct(const GroupedProduct& product, int variant,
                                 cudaStream_t stream);

// in[rows, columns] in blocks of 128 columns: out in e4m3, so that the largest
// of a block is the format's largest, and scales[columns / 128, rows].
cudaError_t LaunchQuantise(const __nv_bfloat16* in, void* out, float* scales,
                           int64_t rows, int64_t columns, cudaStream_t stream);

}  // namespace fabricwise
