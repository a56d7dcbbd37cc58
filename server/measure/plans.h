// SPDX-License-Identifier: Apache-2.0
//
// What a run consists of. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/domain/measurement.h"
#include "server/domain/measurement_run.h"

namespace fabricwise {

// One worker's share: what fails in it takes nothing else down.
struct PlanPart {
  std::string name;                  // "nccl", "peer kernels", for people
  std::vector<MeasurementKey> keys;  // in order of wish
  absl::Duration budget;             // wall time
};

struct RunPlan {
  std::vector<PlanPart> parts;  // in order of wish; none is empty
  int64_t key_count = 0;
};

// Wall time of all parts together where the order names none. Starting workers
// comes on top, about 2 s each on two GPUs; with that a quick run stays within
// a minute and a full one within five.
inline constexpr absl::Duration kQuickBudget = absl::Seconds(45);
inline constexpr absl::Duration kFullBudget = absl::Seconds(255);

// The run of `order` (quick or full) on a node of `gpu_count` GPUs. `wanted`
// are further keys, of models that were asked about; they come first in their
// part and are not repeated. Parts share the budget by what their keys cost.
// FAILED_PRECONDITION: no key begins with any of the order's prefixes.
absl::StatusOr<RunPlan> MakePlan(const RunOrder& order, int gpu_count,
                                 const std::vector<MeasurementKey>& wanted);

// `key` less what a worker may refine: bytes of collectives and memory, m of
// products, tokens of experts and exchanges, context of attention; these are 1.
MeasurementKey CurveOf(MeasurementKey key);

}  // namespace fabricwise
