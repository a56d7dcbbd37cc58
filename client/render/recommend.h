// SPDX-License-Identifier: Apache-2.0
//
// Recommendations and sweeps as text for people. Pure: the same message gives
// the same text.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "client/render/style.h"
#include "fabricwise/v1/advisor.pb.h"

namespace fabricwise {

struct RenderOptions {
  Style style;
  absl::Time now;        // ages count from here
  bool explain = false;  // terms of the first plans, and every list whole
};

// One answer: plans as a table, flip points, what is ruled out or not
// answerable, confidence and grounds.
std::string RenderRecommendation(
    const v1::RecommendParallelismRequest& question,
    const v1::RecommendParallelismResponse& answer,
    const RenderOptions& options);

// Answers over concurrency: best mode as lanes, a table, flip points, grounds.
// `question`'s own concurrency is not looked at.
std::string RenderSweep(const v1::RecommendParallelismRequest& question,
                        const v1::SweepConcurrencyResponse& answer,
                        const RenderOptions& options);

// What to paste to start the first of `plans` that has a server to start: a
// comment that says what for, then one command per replica. Where none has, the
// comment says so.
std::string RenderLaunches(
    const google::protobuf::RepeatedPtrField<v1::PlanAdvice>& plans,
    const std::string& load);

}  // namespace fabricwise
