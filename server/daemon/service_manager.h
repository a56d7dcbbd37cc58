// SPDX-License-Identifier: Apache-2.0
//
// Tells the service manager that started us how we are: systemd's protocol, one
// datagram a message to the socket that $NOTIFY_SOCKET names.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/daemon/config.h"

namespace fabricwise {

// Without a service manager all of it does nothing, with success. Errors:
// UNAVAILABLE, the manager's socket does not take the message; it may be tried
// again. INVALID_ARGUMENT, $NOTIFY_SOCKET is neither a path nor "@NAME" or is
// too long.
class ServiceManager {
 public:
  // `process` is our id: a watchdog meant for another process is not ours.
  ServiceManager(const Environment& environment, int process);

  // `status` is for people: one line.
  absl::Status Ready(absl::string_view status) const;
  absl::Status Reloading() const;  // until the next Ready
  absl::Status Stopping() const;
  absl::Status Alive(absl::string_view status) const;

  // The manager ends a process that does not say Alive for so long; infinite:
  // it does not watch.
  absl::Duration watchdog() const { return watchdog_; }

 private:
  absl::Status Send(const std::string& message) const;

  std::string socket_;  // empty: there is no manager
  absl::Duration watchdog_ = absl::InfiniteDuration();
};

}  // namespace fabricwise
