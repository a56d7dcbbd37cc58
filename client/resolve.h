// SPDX-License-Identifier: Apache-2.0
//
// Names that stand for many daemons.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fabricwise {

struct Endpoint {
  std::string target;       // as ServiceAddress has it
  std::string server_name;  // that its certificate is for; empty: the target's
};

// "dns:///HOST:PORT" as every address that HOST has, each once, in order; any
// other target as it is. INVALID_ARGUMENT: "dns:" in another form. UNAVAILABLE:
// the name has no address now.
absl::StatusOr<std::vector<Endpoint>> Resolve(const std::string& target);

}  // namespace fabricwise
