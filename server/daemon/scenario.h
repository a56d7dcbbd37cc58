// SPDX-License-Identifier: Apache-2.0
//
// A question that the daemon asks itself whenever its profile changes.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/domain/model_shape.h"
#include "server/domain/workload.h"

namespace fabricwise {

struct Scenario {
  std::string name;    // of letters, digits, '.', '_', '-'; at most 45
  std::string config;  // the path of its model's config.json; empty: a preset
  ModelShape model;
  Question question;
};

// "NAME: model=PRESET concurrency=N" or "NAME: config=PATH concurrency=N", and
// after it any of engine, phase, objective, ttft-ms, tpot-ms, input-tokens,
// output-tokens, context-tokens, gpus, gpu-indices, plan-options (as the
// client's flags have them); no part holds a space. Reads the file of config=.
// INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED naming the part that is off
// and what is allowed.
absl::StatusOr<Scenario> ParseScenario(absl::string_view text);

// Its inverse; defaults are left out.
std::string ToString(const Scenario& scenario);

}  // namespace fabricwise
