// SPDX-License-Identifier: Apache-2.0
//
// GPU memory of a plan.
#pragma once

#include <cstdint>
#include <optional>

namespace fabricwise {

// Of the fullest GPU.
struct MemoryUse {
  int64_t weights_bytes = 0;
  int64_t kv_cache_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t communicator_bytes = 0;
  int64_t available_bytes = 0;  // 0: the node's memory is not known
  bool fits = true;
  std::optional<int64_t> max_concurrency;  // on the node; nullopt: not known
};

}  // namespace fabricwise
