// SPDX-License-Identifier: Apache-2.0
//
// One of the two grouped products of routed experts, on tensor cores, in bf16
// with fp32 sums. Weight rows stand where a matrix unit takes sixteen and token
// rows where it takes eight, so that few tokens waste little; both stream
// through shared memory several stages ahead. Floor: the weights of the experts
// hit, the input and the output once; 2 x rows x k x columns operations.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/expert_tile.h"

namespace fabricwise {

struct GroupedProduct {
  // [rows, k]; rows of one expert side by side.
  const __nv_bfloat16* in = nullptr;
  // [experts, columns, k]; gated: [experts, 2 x columns, k], the gate's rows
  // before the others.
  const __nv_bfloat16* weights = nullptr;
  // [rows, columns]; gated: SiLU of the gate's product times the other.
  __nv_bfloat16* out = nullptr;
  int64_t columns = 0, k = 0;  // multiples of 8
  bool gated = false;
  const ExpertTile* tiles = nullptr;  // in device memory
  int64_t tile_count = 0;
};

// The kernels that there are: which is fastest depends on the rows an expert
// has and on how many tiles there are.
inline constexpr int kGroupedVariants = 6;

struct TileShape {
  int rows = 0;
  int columns = 0;  // of the output
};
TileShape GroupedTile(int variant, bool gated);

// The tiles must be of the variant's shape.
cudaError_t LaunchGroupedProduct(const GroupedProduct& product, int variant,
                                 cudaStream_t stream);

}  // namespace fabricwise
