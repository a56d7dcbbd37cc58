// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says of this process.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace fabricwise {

struct ProcessFacts {
  absl::Duration cpu_time;  // user and system
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t threads = 0;
  int64_t open_files = 0;
  int64_t max_files = 0;
};

// From /proc/self. UNAVAILABLE: it cannot be read.
absl::StatusOr<ProcessFacts> ReadProcessFacts();

}  // namespace fabricwise
