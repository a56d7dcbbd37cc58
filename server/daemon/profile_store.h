// SPDX-License-Identifier: Apache-2.0
//
// Profiles between the store, files and the RPC side.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/profile/profile.h"
#include "server/rpc/backend.h"
#include "server/store/store.h"

namespace fabricwise {

class Measuring;

// The profile in the file at `path`. Errors as ImportProfileFile.
absl::StatusOr<std::shared_ptr<const Profile>> LoadProfileFile(
    const std::string& path);

// Puts the profile file at `path` into `store`, as the current profile.
// NOT_FOUND, PERMISSION_DENIED: the file cannot be read. INVALID_ARGUMENT,
// FAILED_PRECONDITION: it is no profile of this version (ReadProfile,
// Profile::Build); then nothing is stored. Else the store's errors.
absl::Status ImportProfileFile(const std::string& path, Store& store);

// The profile `id` of `store`, with all appended to it. INVALID_ARGUMENT: it
// cannot be built. Else the store's errors.
absl::StatusOr<std::shared_ptr<const Profile>> LoadProfile(Store& store,
                                                           int64_t id);

// The current profile of `store`, with all appended to it; null: there is none.
// INVALID_ARGUMENT: it cannot be built. Else the store's errors.
absl::StatusOr<std::shared_ptr<const Profile>> LoadCurrentProfile(Store& store);

// The RPC side's view of the daemon. Thread-safe.
class StoreBackend final : public Backend {
 public:
  // `store` is borrowed and outlives every call but State; so does `measuring`,
  // which is null where no worker is installed and may be set once, before the
  // first call.
  StoreBackend(Store* store, absl::Time start_time);
  void SetMeasuring(Measuring* measuring) { measuring_ = measuring; }

  // To be called after each change of the store that is not ours.
  void OnStored() { measurement_count_ = store_->MeasurementCount(); }

  absl::StatusOr<MeasurementPage> ListMeasurements(
      int page_size, const std::string& page_token,
      const std::string& key_prefix) override;
  absl::Status StoreProfile(const ProfileData& data) override;
  std::string NodeFingerprintId() override;
  absl::Status StartRun(const RunOrder& order, std::stop_token stop,
                        RunListener listener) override;
  std::optional<NodeProbe> LastProbe() override;
  DaemonState State() override;

 private:
  Store* const store_;
  const absl::Time start_time_;
  Measuring* measuring_ = nullptr;
  // The store's, as it was after its last change: metrics ask for it even when
  // the store is closed.
  std::atomic<int64_t> measurement_count_;
};

}  // namespace fabricwise
