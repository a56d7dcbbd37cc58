// SPDX-License-Identifier: Apache-2.0
#include "server/profile/curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

// Spread of two times together that a cliff must rise above: two sigma.
constexpr double kClearSigmas = 2;

bool PositiveAndFinite(double value) {
  return value > 0 && std::isfinite(value);
}

// Index of the last of `sizes` that is <= `size`, which is not below the first.
// Halving by arithmetic: no branch to mispredict on the hot path.
size_t LastNotAbove(const std::vector<double>& sizes, double size) {
  const double* base = sizes.data();
  for (size_t left = sizes.size(); left > 1;) {
    const size_t half = left / 2;
    base += half * static_cast<size_t>(base[half] <= size);
    left -= half;
  }
  return static_cast<size_t>(base - sizes.data());
}

}  // namespace

absl::string_view ToString(Standing standing) {
  switch (standing) {
    case Standing::kMeasured:
      return "measured";
    case Standing::kInterpolated:
      return "interpolated";
    case Standing::kExtrapolated:
      return "extrapolated";
    case Standing::kReference:
      return "reference";
  }
  return "?";  // not a value of the enum
}

absl::StatusOr<Curve> Curve::Create(std::vector<CurvePoint> points,
                                    Origin origin) {
  if (points.empty()) {
    return absl::InvalidArgumentError("a curve needs at least one point");
  }
  for (const CurvePoint& point : points) {
    if (!PositiveAndFinite(point.size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "size is ", point.size, "; allowed: positive and finite"));
    }
    if (!PositiveAndFinite(point.seconds)) {
      return absl::InvalidArgumentError(
          absl::StrCat("seconds is ", point.seconds, " at size ", point.size,
                       "; allowed: positive and finite"));
    }
    if (!(point.relative_sigma >= 0) || !std::isfinite(point.relative_sigma)) {
      return absl::InvalidArgumentError(
          absl::StrCat("relative_sigma is ", point.relative_sigma, " at size ",
                       point.size, "; allowed: finite and not negative"));
    }
  }
  std::stable_sort(
      points.begin(), points.end(),
      [](const CurvePoint& a, const CurvePoint& b) { return a.size < b.size; });
  Curve curve;
  curve.origin_ = origin;
  for (const CurvePoint& point : points) {
    if (!curve.points_.empty() && curve.points_.back().size == point.size) {
      curve.points_.back() = point;
    } else {
      curve.points_.push_back(point);
    }
  }

  std::vector<double> log_seconds;
  for (const CurvePoint& point : curve.points_) {
    log_seconds.push_back(std::log(point.seconds));
  }
  curve.Join(log_seconds);
  return curve;
}

void Curve::Join(absl::Span<const double> log_seconds) {
  const std::vector<CurvePoint>& p = points_;
  sizes_.reserve(p.size());
  segments_.reserve(p.size());
  for (const CurvePoint& point : p) sizes_.push_back(point.size);
  for (size_t i = 0; i + 1 < p.size(); ++i) {
    const double rise = kRiseSigma * (log_seconds[i + 1] - log_seconds[i]);
    segments_.push_back(
        {.slope =
             (p[i + 1].seconds - p[i].seconds) / (p[i + 1].size - p[i].size),
         .shortest = std::min(p[i].seconds, p[i + 1].seconds),
         .longest = std::max(p[i].seconds, p[i + 1].seconds),
         .inverse_width = 1 / (p[i + 1].size - p[i].size),
         .sigma = std::sqrt(kRippleSigma * kRippleSigma + rise * rise)});
  }
  for (size_t i = 0; i < segments_.size(); ++i) {
    Segment& segment = segments_[i];
    segment.slope_before = segments_[i == 0 ? 0 : i - 1].slope;
    segment.slope_after =
        segments_[std::min(i + 1, segments_.size() - 1)].slope;
  }
}

std::optional<Curve> Curve::Blend(absl::Span<const Curve* const> curves,
                                  absl::Span<const double> weights,
                                  double scale) {
  const Curve& first = *curves.front();
  Curve blend;
  for (const Curve* curve : curves) {
    if (curve->sizes_ != first.sizes_) return std::nullopt;
    if (curve->origin_ == Origin::kReference) blend.origin_ = curve->origin_;
  }
  const double log_scale = std::log(scale);
  std::vector<double> log_seconds(first.points_.size(), log_scale);
  blend.points_ = first.points_;
  for (size_t i = 0; i < log_seconds.size(); ++i) {
    CurvePoint& point = blend.points_[i];
    for (size_t c = 0; c < curves.size(); ++c) {
      const CurvePoint& of_curve = curves[c]->points_[i];
      log_seconds[i] += weights[c] * std::log(of_curve.seconds);
      point.relative_sigma =
          std::max(point.relative_sigma, of_curve.relative_sigma);
    }
    point.seconds = std::exp(log_seconds[i]);
  }
  blend.Join(log_seconds);
  return blend;
}

std::optional<Estimate> Curve::At(double size) const {
  if (!(size * kReachBelow >= sizes_.front()) ||
      !(size <= sizes_.back() * kReachAbove)) {
    return std::nullopt;
  }
  if (size < sizes_.front()) return Below(size);
  if (size > sizes_.back()) return Above(size);

  const size_t i = LastNotAbove(sizes_, size);
  const CurvePoint& left = points_[i];
  if (left.size == size) {
    return Estimate{left.seconds, left.relative_sigma,
                    StandingOf(Standing::kMeasured)};
  }
  const CurvePoint& right = points_[i + 1];
  const Segment& segment = segments_[i];
  const double from_left = size - left.size;
  const double from_right = right.size - size;
  const double chord = left.seconds + segment.slope * from_left;
  const double before = left.seconds + segment.slope_before * from_left;
  const double after = right.seconds - segment.slope_after * from_right;
  // The nearer of the two lines where both pass on one side, else the chord.
  const double over = std::clamp(std::max(chord, std::min(before, after)),
                                 segment.shortest, segment.longest);
  const double under = std::clamp(std::min(chord, std::max(before, after)),
                                  segment.shortest, segment.longest);
  const double seconds = (over + under) / 2;

  const double along = from_left * segment.inverse_width;
  const double measured = left.relative_sigma +
                          along * (right.relative_sigma - left.relative_sigma);
  const double added = 4 * along * (1 - along) * segment.sigma;
  return Estimate{seconds, std::sqrt(measured * measured + added * added),
                  StandingOf(Standing::kInterpolated)};
}

Estimate Curve::Below(double size) const {
  // Between a latency (no change) and the first line or a pure rate (in
  // proportion), whichever is higher.
  const CurvePoint& first = points_.front();
  const double share = size / first.size;
  double shortest = first.seconds * share;
  if (!segments_.empty()) {
    shortest = std::clamp(
        first.seconds - segments_.front().slope * (first.size - size), shortest,
        first.seconds);
  }
  const double open = (first.seconds - shortest) / 2 / first.seconds;
  return {first.seconds,
          std::hypot(std::hypot(first.relative_sigma, kRippleSigma), open),
          StandingOf(Standing::kExtrapolated)};
}

Estimate Curve::Above(double size) const {
  const CurvePoint& last = points_.back();
  const double proportional = last.seconds * size / last.size;
  const double spread = std::hypot(last.relative_sigma, kRippleSigma);
  if (segments_.empty()) {
    const double seconds = std::sqrt(last.seconds * proportional);
    return {seconds, std::hypot(spread, std::log(proportional / seconds)),
            StandingOf(Standing::kExtrapolated)};
  }
  const double seconds =
      last.seconds + std::max(segments_.back().slope, 0.0) * (size - last.size);
  return {seconds,
          std::hypot(spread, std::abs(proportional - seconds) / 2 / seconds),
          StandingOf(Standing::kExtrapolated)};
}

std::vector<Cliff> Curve::Cliffs() const {
  std::vector<Cliff> cliffs;
  double longest = 0;  // of all smaller sizes
  for (size_t i = 0; i + 1 < points_.size(); ++i) {
    longest = std::max(longest, points_[i].seconds);
    const CurvePoint& from = points_[i];
    const CurvePoint& to = points_[i + 1];
    const double doublings = std::log2(to.size / from.size);
    const double rise = std::log2(to.seconds / longest);
    const double spread = kClearSigmas *
                          std::hypot(from.relative_sigma, to.relative_sigma) /
                          std::log(2.0);
    if (rise < std::log2(kCliffFactor) * doublings ||
        rise < doublings + spread) {
      continue;
    }
    if (!cliffs.empty() && cliffs.back().to_size == from.size) {
      cliffs.back().to_size = to.size;
      cliffs.back().to_seconds = to.seconds;
    } else {
      cliffs.push_back({.from_size = from.size,
                        .to_size = to.size,
                        .from_seconds = from.seconds,
                        .to_seconds = to.seconds});
    }
  }
  for (Cliff& cliff : cliffs) {
    cliff.factor_per_doubling =
        std::pow(cliff.to_seconds / cliff.from_seconds,
                 1 / std::log2(cliff.to_size / cliff.from_size));
  }
  return cliffs;
}

}  // namespace fabricwise
