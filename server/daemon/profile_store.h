// SPDX-License-Identifier: Apache-2.0
//
// Profiles between the store, files and the RPC side.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/profile/profile.h"
#include "server/rpc/backend.h"
#include "server/store/store.h"

namespace fabricwise {

// Puts the profile file at `path` into `store`, as the current profile.
// NOT_FOUND, PERMISSION_DENIED: the file cannot be read. INVALID_ARGUMENT,
// FAILED_PRECONDITION: it is no profile of this version (ReadProfile,
// Profile::Build); then nothing is stored. Else the store's errors.
absl::Status ImportProfileFile(const std::string& path, Store& store);

// The current profile of `store`, with all appended to it; null: there is none.
// INVALID_ARGUMENT: it cannot be built. Else the store's errors.
absl::StatusOr<std::shared_ptr<const Profile>> LoadCurrentProfile(Store& store);

// The RPC side's view of the daemon. Thread-safe.
class StoreBackend final : public Backend {
 public:
  // `store` is borrowed and outlives every call but State.
  StoreBackend(Store* store, absl::Time start_time);

  absl::StatusOr<MeasurementPage> ListMeasurements(
      int page_size, const std::string& page_token,
      const std::string& key_prefix) override;
  absl::Status StoreProfile(const ProfileData& data) override;
  std::string NodeFingerprintId() override;
  DaemonState State() override;

 private:
  Store* const store_;
  const absl::Time start_time_;
  // The store's, as it was after our last import: metrics ask for it even when
  // the store is closed.
  std::atomic<int64_t> measurement_count_;
};

}  // namespace fabricwise
