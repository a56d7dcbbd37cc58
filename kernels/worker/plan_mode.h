// SPDX-License-Identifier: Apache-2.0
//
// The worker under a daemon: one plan in on standard input, frames out on
// descriptor 3.
#pragma once

#include <atomic>

namespace fabricwise {

// What the process exits with, and the daemon reads.
inline constexpr int kExitDone = 0;
inline constexpr int kExitBadPlan = 2;
inline constexpr int kExitNoGpu = 3;
inline constexpr int kExitHung = 4;    // a collective hung and was aborted
inline constexpr int kExitFailed = 5;  // CUDA or NCCL failed

// Returns one of the above.
int RunPlanMode(const std::atomic<bool>& stop);

}  // namespace fabricwise
