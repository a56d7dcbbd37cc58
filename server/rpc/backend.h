// SPDX-License-Identifier: Apache-2.0
//
// What the handler needs of the rest of the daemon: its store and its state.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/domain/finding.h"
#include "server/domain/measurement_run.h"
#include "server/domain/stored_measurement.h"
#include "server/profile/profile.h"

namespace fabricwise {

struct DaemonState {
  std::string version;
  absl::Time start_time = absl::UnixEpoch();
  bool worker_installed = false;
  std::string scheduler_state = "no worker";
  std::string scheduler_detail;   // for people
  int64_t measurement_count = 0;  // in the store
};

// Thread-safe. Only the RPCs that say so below call it, and never
// RecommendParallelism, SweepConcurrency or WatchRecommendation.
class Backend {
 public:
  virtual ~Backend() = default;

  // For ListMeasurements. `page_size` is 1 to 1000; an empty `page_token` is
  // the newest page; an empty `key_prefix` is every key. May do I/O.
  // INVALID_ARGUMENT: page_token is not one of ours.
  virtual absl::StatusOr<MeasurementPage> ListMeasurements(
      int page_size, const std::string& page_token,
      const std::string& key_prefix) = 0;

  // For ImportProfile: stores the measurements and makes this the profile that
  // the daemon starts with next time. Returns when that is durable.
  virtual absl::Status StoreProfile(const ProfileData& data) = 0;

  // For ImportProfile and GetStatus: the fingerprint of the node's own probe;
  // empty: not known, which it is without a worker. Does no I/O.
  virtual std::string NodeFingerprintId() = 0;

  // For RunMeasurement and DiagnoseNode: begins `order`, which goes on after
  // the call; `stop` ends it. `listener` is called on another thread, and not
  // at all after an error: FAILED_PRECONDITION no worker is installed; ABORTED
  // a run is under way; UNAVAILABLE the daemon is stopping.
  virtual absl::Status StartRun(const RunOrder& order, std::stop_token stop,
                                RunListener listener) = 0;

  // For DiagnoseNode: the last look at the node; nullopt: none yet. No I/O.
  virtual std::optional<NodeProbe> LastProbe() = 0;

  // For GetStatus. Does no I/O.
  virtual DaemonState State() = 0;
};

}  // namespace fabricwise
