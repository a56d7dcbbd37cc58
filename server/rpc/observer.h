// SPDX-License-Identifier: Apache-2.0
//
// Where finished requests are reported to: metrics in the daemon.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fabricwise {

// One finished RPC.
struct RequestEvent {
  absl::string_view method;  // "RecommendParallelism"; a literal
  absl::StatusCode code = absl::StatusCode::kOk;
  absl::Duration duration;  // in the server, without the network
  bool cached = false;      // answered from the cache
};

// Called once for each RPC that reached a method, on the RPC's thread, many
// threads at once: short, and never blocking on I/O.
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  virtual void OnRequest(const RequestEvent& event) = 0;
};

}  // namespace fabricwise
