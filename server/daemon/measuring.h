// SPDX-License-Identifier: Apache-2.0
//
// The measuring side of the daemon: worker, scheduler, and where results go.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/daemon/config.h"
#include "server/domain/finding.h"
#include "server/domain/measurement.h"
#include "server/domain/measurement_run.h"
#include "server/measure/runner.h"
#include "server/measure/scheduler.h"
#include "server/measure/worker_process.h"
#include "server/rpc/snapshot.h"
#include "server/store/store.h"

namespace fabricwise {

// Thread-safe.
class Measuring final : private MeasurementSink {
 public:
  // `worker` is the program; pointers are borrowed and outlive this.
  // `on_stored` is called after each change of the store, `wanted` before each
  // run, for keys to be measured on top.
  Measuring(const Config& config, const std::string& worker, Store* store,
            SnapshotHolder* snapshots, const Clock* clock,
            std::function<void()> on_stored,
            std::function<std::vector<MeasurementKey>()> wanted);

  void Start() { scheduler_.Start(); }
  // Ends what is under way; the store may be closed afterwards.
  void Stop() { scheduler_.Stop(); }

  absl::Status StartRun(const RunOrder& order, std::stop_token stop,
                        RunListener listener) {
    return scheduler_.Submit(order, std::move(stop), std::move(listener));
  }
  std::optional<NodeProbe> LastProbe() const { return scheduler_.LastProbe(); }
  SchedulerCounts Counts() const { return scheduler_.Counts(); }
  // Takes over when to measure.
  void SetPolicy(const Config& config);
  absl::Duration BusyTime() const { return scheduler_.BusyTime(); }
  // The last run differs from those before: see Scheduler::OnDrift.
  void OnDrift() { scheduler_.OnDrift(); }
  // Empty: not looked at yet.
  std::string NodeFingerprintId() const;
  // Times that a look found the node changed.
  int64_t fingerprint_changes() const { return fingerprint_changes_; }

 private:
  absl::StatusOr<std::optional<Span>> OnProbe(const NodeProbe& probe) override;
  absl::Status Keep(const Fingerprint& fingerprint,
                    absl::Span<const Measurement> measurements) override;
  absl::Status Publish(const Fingerprint& fingerprint) override;
  std::vector<MeasurementKey> Wanted() override { return wanted_(); }
  void Log(Level level, absl::string_view event,
           const std::vector<std::pair<absl::string_view, std::string>>& fields)
      override;

  Store* const store_;
  SnapshotHolder* const snapshots_;
  const std::function<void()> on_stored_;
  const std::function<std::vector<MeasurementKey>()> wanted_;
  mutable std::mutex mutex_;
  std::string node_fingerprint_id_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> fingerprint_changes_ = 0;

  // Last: it uses all of the above.
  WorkerLauncher launcher_;  // on the scheduler's thread alone
  Runner runner_;
  Scheduler scheduler_;
};

// The worker that `config` names; for "auto" the one beside this program, where
// there is one. Empty: none. NOT_FOUND: the one that is named is not there.
absl::StatusOr<std::string> FindWorker(const Config& config);

}  // namespace fabricwise
