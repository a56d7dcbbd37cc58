// SPDX-License-Identifier: Apache-2.0
//
// What keeps advice from being given, or from being good.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/render/style.h"
#include "fabricwise/v1/profiler.pb.h"

namespace fabricwise {

enum class Finding {
  kGood,
  kWorthKnowing,  // answers are had, and could be better
  kBad,           // some questions cannot be answered
};

struct Check {
  Finding finding = Finding::kGood;
  std::string name;
  std::string words;  // what was found and, unless good, what follows from it
};

// Of a daemon.
std::vector<Check> CheckDaemon(const v1::GetStatusResponse& status,
                               absl::Time now);

// Of the node, as the daemon's worker sees it now.
std::vector<Check> CheckNode(const v1::DiagnoseNodeResponse& diagnosis,
                             absl::Time now);

// Of a profile with its curves: its age, whether every collective was measured
// for every group size that a plan may use (powers of two up to the node), the
// tables that a step's time is made of, cliffs.
std::vector<Check> CheckProfile(const v1::NodeProfile& profile, absl::Time now);

std::string RenderChecks(const Style& style, const std::vector<Check>& checks);

}  // namespace fabricwise
