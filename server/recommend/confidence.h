// SPDX-License-Identifier: Apache-2.0
//
// How far a predicted time can be trusted.
#pragma once

#include "absl/types/span.h"

namespace fabricwise {

// Model error assumed while none has been found on the node, one sigma over
// the step time: the bound that predictions of a node's own layers are held to
// (10 %).
inline constexpr double kAssumedResidual = 0.10;

// Normal deviate of a two-sided 90 % interval.
inline constexpr double kDeviate90 = 1.645;

struct Uncertain {
  double mean = 0, sigma = 0;
};

// Probability that the first of independent normal variables is the least.
// 1 for a single one.
double ProbabilityFirstIsLeast(absl::Span<const Uncertain> values);

}  // namespace fabricwise
