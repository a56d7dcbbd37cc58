// SPDX-License-Identifier: Apache-2.0
//
// Looks at each profile that is taken into use: does the node drift, and what
// do the pinned scenarios become? One thread, off the RPC path.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/daemon/scenario.h"
#include "server/domain/stored_measurement.h"
#include "server/metrics/outlook.h"
#include "server/profile/profile.h"
#include "server/rpc/snapshot.h"

namespace fabricwise {

class Lookout {
 public:
  struct Options {
    std::vector<Scenario> scenarios;
    std::shared_ptr<const Profile> reference;  // null: none
    // What was measured on a node before (Store::History), by fingerprint; may
    // do I/O.
    std::function<absl::StatusOr<std::vector<KeyHistory>>(
        const std::string& fingerprint_id)>
        history;
    // Called on the thread when something drifts that did not before.
    std::function<void()> on_drift;
    // Called on the thread after every look; may do I/O. False: it failed at
    // that, and there is to be another look after `retry`.
    std::function<bool(const Profile&, const Outlook&)> on_look;
    // A disk that is full or a folder that is not there yet takes people some
    // minutes; a look takes milliseconds.
    absl::Duration retry = absl::Minutes(1);
  };

  // `snapshots` is borrowed and outlives this.
  Lookout(Options options, SnapshotHolder* snapshots);
  // Stops first.
  ~Lookout();

  void Start();
  // Afterwards none of the options' functions is called any more.
  void Stop();

  // Takes over what to answer, and looks anew. A scenario of a name that was
  // there keeps its count of flips.
  void SetScenarios(std::vector<Scenario> scenarios);

  // The last look; null: none yet. Any thread; waits for a pointer's copy only.
  std::shared_ptr<const Outlook> Get() const;

  // One look, for tests that start no thread. What on_look said; true without
  // a profile.
  bool Look();

 private:
  void Loop();
  void LookSoon();
  // `anew`: something drifts that did not before.
  std::vector<Drift> LookForDrift(const Profile& profile, bool& anew);
  ScenarioAdvice Ask(const Scenario& scenario, const Profile& profile,
                     const ScenarioAdvice* former) const;

  const Options options_;
  SnapshotHolder* const snapshots_;
  // Of the thread.
  std::set<std::pair<std::string, SizeBand>> drifting_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Scenario> scenarios_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = true;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const Outlook> outlook_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
  SnapshotHolder::Subscription subscription_;
};

}  // namespace fabricwise
