// SPDX-License-Identifier: Apache-2.0
//
// What the profile in use means to those who watch this node: whether it
// drifts, and what it advises in the scenarios that the daemon was told to pin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/profile/drift.h"
#include "server/profile/serving.h"

namespace fabricwise {

// More could not be read on a dashboard.
inline constexpr size_t kMaxScenarios = 16;

// A pinned question and its present answer.
struct ScenarioAdvice {
  std::string name;
  std::string model;
  int64_t hidden_size = 0;  // of the model
  std::string phase;
  int64_t concurrency = 0;
  // Times that the recommended mode has changed since the daemon's start.
  int64_t flips = 0;
  bool answered = false;  // else what follows is empty
  std::string engine, mode;
  double tpot_seconds = 0;  // 0: the phase has none
  double output_tokens_per_second = 0;
  double margin_ratio = 0;  // of the second plan's cost, less one
  bool within_limits = false;
};

// Immutable once made.
struct Outlook {
  std::vector<Drift> drifts;
  std::vector<ReferenceRatio> reference_ratios;
  std::vector<ScenarioAdvice> scenarios;  // in the order of the configuration
};

}  // namespace fabricwise
