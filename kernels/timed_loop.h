// SPDX-License-Identifier: Apache-2.0
//
// Times a case: warm up, gate, stamp, work, stamp, release.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/case.h"
#include "kernels/timing/stopping.h"
#include "server/domain/measurement.h"

namespace fabricwise {

// nccl-tests' -G in the figures that we compare with.
inline constexpr int kNcclTestsReplays = 5;

struct LoopOptions {
  StoppingRule stopping;
  Launch launch = Launch::kGraph;
  // Work that one sample holds at least; longer than the jitter of a stamp.
  double min_sample_seconds = 500e-6;
  // Not 0: time as nccl-tests does instead, for comparison with its figures: so
  // many operations a graph (its -n), kNcclTestsReplays launches (its -G) of a
  // new graph without a gate, by the host's clock.
  int as_nccl_tests = 0;
  // Looked at before and after a sample: its SM clock in hertz (negative: not
  // known), and why the sample must not count (empty: it may).
  std::function<double()> sm_clock_hertz;
  std::function<std::string()> disturbed;
  // Asked all the time: whether to end early, with CANCELLED.
  std::function<bool()> stop;
};

// The case's time for one operation: the slowest device's, chained in a CUDA
// graph or launched one by one, less that of the case's company. The result is
// verified before the first sample; DATA_LOSS and no statistics where it is
// wrong. DEADLINE_EXCEEDED: a sample hung; the node's collectives must be
// aborted before it is used again.
absl::StatusOr<Statistics> TimeCase(Case& benchmark, Node& node,
                                    const LoopOptions& options);

}  // namespace fabricwise
