// SPDX-License-Identifier: Apache-2.0
//
// Profiles, their differences, and a daemon's state as text for people.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/profile_diff.h"
#include "client/render/style.h"
#include "fabricwise/v1/profiler.pb.h"

namespace fabricwise {

// Node, grounds, tables and number of curves.
std::string RenderProfile(const Style& style, const v1::NodeProfile& profile,
                          absl::Time now);

// Curve by curve: typical and worst change from the first to the second.
std::string RenderDiff(const Style& style, const ProfileDiff& diff,
                       absl::Time now);

std::string RenderStatus(const Style& style, const std::string& target,
                         const v1::GetStatusResponse& status, absl::Time now);

}  // namespace fabricwise
