// SPDX-License-Identifier: Apache-2.0
//
// Answers at several concurrencies, for the commands that ask for them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/command/command.h"
#include "fabricwise/v1/advisor.pb.h"

namespace fabricwise {

// Asks `question` at each of `concurrencies` (none: the default ones) and
// prints the answer.
absl::Status RunSweep(const ServiceAddress& address,
                      const v1::RecommendParallelismRequest& question,
                      const std::vector<int64_t>& concurrencies, Format format,
                      bool explain, const Session& session);

}  // namespace fabricwise
