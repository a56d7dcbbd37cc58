// SPDX-License-Identifier: Apache-2.0
#include "kernels/timing/refine.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fabricwise {
namespace {

// A slope that differs from a neighbour's by more than this many powers bends
// the curve enough to look at its middle.
constexpr double kSlopeJump = 0.35;

}  // namespace

void CurveRefiner::Add(int64_t size, double seconds) {
  Point point{.seconds = seconds};
  const auto above = points_.upper_bound(size);
  if (above != points_.begin() && above != points_.end()) {
    const auto below = std::prev(above);
    if (below->first != size) {
      // A latency plus bytes over a rate: a line over size.
      const double weight = static_cast<double>(size - below->first) /
                            static_cast<double>(above->first - below->first);
      const double predicted =
          below->second.seconds * (1 - weight) + above->second.seconds * weight;
      point.miss = std::abs(predicted / seconds - 1);
    }
  }
  points_[size] = point;
}

std::optional<int64_t> CurveRefiner::Next() const {
  if (points_.size() < 2) return std::nullopt;
  struct Segment {
    int64_t low, high;
    double slope;  // d ln(seconds) / d ln(size)
    bool told;     // an end was predicted well
  };
  std::vector<Segment> segments;
  for (auto low = points_.begin(); std::next(low) != points_.end(); ++low) {
    const auto high = std::next(low);
    segments.push_back({low->first, high->first,
                        std::log(high->second.seconds / low->second.seconds) /
                            std::log(static_cast<double>(high->first) /
                                     static_cast<double>(low->first)),
                        std::min(low->second.miss, high->second.miss) <=
                            rule_.tolerated_miss});
  }
  std::optional<int64_t> next;
  double most = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const double factor =
        static_cast<double>(segment.high) / static_cast<double>(segment.low);
    if (factor <= rule_.cliff_factor) continue;
    const bool cliff = segment.slope > std::log2(rule_.cliff_per_doubling);
    double jump = 0;
    if (i > 0) jump = std::abs(segment.slope - segments[i - 1].slope);
    if (i + 1 < segments.size()) {
      jump = std::max(jump, std::abs(segment.slope - segments[i + 1].slope));
    }
    if (!cliff && (segment.told || jump <= kSlopeJump)) continue;
    // A cliff before all else; then the sharpest bend over the widest gap.
    const double worth =
        (cliff ? 1e6 * segment.slope : jump) * std::log(factor);
    if (worth <= most) continue;
    int64_t middle =
        static_cast<int64_t>(std::sqrt(static_cast<double>(segment.low)) *
                             std::sqrt(static_cast<double>(segment.high)));
    middle -= middle % rule_.grain_bytes;
    if (middle <= segment.low || middle >= segment.high) continue;
    most = worth;
    next = middle;
  }
  return next;
}

}  // namespace fabricwise
