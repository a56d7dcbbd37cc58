// SPDX-License-Identifier: Apache-2.0
//
// GPU memory of a plan.
#pragma once

#include <cstdint>
#include <optional>

#include "server/domain/plan.h"
#include "server/domain/recipe.h"
#include "server/domain/workload.h"

namespace fabricwise {

// Of the fullest GPU.
struct MemoryUse {
  int64_t weights_bytes = 0;
  int64_t kv_cache_bytes = 0;  // of the sequences in flight, at their longest
  int64_t activation_bytes = 0;
  int64_t communicator_bytes = 0;
  int64_t available_bytes = 0;  // 0: the node's memory is not known
  bool fits = true;
  std::optional<int64_t> max_concurrency;  // on the node; nullopt: not known

  int64_t total_bytes() const {
    return weights_bytes + kv_cache_bytes + activation_bytes +
           communicator_bytes;
  }
};

// `gpu_memory_bytes`: of the smallest GPU; 0: not known, then everything fits.
// `plan`: the recipe's, of any number of replicas.
MemoryUse ComputeMemory(const Recipe& recipe, const Plan& plan,
                        const Workload& workload, int64_t gpu_memory_bytes);

}  // namespace fabricwise
