// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/confidence.h"

#include <algorithm>
#include <cmath>

namespace fabricwise {
namespace {

// The first's density is followed over as many sigmas either way, by the
// midpoint rule in steps of about a sixth.
constexpr double kReach = 4;
constexpr double kStepsPerSigma = 6;

// P(c > x).
double Exceeds(const Uncertain& c, double x) {
  // Never 0, so that equal values without spread give a half.
  const double sigma =
      std::max({c.sigma, 1e-12 * c.mean, std::numeric_limits<double>::min()});
  return std::erfc((x - c.mean) / (sigma * std::sqrt(2.0))) / 2;
}

}  // namespace

double ProbabilityFirstIsBest(absl::Span<const Uncertain> values) {
  if (values.size() < 2) return 1;
  const Uncertain& first = values.front();
  // Where the first reaches its limit, in its sigmas; the rule takes no step
  // across.
  double split = first.mean <= first.limit ? kReach : -kReach;
  if (first.sigma > 0) {
    split =
        std::clamp((first.limit - first.mean) / first.sigma, -kReach, kReach);
  }
  double probability = 0, mass = 0;
  const auto integrate = [&](double from, double to, bool within) {
    const auto steps =
        static_cast<int>(std::ceil(kStepsPerSigma * (to - from)));
    const double step = (to - from) / steps;
    for (int i = 0; i < steps; ++i) {
      const double z = from + (i + 0.5) * step;
      const double density = std::exp(-z * z / 2) * step;
      const double x = first.mean + z * first.sigma;
      double all = 1;
      for (const Uncertain& other : values.subspan(1)) {
        all *= Exceeds(other, within ? std::min(x, other.limit)
                                     : std::max(x, other.limit));
      }
      probability += density * all;
      mass += density;
    }
  };
  integrate(-kReach, split, /*within=*/true);
  integrate(split, kReach, /*within=*/false);
  return probability / mass;
}

}  // namespace fabricwise
