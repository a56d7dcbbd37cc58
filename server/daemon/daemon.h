// SPDX-License-Identifier: Apache-2.0
//
// All parts of the daemon, wired.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/daemon/config.h"

namespace fabricwise {

// Not thread-safe; its parts have threads of their own.
class Daemon {
 public:
  // Opens the store, takes a profile into use where there is one, and listens.
  // Logs what it does. Folders of paths that `defaults` names are made; all
  // others must exist. A current profile of the store that cannot be loaded is
  // logged and left out: another can then be imported. Errors name the option
  // or path that is at fault. `clock` is borrowed.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Config& config,
                                                       const Config& defaults,
                                                       const Clock* clock);
  ~Daemon();

  // What is in effect.
  const Config& config() const;

  // Takes over what of `read` needs no restart, and logs what changed and what
  // waits for one. Not OK: it could not be read; all stays as it is, and the
  // log and a metric say so.
  void Reload(const absl::StatusOr<Config>& read);

  // Which part does not respond within this time, or is longer at one task than
  // any takes; empty: none. Asks those who listen for a sign of life by a
  // connection to each address, and the threads that serve calls by a call.
  std::string FindStuck(absl::Duration within);

  // For people, one line: what it advises from.
  std::string StatusLine() const;

  // Stops within about `budget`: health turns to not serving and no request is
  // taken, those under way get the rest of the budget, the store is closed,
  // and metrics go last. Never to be called from a request. The last call.
  void Drain(absl::Duration budget);

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace fabricwise
