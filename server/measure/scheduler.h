// SPDX-License-Identifier: Apache-2.0
//
// Measures when it is due and when asked to: one thread, one worker at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/domain/finding.h"
#include "server/domain/fingerprint.h"
#include "server/domain/measurement.h"
#include "server/domain/measurement_run.h"
#include "server/measure/due.h"
#include "server/measure/runner.h"

namespace fabricwise {

// What measuring is for. Called on the scheduler's thread, one call at a time;
// may do I/O.
class MeasurementSink {
 public:
  virtual ~MeasurementSink() = default;

  // When the newest and the oldest measurements in use of this node began.
  struct Span {
    absl::Time newest, oldest;
  };
  // The node was looked at: `probe` is of now. nullopt: nothing was measured of
  // it as it is. What there is, is taken into use.
  virtual absl::StatusOr<std::optional<Span>> OnProbe(
      const NodeProbe& probe) = 0;

  // Keeps measurements of the node, all or nothing, durably.
  virtual absl::Status Keep(const Fingerprint& fingerprint,
                            absl::Span<const Measurement> measurements) = 0;

  // Takes all that was kept of the node into use.
  virtual absl::Status Publish(const Fingerprint& fingerprint) = 0;

  // Keys worth measuring on top, at most a few hundred.
  virtual std::vector<MeasurementKey> Wanted() = 0;

  // Something to log. `event` is a literal.
  enum class Level { kDebug, kInfo, kWarning, kError };
  virtual void Log(
      Level level, absl::string_view event,
      const std::vector<std::pair<absl::string_view, std::string>>& fields) = 0;
};

// What a scheduler has done since its start, and what it does.
struct SchedulerCounts {
  // Ended runs, by kind and by how they ended.
  std::map<std::pair<RunKind, RunVerdict>, int64_t> runs;
  // Due runs that were put off, by why; each time anew.
  std::map<SkipReason, int64_t> skips;
  std::map<WorkerEnd, int64_t> faults;
  absl::Duration gpu_time;  // over all GPUs
  int64_t kept_count = 0;   // measurements
  bool measuring = false;
  // "idle", "measuring", or what a due run waits for: "busy", "over budget",
  // "backing off".
  std::string state = "idle";
  std::string detail;  // more of it, for people
};

class Scheduler {
 public:
  struct Options {
    DuePolicy policy;
    bool scheduled = true;  // else only what is asked for
    uint64_t seed = 0;
  };
  // Time that never jumps, since any origin.
  using SteadyTime = std::function<absl::Duration()>;

  // Pointers are borrowed and outlive the scheduler.
  Scheduler(const Options& options, Runner* runner, MeasurementSink* sink,
            const Clock* clock, SteadyTime steady_time);
  // Stops first.
  ~Scheduler();

  // Starts the thread.
  void Start();
  // Ends a run under way, and the thread. What is asked for then is refused.
  void Stop();

  // Has `order` carried out next; `listener` hears of it on the scheduler's
  // thread. Requesting `stop` ends it. ABORTED: a run is under way or waits.
  // UNAVAILABLE: stopped.
  absl::Status Submit(const RunOrder& order, std::stop_token stop,
                      RunListener listener);

  // The last run differs from those before (FindDrift): where runs are
  // scheduled, a full one is made soon. Returns at once.
  void OnDrift();

  // When to measure, from now on.
  void SetPolicy(const DuePolicy& policy);

  // How long the thread has been at what it does; zero while it waits. Its
  // workers' limits bound that.
  absl::Duration BusyTime() const;

  // The last look at the node; nullopt: none yet.
  std::optional<NodeProbe> LastProbe() const;
  SchedulerCounts Counts() const;

  // One step of the thread, for tests that have none: does what was asked for,
  // or what is due. Returns when to look again.
  absl::Duration Step();

 private:
  struct Job {
    RunOrder order;
    std::stop_token stop;
    RunListener listener;
  };

  void Loop();
  absl::Duration StepScheduled();
  void Serve(const Job& job);
  // Looks at the node and tells everybody.
  absl::StatusOr<NodeProbe> Probe(std::stop_token stop);
  RunResult Measure(const RunOrder& order, const NodeProbe& probe,
                    const std::stop_token& stop, const RunListener& listener);
  void Count(RunKind kind, const RunReport& report);
  void NoteSkip(const DueClock::Decision& decision, absl::Duration now);
  void SetState(std::string state, std::string detail);

  const Options options_;
  Runner* const runner_;
  MeasurementSink* const sink_;
  const Clock* const clock_;
  const SteadyTime steady_time_;
  // Of the thread.
  DueClock due_;
  std::optional<SkipReason> last_skip_;
  absl::Duration last_look_again_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Job> waiting_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // a run is under way
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool drifted_ ABSL_GUARDED_BY(mutex_) = false;  // since the last step
  std::optional<DuePolicy> policy_ ABSL_GUARDED_BY(mutex_);  // to be taken over
  std::optional<absl::Duration> step_began_ ABSL_GUARDED_BY(mutex_);
  std::optional<NodeProbe> last_probe_ ABSL_GUARDED_BY(mutex_);
  SchedulerCounts counts_ ABSL_GUARDED_BY(mutex_);
  // Of whatever is under way.
  std::stop_source current_ ABSL_GUARDED_BY(mutex_){std::nostopstate};
  std::thread thread_;
};

}  // namespace fabricwise
