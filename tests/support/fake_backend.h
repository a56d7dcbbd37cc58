// SPDX-License-Identifier: Apache-2.0
//
// A backend in memory.
#pragma once

#include <string>
#include <vector>

#include "server/rpc/backend.h"

namespace fabricwise {

// Set its members before it is shared between threads.
class FakeBackend : public Backend {
 public:
  absl::StatusOr<MeasurementPage> ListMeasurements(
      int page_size, const std::string& page_token,
      const std::string& key_prefix) override {
    asked_page_size = page_size;
    asked_page_token = page_token;
    asked_key_prefix = key_prefix;
    return page;
  }

  absl::Status StoreProfile(const ProfileData& data) override {
    if (store_status.ok()) stored.push_back(data.name);
    return store_status;
  }

  std::string NodeFingerprintId() override { return node_fingerprint_id; }

  DaemonState State() override { return state; }

  absl::StatusOr<MeasurementPage> page = MeasurementPage();
  int asked_page_size = 0;
  std::string asked_page_token;
  std::string asked_key_prefix;
  absl::Status store_status;
  std::vector<std::string> stored;
  std::string node_fingerprint_id;
  DaemonState state;
};

}  // namespace fabricwise
