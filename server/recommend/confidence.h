// SPDX-License-Identifier: Apache-2.0
//
// How far a predicted time can be trusted.
#pragma once

#include <limits>

#include "absl/types/span.h"

namespace fabricwise {

// Model error assumed while none has been found on the node, one sigma over
// the step time: the bound that predictions of a node's own layers are held to
// (10 %).
inline constexpr double kAssumedResidual = 0.10;

// Normal deviate of a two-sided 90 % interval.
inline constexpr double kDeviate90 = 1.645;

// A plan's cost, and the most that it may be within the asker's limits. They
// are met or missed with the cost: its times are all off by the same ratio.
struct Uncertain {
  double mean = 0, sigma = 0;
  double limit = std::numeric_limits<double>::infinity();
};

// Probability that the first of independent normal variables really comes
// first: is the least of those within their limits or, where none is within
// its own, of all. With the first's density f and limit l, and each other's c_j
// and l_j, it is
//   integral over x <= l of f(x) prod_j P(c_j > min(x, l_j)) dx
//   + integral over x > l of f(x) prod_j P(c_j > max(x, l_j)) dx.
// 1 for a single one.
double ProbabilityFirstIsBest(absl::Span<const Uncertain> values);

}  // namespace fabricwise
