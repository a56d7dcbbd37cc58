// SPDX-License-Identifier: Apache-2.0
//
// Who answers: a daemon, or the same code in this process. Commands ask through
// this and cannot tell which.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabricwise/v1/advisor.pb.h"
#include "fabricwise/v1/profiler.pb.h"

namespace fabricwise {

// Errors are those of the RPCs (proto/fabricwise/v1). One call at a time.
class Service {
 public:
  virtual ~Service() = default;

  virtual absl::StatusOr<v1::RecommendParallelismResponse> Recommend(
      const v1::RecommendParallelismRequest& request) = 0;
  virtual absl::StatusOr<v1::SweepConcurrencyResponse> Sweep(
      const v1::SweepConcurrencyRequest& request) = 0;
  virtual absl::StatusOr<v1::NodeProfile> GetProfile(v1::ProfileView view) = 0;

  // Only a daemon can do these; FAILED_PRECONDITION elsewhere. The streaming
  // ones call `each` until it returns false or the stream ends.
  virtual absl::Status Watch(
      const v1::WatchRecommendationRequest& request,
      const std::function<bool(const v1::WatchRecommendationResponse&)>&
          each) = 0;
  virtual absl::StatusOr<v1::GetStatusResponse> GetStatus() = 0;
  virtual absl::Status RunMeasurement(
      const v1::RunMeasurementRequest& request,
      const std::function<bool(const v1::RunMeasurementResponse&)>& each) = 0;
  virtual absl::StatusOr<v1::DiagnoseNodeResponse> Diagnose() = 0;
  virtual absl::StatusOr<v1::NodeProfile> ImportProfile(
      const v1::ImportProfileRequest& request) = 0;
};

// PEM files by which client and daemon know each other. All empty: plain text.
struct TlsIdentity {
  std::string ca;           // who may vouch for the daemon
  std::string certificate;  // the client's own; with `key`, or neither
  std::string key;
  // Name that the daemon's certificate must bear; empty: the target's host.
  std::string server_name;
};

// Where to ask. At most one is set; neither: the daemon at its usual address.
struct ServiceAddress {
  std::string target;   // "HOST:PORT" or "unix:///path"
  std::string profile;  // a profile file, or the name of a shipped profile
  TlsIdentity tls;      // for a target "HOST:PORT"; no other speaks TLS
  absl::Duration deadline = absl::Seconds(10);  // of one call, not of streams
};

}  // namespace fabricwise
