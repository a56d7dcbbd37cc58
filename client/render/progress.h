// SPDX-License-Identifier: Apache-2.0
//
// How far a run of measurements is.
#pragma once

#include <string>

#include "client/render/style.h"
#include "fabricwise/v1/profiler.pb.h"

namespace fabricwise {

// "[######------]  50 %  61 of 122  all_reduce/n2/nccl/graph/4096B": at most as
// wide as the terminal less one column, so that it can be written over itself;
// no line end.
std::string RenderProgress(const Style& style,
                           const v1::RunMeasurementResponse& progress);

// Takes a line of RenderProgress away again, the cursor back at its start.
std::string ClearProgress(const Style& style);

}  // namespace fabricwise
