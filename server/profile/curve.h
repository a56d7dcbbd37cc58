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
#include "absl/types/span.h"
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
constexpr Standing Worse(Standing a, Standing b) { return a < b ? b : a; }

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
  double p99_seconds = -1;  // negative: not recorded
};

// Two sizes between which each doubling costs clearly more than twice.
struct Cliff {
  double from_size = 0;
  double to_size = 0;
  double from_seconds = 0;
  double to_seconds = 0;
  // Factor in time for each doubling of size between the two.
  double factor_per_doubling = 0;
};

// Immutable after construction; safe to read from any thread.
//
// Between two measured sizes the time is read off a line over size (a latency
// plus bytes over a rate, which is what every protocol of a collective costs),
// corrected by its neighbours: where the lines of the segments on both sides,
// prolonged, pass on one and the same side of the chord, the true curve lies
// between the chord and the nearer of them, and the middle is taken. It never
// leaves the range of the two measured times, whatever their noise. No rise is
// assumed: NCCL's times fall where it changes protocol.
class Curve {
 public:
  // `points` in any order; of equal sizes the last wins. INVALID_ARGUMENT for
  // no point, a size or time that is not positive and finite, a spread that is
  // negative or not finite.
  static absl::StatusOr<Curve> Create(std::vector<CurvePoint> points,
                                      Origin origin);

  // The geometric mean of `curves` with `weights`, which add up to 1, times
  // `scale`; each point's spread is the widest of theirs. nullopt: they are
  // not over the same sizes.
  static std::optional<Curve> Blend(absl::Span<const Curve* const> curves,
                                    absl::Span<const double> weights,
                                    double scale);

  // The time at `size`. nullopt where that is not positive or beyond the reach
  // of the curve: more than kReachBelow times under the smallest or kReachAbove
  // times over the largest size. Below the smallest size the time stays (a
  // latency); above the largest the last line goes on. A single point says
  // nothing of a rate: above it stands the geometric middle between no rise and
  // a rise in proportion. What the bracket leaves open is in relative_sigma.
  // Neither allocates nor locks.
  std::optional<Estimate> At(double size) const;

  // All cliffs, in order of size: neighbouring sizes between which time grows
  // by kCliffFactor or more for each doubling, by more than the spread of the
  // two explains, and above all times of smaller sizes (so that the way out of
  // a dip is none); adjoining ones are one cliff.
  std::vector<Cliff> Cliffs() const;

  const std::vector<CurvePoint>& points() const { return points_; }
  Origin origin() const { return origin_; }

  // A latency lasts over six doublings in every public NCCL curve.
  static constexpr double kReachBelow = 64;
  // Above, protocols and algorithms still change: two doublings.
  static constexpr double kReachAbove = 4;
  // "Clearly more than twice".
  static constexpr double kCliffFactor = 2.2;
  // One sigma of an interpolated time at the middle of its segment: a part
  // that stands for ripples, and one in proportion to the logarithm of the rise
  // over the segment. From the held-out test over the 128 public NCCL curves:
  // two thirds or more of the misses are within one sigma of these.
  static constexpr double kRippleSigma = 0.02;
  static constexpr double kRiseSigma = 0.15;

 private:
  // From one measured size to the next.
  struct Segment {
    double slope = 0;                          // seconds per unit of size
    double slope_before = 0, slope_after = 0;  // of the neighbours, or its own
    double shortest = 0, longest = 0;          // of its two times
    double inverse_width = 0;                  // per unit of size
    double sigma = 0;                          // added in its middle
  };

  Curve() = default;
  // Fills sizes_ and segments_ from points_. `log_seconds`: of points_.
  void Join(absl::Span<const double> log_seconds);
  Estimate Below(double size) const;
  Estimate Above(double size) const;
  Standing StandingOf(Standing standing) const {
    return origin_ == Origin::kReference ? Standing::kReference : standing;
  }

  std::vector<CurvePoint> points_;  // ascending
  std::vector<double> sizes_;       // of points_, close together for the search
  std::vector<Segment> segments_;   // one fewer than points_
  Origin origin_ = Origin::kMeasured;
};

}  // namespace fabricwise
