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

struct SweepQuestion {
  v1::RecommendParallelismRequest question;
  std::vector<int64_t> concurrencies;  // none: the default ones
  bool explain = false;
  bool fail_on_miss = false;
};

// Asks `asked` at each of its concurrencies and prints the answer.
absl::Status RunSweep(const ServiceAddress& address, const SweepQuestion& asked,
                      Format format, Session& session);

}  // namespace fabricwise
