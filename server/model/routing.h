// SPDX-License-Identifier: Apache-2.0
//
// What routing puts on the ranks of an expert-parallel group: the step waits
// for the fullest, so the expected maximum counts, not the mean.
#pragma once

#include <cstdint>

namespace fabricwise {

// Expectations for one MoE layer and `tokens` tokens, each of which visits
// `experts_per_token` distinct experts, spread over `ranks` ranks that hold
// equally many.
struct RoutingLoad {
  double mean_rows = 0;  // token copies on a rank
  double mean_hit = 0;   // distinct experts among them
  double max_rows = 0;   // on the fullest rank
  double max_hit = 0;
  // Largest relative error of max_rows and max_hit against simulation.
  double relative_error = 0;
};

// Closed form. Uniform routing (`skew` 0): rows and hits of a rank as binomial
// variables matched in mean and variance, their maximum over exchangeable
// ranks with the correlation that drawing without replacement gives. Skewed
// routing (expert popularity proportional to rank^-skew): normal variables of
// unequal means, their maximum by Clark's moments (C. E. Clark, "The greatest
// of a finite set of random variables", Operations Research 9(2), 1961),
// averaged over fixed placements of the experts.
//
// All arguments positive, experts_per_token <= num_experts, ranks <=
// num_experts; skew >= 0.
RoutingLoad ExpectedRouting(int64_t num_experts, int64_t experts_per_token,
                            int ranks, int64_t tokens, double skew);

}  // namespace fabricwise
