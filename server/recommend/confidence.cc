// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/confidence.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fabricwise {

double ProbabilityFirstIsLeast(absl::Span<const Uncertain> values) {
  if (values.size() < 2) return 1;
  const Uncertain& first = values.front();
  // The integral of the first's density times the chance that each other
  // exceeds it, by the midpoint rule over four sigmas either way.
  constexpr int kSteps = 48;
  constexpr double kReach = 4;
  double probability = 0, mass = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double z = kReach * (2 * (i + 0.5) / kSteps - 1);
    const double density = std::exp(-z * z / 2);
    const double x = first.mean + z * first.sigma;
    double all = 1;
    for (const Uncertain& other : values.subspan(1)) {
      // Never 0, so that equal values without spread give a half.
      const double sigma = std::max({other.sigma, 1e-12 * other.mean,
                                     std::numeric_limits<double>::min()});
      all *= std::erfc((x - other.mean) / (sigma * std::sqrt(2.0))) / 2;
    }
    probability += density * all;
    mass += density;
  }
  return probability / mass;
}

}  // namespace fabricwise
