// SPDX-License-Identifier: Apache-2.0
//
// A question that the daemon asks itself whenever its profile changes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/domain/workload.h"

namespace fabricwise {

struct Scenario {
  std::string name;   // of letters, digits, '.', '_', '-'; at most 45
  std::string model;  // a preset's
  Question question;
};

// "NAME: model=PRESET concurrency=N", and after it any of engine, phase,
// objective (as the client's flags have them), input-tokens, output-tokens,
// context-tokens, gpus. INVALID_ARGUMENT, NOT_FOUND naming the part that is off
// and what is allowed.
absl::StatusOr<Scenario> ParseScenario(absl::string_view text);

// Its inverse; defaults are left out.
std::string ToString(const Scenario& scenario);

}  // namespace fabricwise
