// SPDX-License-Identifier: Apache-2.0
//
// When to measure what. Pure: times come in as durations of a clock that never
// jumps, since an origin of the caller's choice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/domain/measurement_run.h"

namespace fabricwise {

struct DuePolicy {
  absl::Duration quick_interval = absl::Hours(4);
  absl::Duration full_interval = absl::Hours(24);
  // Intervals are longer by up to this part, at random, so that the nodes of a
  // cluster do not measure in step.
  double jitter_ratio = 0.1;
  // Most GPU time that scheduled runs take, of the GPU time that is idle.
  double budget_ratio = 0.003;
  // From finding the GPUs busy to looking again.
  absl::Duration busy_retry = absl::Minutes(5);
  // After a failure; doubles with each further one in a row, up to the most.
  absl::Duration first_backoff = absl::Minutes(1);
  absl::Duration most_backoff = absl::Hours(6);
};

// Why a run is due.
enum class DueReason {
  kNewNode,   // no measurements of the node as it is now: first start, change
  kDrift,     // the last run found something else than those before
  kInterval,  // those that there are have aged
};

// Why none is made.
enum class SkipReason {
  kNotDue,
  kBusy,        // a process not of ours is on a GPU
  kOverBudget,  // idle time has not paid for the last runs yet
  kBackOff,     // the last run failed
};

// "new_node", "drift", "interval"; "not_due", "busy", "over_budget",
// "backing_off".
absl::string_view ToString(DueReason reason);
absl::string_view ToString(SkipReason reason);

// How a run went, for its follow-up.
enum class RunVerdict {
  kKept,       // all of it was measured, or all but what failed on its own
  kYielded,    // a process came to a GPU
  kCancelled,  // its asker's wish, or the daemon's end
  kFailed,     // nothing of it could be kept
};

// "kept", "yielded", "cancelled", "failed".
absl::string_view ToString(RunVerdict verdict);

// Knows what was done and what it cost. Not thread-safe.
class DueClock {
 public:
  // `seed` decides the jitter. Begins at `now` with an unknown node.
  DueClock(const DuePolicy& policy, uint64_t seed, absl::Duration now);

  // From now on; times that are set already move with the intervals.
  void SetPolicy(const DuePolicy& policy);

  struct Decision {
    std::optional<RunKind> run;                        // absent: wait
    DueReason due = DueReason::kInterval;              // with `run`
    SkipReason skip = SkipReason::kNotDue;             // without
    absl::Duration look_again = absl::ZeroDuration();  // without: when
    std::string text;                                  // why, for people
  };
  // Before the node is known this is to look at it: kProbe.
  Decision Decide(absl::Duration now) const;

  // The node was looked at. `quick_age` and `full_age` tell how old the newest
  // and the oldest measurements of the node as it is now are; absent: none.
  // They count where the node was not known as `fingerprint_id` before.
  void OnProbe(absl::Duration now, const std::string& fingerprint_id,
               int gpu_count, bool busy,
               std::optional<absl::Duration> quick_age,
               std::optional<absl::Duration> full_age);

  // The last run's figures differ from those before: a full run is due, to see
  // whether that lasts, and to replace the points that a quick one left as they
  // were, since advice reads both. The budget does not put it off, but owes for
  // it; so within quick_interval of the last such run this does nothing.
  void OnDrift(absl::Duration now);

  // A look that failed.
  void OnProbeFailed(absl::Duration now) { OnFailure(now); }

  // A run ended, scheduled or asked for, and took `gpu_time` over all GPUs.
  // kProbe stands for one that says nothing of the age of the rest: a look, or
  // a choice of keys.
  void OnRun(absl::Duration now, RunKind kind, RunVerdict verdict,
             absl::Duration gpu_time);

 private:
  absl::Duration CreditAt(absl::Duration now) const;
  void Accrue(absl::Duration now);
  void OnFailure(absl::Duration now);
  absl::Duration Jittered(absl::Duration interval);

  DuePolicy policy_;
  uint64_t random_;
  std::string fingerprint_id_;  // empty: not known
  int gpu_count_ = 0;
  bool idle_ = false;      // when last looked at
  bool new_node_ = false;  // until a full run
  // A new node is measured whatever the budget says, unless it is new again
  // soon: a fact that flaps must not keep the GPUs busy.
  bool exempt_ = false;
  absl::Duration changed_at_ = -absl::InfiniteDuration();
  bool drifted_ = false;  // until the run that looks again
  absl::Duration drift_at_ = -absl::InfiniteDuration();
  absl::Duration next_quick_, next_full_;
  absl::Duration busy_until_ = -absl::InfiniteDuration();
  absl::Duration backoff_until_ = -absl::InfiniteDuration();
  int failures_ = 0;  // in a row
  absl::Duration accrued_at_;
  absl::Duration credit_ = absl::ZeroDuration();  // GPU time; negative: owed
};

}  // namespace fabricwise
