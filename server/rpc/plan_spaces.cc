// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/plan_spaces.h"

#include <algorithm>

#include "server/base/status_macros.h"

namespace fabricwise {

absl::StatusOr<PlanSpaces::Lease> PlanSpaces::Get(
    absl::string_view model_name, const PlanScope& scope,
    const std::shared_ptr<const Profile>& profile,
    absl::FunctionRef<absl::StatusOr<ModelShape>()> resolve) {
  std::vector<std::unique_ptr<Entry>> stale;  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    const auto other = std::stable_partition(
        free_.begin(), free_.end(),
        [&](const auto& entry) { return entry->profile == profile; });
    std::move(other, free_.end(), std::back_inserter(stale));
    free_.erase(other, free_.end());
    const auto found =
        std::find_if(free_.begin(), free_.end(), [&](const auto& entry) {
          return entry->model_name == model_name &&
                 entry->space->scope() == scope;
        });
    if (found != free_.end()) {
      std::unique_ptr<Entry> entry = std::move(*found);
      free_.erase(found);
      return Lease(this, std::move(entry));
    }
  }
  ASSIGN_OR_RETURN(ModelShape model, resolve());
  auto entry = std::make_unique<Entry>();
  entry->model_name = std::string(model_name);
  entry->profile = profile;
  entry->model = std::move(model);
  ASSIGN_OR_RETURN(entry->space,
                   PlanSpace::Create(entry->model, scope, *profile));
  return Lease(this, std::move(entry));
}

void PlanSpaces::Return(std::unique_ptr<Entry> entry) {
  std::unique_ptr<Entry> oldest;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  free_.push_back(std::move(entry));
  if (free_.size() <= kMost) return;
  oldest = std::move(free_.front());
  free_.erase(free_.begin());
}

}  // namespace fabricwise
