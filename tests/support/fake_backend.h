// SPDX-License-Identifier: Apache-2.0
//
// A backend in memory.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <utility>
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

  absl::Status StartRun(const RunOrder& order, std::stop_token stop,
                        RunListener listener) override {
    if (!run_status.ok()) return run_status;
    run_order = order;
    run_stop = std::move(stop);
    run_listener = std::move(listener);
    return absl::OkStatus();
  }

  std::optional<NodeProbe> LastProbe() override { return last_probe; }

  DaemonState State() override { return state; }

  absl::StatusOr<MeasurementPage> page = MeasurementPage();
  int asked_page_size = 0;
  std::string asked_page_token;
  std::string asked_key_prefix;
  absl::Status store_status;
  std::vector<std::string> stored;
  std::string node_fingerprint_id;
  absl::Status run_status =
      absl::FailedPreconditionError("no measuring worker is installed");
  std::optional<RunOrder> run_order;  // the last that began
  std::stop_token run_stop;
  RunListener run_listener;
  std::optional<NodeProbe> last_probe;
  DaemonState state;
};

}  // namespace fabricwise
