// SPDX-License-Identifier: Apache-2.0
//
// What a router puts on one rank of a MoE layer, and how its grouped products
// are cut into tiles. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device/expert_tile.h"

namespace fabricwise {

struct RoutingDraw {
  int64_t num_experts = 1;
  int64_t experts_per_token = 1;  // at most num_experts, all distinct
  int64_t ranks = 1;              // divides num_experts
  int64_t tokens = 1;             // on all ranks together
  // Expert popularity goes as rank^-skew, the ranks dealt at random; 0: all
  // alike.
  double skew = 0;
};

// Token copies of each expert that is hit on the fullest rank (most copies;
// the first of equals), which is the one that a step waits for: never empty,
// each positive, in the order of the experts. Equal arguments give equal rows
// on any machine.
std::vector<int64_t> DrawFullestRank(const RoutingDraw& draw, uint64_t seed);

// Tiles that cover `rows` of every expert times `columns` columns, at most
// tile_rows x tile_columns each: expert by expert, and row by row within a
// column, so that tiles that share weights run side by side.
std::vector<ExpertTile> CutIntoTiles(const std::vector<int64_t>& rows,
                                     int64_t columns, int tile_rows,
                                     int tile_columns);

}  // namespace fabricwise
