// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/profile_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/daemon/log.h"
#include "server/daemon/measuring.h"
#include "server/daemon/read_file.h"
#include "server/daemon/version.h"
#include "server/profile/profile_file.h"

namespace fabricwise {
namespace {

StoredProfile ToStored(const ProfileData& data) {
  return {.name = data.name,
          .fingerprint = data.fingerprint,
          .as_of = data.as_of,
          .notes = data.notes,
          .measurements = data.measurements};
}

ProfileData FromStored(StoredProfile stored) {
  return {.name = std::move(stored.name),
          .fingerprint = std::move(stored.fingerprint),
          .as_of = stored.as_of,
          .measurements = std::move(stored.measurements),
          .notes = std::move(stored.notes)};
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Profile>> LoadProfileFile(
    const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxProfileBytes));
  ASSIGN_OR_RETURN(ProfileData data, ReadProfile(path, text));
  auto profile = Profile::Build(std::move(data));
  if (profile.ok()) return profile;
  return absl::Status(profile.status().code(),
                      absl::StrCat(path, ": ", profile.status().message()));
}

absl::Status ImportProfileFile(const std::string& path, Store& store) {
  // What cannot be advised from is not kept either.
  ASSIGN_OR_RETURN(const auto profile, LoadProfileFile(path));
  return store.Import(ToStored(profile->data())).status();
}

absl::StatusOr<std::shared_ptr<const Profile>> LoadProfile(Store& store,
                                                           int64_t id) {
  ASSIGN_OR_RETURN(StoredProfile stored, store.Load(id));
  return Profile::Build(FromStored(std::move(stored)));
}

absl::StatusOr<std::shared_ptr<const Profile>> LoadCurrentProfile(
    Store& store) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> id, store.CurrentProfile());
  if (!id) return nullptr;
  return LoadProfile(store, *id);
}

StoreBackend::StoreBackend(Store* store, absl::Time start_time)
    : store_(store),
      start_time_(start_time),
      measurement_count_(store->MeasurementCount()) {}

absl::StatusOr<MeasurementPage> StoreBackend::ListMeasurements(
    int page_size, const std::string& page_token,
    const std::string& key_prefix) {
  return store_->List(page_size, page_token, key_prefix);
}

absl::Status StoreBackend::StoreProfile(const ProfileData& data) {
  absl::Status status = store_->Import(ToStored(data)).status();
  if (status.ok()) {
    OnStored();
    Log(LogLevel::kInfo, "profile imported",
        {{"profile", data.name},
         {"fingerprint", FingerprintId(data.fingerprint)}});
  } else {
    Log(LogLevel::kError, "profile not imported",
        {{"profile", data.name}, {"reason", std::string(status.message())}});
  }
  return status;
}

std::string StoreBackend::NodeFingerprintId() {
  return measuring_ == nullptr ? "" : measuring_->NodeFingerprintId();
}

absl::Status StoreBackend::StartRun(const RunOrder& order, std::stop_token stop,
                                    RunListener listener) {
  if (measuring_ == nullptr) {
    return absl::FailedPreconditionError(
        "no measuring worker is installed on this node: import a profile "
        "instead");
  }
  return measuring_->StartRun(order, std::move(stop), std::move(listener));
}

std::optional<NodeProbe> StoreBackend::LastProbe() {
  if (measuring_ == nullptr) return std::nullopt;
  return measuring_->LastProbe();
}

DaemonState StoreBackend::State() {
  DaemonState state = {.version = kVersion,
                       .start_time = start_time_,
                       .measurement_count = measurement_count_};
  if (measuring_ != nullptr) {
    const SchedulerCounts counts = measuring_->Counts();
    state.worker_installed = true;
    state.scheduler_state = counts.state;
    state.scheduler_detail = counts.detail;
  }
  return state;
}

}  // namespace fabricwise
