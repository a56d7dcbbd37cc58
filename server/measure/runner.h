// SPDX-License-Identifier: Apache-2.0
//
// Carries out a look at the node or a whole run, worker by worker.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/domain/finding.h"
#include "server/domain/measurement.h"
#include "server/domain/measurement_run.h"
#include "server/measure/due.h"
#include "server/measure/plans.h"
#include "server/measure/worker_process.h"

namespace fabricwise {

// Starts one worker and waits for its end; WorkerLauncher::Run in the daemon.
using RunWorker = std::function<WorkerRun(
    const worker::v1::WorkerPlan& plan, const WorkerLimits& limits,
    std::stop_token stop, const WorkerLauncher::Listener& listener)>;

struct RunnerOptions {
  // For CUDA and NCCL to come up, on many GPUs one after the other.
  absl::Duration start_limit = absl::Seconds(60);
  // A key that takes longer hangs; the worker is told so too.
  absl::Duration key_limit = absl::Seconds(10);
  // On top of what the worker holds itself to, before it is ended.
  absl::Duration patience = absl::Seconds(5);
  double target_relative_iqr = 0.02;
};

// What running cost and how it went.
struct RunReport {
  RunVerdict verdict = RunVerdict::kFailed;
  absl::Status status;  // not OK: why not all of it was measured
  int64_t kept_count = 0;
  absl::Duration gpu_time;
  std::map<WorkerEnd, int64_t>
      faults;  // workers that ended otherwise than well
};

class Runner {
 public:
  // `on_log` gets the workers' output. `clock` is borrowed.
  Runner(RunWorker run_worker, const RunnerOptions& options, const Clock* clock,
         std::function<void(absl::string_view)> on_log);

  struct Look {
    absl::StatusOr<NodeProbe> probe;
    RunReport report;
  };
  // Looks at the node.
  Look Probe(std::stop_token stop);

  struct Hooks {
    std::function<void(const RunProgress&)> on_progress;
    // Keeps what one worker measured, whole and in order. Not OK ends the run.
    std::function<absl::Status(absl::Span<const Measurement>)> keep;
  };
  // Runs the parts of `plan` on the node of `probe`, which is idle. A part
  // whose worker fails is left out as a whole; the others are still run. The
  // run ends early, with what it has, when a process comes to a GPU, when the
  // node is no longer as it was, and when `stop` is requested.
  RunReport Run(const RunPlan& plan, const NodeProbe& probe,
                const std::stop_token& stop, const Hooks& hooks);

 private:
  class Part;
  WorkerLimits Limits(absl::Duration budget) const;

  const RunWorker run_worker_;
  const RunnerOptions options_;
  const Clock* const clock_;
  const std::function<void(absl::string_view)> on_log_;
};

}  // namespace fabricwise
