// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs of a node a plan runs on.
#pragma once

#include <vector>

namespace fabricwise {

// For each replica the indices of its GPUs in rank order: stage by stage,
// within a stage attention-DP rank by rank, the GPUs of one tensor-parallel
// group side by side. No GPU is named twice.
struct Placement {
  std::vector<std::vector<int>> replicas;

  friend bool operator==(const Placement&, const Placement&) = default;
};

}  // namespace fabricwise
