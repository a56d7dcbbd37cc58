// SPDX-License-Identifier: Apache-2.0
//
// All parts of the daemon, wired.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/daemon/config.h"

namespace fabricwise {

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

  // Stops within about `budget`: health turns to not serving and no request is
  // taken, those under way get the rest of the budget, the store is closed,
  // and metrics go last. Never to be called from a request.
  void Drain(absl::Duration budget);

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace fabricwise
