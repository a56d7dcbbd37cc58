// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/recent_models.h"

#include <algorithm>

namespace fabricwise {

void RecentModels::Add(const std::string& model) {
  if (model.size() > kMostBytes) return;
  std::lock_guard lock(mutex_);
  const auto found = std::find(serialized_.begin(), serialized_.end(), model);
  if (found != serialized_.end()) {
    std::rotate(serialized_.begin(), found, found + 1);
    return;
  }
  serialized_.push_front(model);
  if (serialized_.size() > kMost) serialized_.pop_back();
}

std::vector<v1::Model> RecentModels::Get() const {
  std::lock_guard lock(mutex_);
  std::vector<v1::Model> models(serialized_.size());
  for (size_t i = 0; i < models.size(); ++i) {
    models[i].ParseFromString(serialized_[i]);
  }
  return models;
}

}  // namespace fabricwise
