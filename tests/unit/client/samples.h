// SPDX-License-Identifier: Apache-2.0
//
// Hand-made messages with something of everything that is rendered.
#pragma once

#include "absl/time/time.h"
#include "client/render/recommend.h"
#include "fabricwise/v1/advisor.pb.h"
#include "fabricwise/v1/profiler.pb.h"

namespace fabricwise {

// 2026-11-29 12:00 UTC, three hours after the samples' measurements.
absl::Time SampleNow();

v1::RecommendParallelismRequest SampleQuestion();

// Five plans of two engines; one misses a limit, one does not fit.
v1::RecommendParallelismResponse SampleAnswer();

// 1 to 64 sequences, two flips, one point unanswered.
v1::SweepConcurrencyResponse SampleSweep();

// The cliff of an all-to-all over eight PCIe GPUs.
v1::Curve SampleCliff();

// A curve over many sizes without a cliff.
v1::Curve SampleSmoothCurve();

v1::NodeProfile SampleProfile();

// Styles of the cases: a pipe, a terminal of `width` columns.
Style PipeStyle();
Style TerminalStyle(int width);
Style UncolouredStyle(int width);

RenderOptions Options(Style style, bool explain = false);

}  // namespace fabricwise
