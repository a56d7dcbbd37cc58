// SPDX-License-Identifier: Apache-2.0
//
// A measured curve: time over one size, with the standing of every answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/domain/measurement.h"

namespace fabricwise {

// What a value rests on, best first.
enum class Standing {
  kMeasured,      // at this very size, on this node
  kInterpolated,  // between two measured sizes
  kExtrapolated,  // beyond the measured sizes, within the stated reach
  kReference,     // any of the above, but on another node of this kind
};

absl::string_view ToString(Standing standing);

// The worse of two: what a value that rests on both has.
Standing Worse(Standing a, Standing b);

// One answer of a curve or table.
struct Estimate {
  double seconds = 0;
  // Standard deviation over value: the measured spread, widened by what
  // interpolation or extrapolation adds.
  double relative_sigma = 0;
  Standing standing = Standing::kMeasured;
};

struct CurvePoint {
  double size = 0;  // bytes or tokens, > 0
  double seconds = 0;
  double relative_sigma = 0;
};

// A size at which a doubling costs clearly more than twice.
struct Cliff {
  double from_size = 0;
  double to_size = 0;
  double from_seconds = 0;
  double to_seconds = 0;
  // Factor in time for each doubling of size between the two.
  double factor_per_doubling = 0;
};

// Immutable after construction; safe to read from any thread.
class Curve {
 public:
  // `points` in any order; of equal sizes the last wins. INVALID_ARGUMENT for
  // no point, a size or time that is not positive and finite.
  static absl::StatusOr<Curve> Create(std::vector<CurvePoint> points,
                                      Origin origin);

  // The time at `size` > 0. nullopt beyond the reach of the curve: more than
  // kReachBelow times under the smallest or kReachAbove over the largest size.
  std::optional<Estimate> At(double size) const;

  // All cliffs, in order of size.
  std::vector<Cliff> Cliffs() const;

  const std::vector<CurvePoint>& points() const { return points_; }
  Origin origin() const { return origin_; }

  static constexpr double kReachBelow = 64;
  static constexpr double kReachAbove = 4;

 private:
  Curve() = default;
  std::vector<CurvePoint> points_;  // ascending
  // Per point: ln(size), ln(seconds), and the slope d ln(t) / d ln(s) there.
  std::vector<double> log_size_, log_seconds_, slope_;
  Origin origin_ = Origin::kMeasured;
};

}  // namespace fabricwise
