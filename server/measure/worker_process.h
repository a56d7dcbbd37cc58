// SPDX-License-Identifier: Apache-2.0
//
// One run of the measuring worker: a child process under a deadline, which may
// crash, hang, or say anything, and takes nothing of ours with it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabricwise/worker/v1/worker.pb.h"

namespace fabricwise {

struct WorkerCommand {
  std::string path;  // of the program; not searched for
  std::vector<std::string> arguments;
};

// All by the steady clock.
struct WorkerLimits {
  // From the start to the exit.
  absl::Duration run;
  // Until a first whole frame, and from one whole frame to the next.
  absl::Duration first_frame;
  absl::Duration between_frames;
  // From SIGTERM to SIGKILL.
  absl::Duration grace = absl::Milliseconds(250);
};

// How a run ended. Names of metrics' labels: kept few.
enum class WorkerEnd {
  kDone,        // it said Done and left with success
  kStopped,     // it was told to stop, by us
  kNotStarted,  // no such program, no more processes, ...
  kHung,        // a limit passed
  kDied,        // a signal, or an exit status other than success
  kGarbled,     // frames that are none, too few, or out of order
  kRefused,     // `on_frame` refused what it said
};

// "done", "stopped", "not_started", ...
absl::string_view ToString(WorkerEnd end);

struct WorkerRun {
  WorkerEnd end = WorkerEnd::kNotStarted;
  // OK exactly for kDone, and for kStopped where it still said Done and left
  // with success. Else what happened, in words for people: CANCELLED for
  // kStopped, `on_frame`'s own status for kRefused, else INTERNAL.
  absl::Status status;
  uint64_t frame_count = 0;
  absl::Duration wall;
};

// Starts workers, one at a time. Not thread-safe.
class WorkerLauncher {
 public:
  // Called on Run's thread. `on_frame` gets every frame in order; not OK ends
  // the run. `on_log` gets a line of the worker's output, its bytes as they
  // are, cut after 1 KiB; after 1,000 lines of a run only how many are left
  // out.
  struct Listener {
    std::function<absl::Status(const worker::v1::WorkerFrame&)> on_frame;
    std::function<void(absl::string_view)> on_log;
  };

  // Runs the worker on `plan` and returns once it is gone, with all that it
  // started: after its exit, or after a limit, `stop` or a fault, by SIGTERM
  // and then SIGKILL. It dies with the calling thread, so with the daemon. One
  // that even SIGKILL does not end (it sticks in a driver) is left behind, and
  // no other is started while it is there. This process becomes the reaper of
  // its orphans (PR_SET_CHILD_SUBREAPER), and every child that it gets
  // meanwhile is taken for the worker's.
  WorkerRun Run(const WorkerCommand& command,
                const worker::v1::WorkerPlan& plan, const WorkerLimits& limits,
                const std::stop_token& stop, const Listener& listener);

 private:
  pid_t stuck_ = 0;  // left behind, not yet reaped
};

}  // namespace fabricwise
