// SPDX-License-Identifier: Apache-2.0
#include "server/profile/curve.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Curve Make(std::vector<CurvePoint> points, Origin origin = Origin::kMeasured) {
  absl::StatusOr<Curve> curve = Curve::Create(std::move(points), origin);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return *std::move(curve);
}

// 10 us and 1 ns a byte, at powers of two from 1 KiB.
std::vector<CurvePoint> LatencyAndRate(int count) {
  std::vector<CurvePoint> points;
  for (double size = 1024; count > 0; size *= 2, --count) {
    points.push_back({size, 10e-6 + size * 1e-9, 0.01});
  }
  return points;
}

TEST(Curve, GivesAMeasuredSizeBackUnchanged) {
  const Curve curve = Make(LatencyAndRate(10));
  for (const CurvePoint& point : LatencyAndRate(10)) {
    const std::optional<Estimate> estimate = curve.At(point.size);
    ASSERT_TRUE(estimate.has_value());
    EXPECT_EQ(estimate->seconds, point.seconds);
    EXPECT_EQ(estimate->relative_sigma, point.relative_sigma);
    EXPECT_EQ(estimate->standing, Standing::kMeasured);
  }
}

TEST(Curve, OfALatencyAndARateIsExactBetweenItsSizes) {
  const Curve curve = Make(LatencyAndRate(10));
  for (const double size : {1025.0, 3000.0, 100000.0, 300000.0}) {
    const std::optional<Estimate> estimate = curve.At(size);
    ASSERT_TRUE(estimate.has_value());
    EXPECT_NEAR(estimate->seconds, 10e-6 + size * 1e-9, 1e-12);
    EXPECT_EQ(estimate->standing, Standing::kInterpolated);
  }
}

TEST(Curve, BendsTowardsTheLinesOfItsNeighbours) {
  // Slopes 0, 1, 3: the lines on both sides pass below the chord, at 1.0 and
  // 0.5 where it is 1.5; the middle between chord and the nearer is 1.25.
  const Curve up = Make({{1, 1}, {2, 1}, {3, 2}, {4, 5}});
  EXPECT_DOUBLE_EQ(up.At(2.5)->seconds, 1.25);
  // Slopes 3, 1, 0: both above.
  const Curve flat = Make({{1, 1}, {2, 4}, {3, 5}, {4, 5}});
  EXPECT_DOUBLE_EQ(flat.At(2.5)->seconds, 4.75);
  // Slopes 0, 1, 0: one on each side says nothing.
  const Curve step = Make({{1, 1}, {2, 1}, {3, 2}, {4, 2}});
  EXPECT_DOUBLE_EQ(step.At(2.5)->seconds, 1.5);
}

TEST(Curve, StaysBetweenTheTimesOfItsSegmentUnderAnyNoise) {
  const Curve curve =
      Make({{1, 100}, {2, 1}, {4, 2}, {8, 300}, {16, 3}, {32, 3}});
  const std::vector<CurvePoint>& points = curve.points();
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    for (int step = 0; step <= 100; ++step) {
      const double size =
          points[i].size + (points[i + 1].size - points[i].size) * step / 100;
      const std::optional<Estimate> estimate = curve.At(size);
      ASSERT_TRUE(estimate.has_value());
      EXPECT_GE(estimate->seconds,
                std::min(points[i].seconds, points[i + 1].seconds));
      EXPECT_LE(estimate->seconds,
                std::max(points[i].seconds, points[i + 1].seconds));
    }
  }
}

TEST(Curve, IsContinuousAtItsPoints) {
  const Curve curve = Make({{1, 5}, {2, 4}, {4, 7}, {8, 30}, {16, 31}});
  for (const double size : {2.0, 4.0, 8.0}) {
    const double at = curve.At(size)->seconds;
    EXPECT_NEAR(curve.At(size * (1 - 1e-9))->seconds, at, 1e-6);
    EXPECT_NEAR(curve.At(size * (1 + 1e-9))->seconds, at, 1e-6);
  }
}

TEST(Curve, IsLessSureBetweenSizesAndWhereItRises) {
  const Curve curve = Make({{1, 1, 0.01}, {2, 1, 0.01}, {4, 8, 0.01}});
  EXPECT_GT(curve.At(1.5)->relative_sigma, 0.01);
  EXPECT_GT(curve.At(3)->relative_sigma, curve.At(1.5)->relative_sigma);
  EXPECT_NEAR(curve.At(3)->relative_sigma,
              std::hypot(0.01, 0.02, 0.15 * std::log(8.0)), 1e-12);
}

TEST(Curve, BelowItsSizesKeepsTheLatencyAndSaysHowSureItIs) {
  const Curve flat = Make({{1024, 10, 0}, {2048, 10, 0}});
  const std::optional<Estimate> low = flat.At(512);
  ASSERT_TRUE(low.has_value());
  EXPECT_EQ(low->seconds, 10);
  EXPECT_EQ(low->standing, Standing::kExtrapolated);
  EXPECT_DOUBLE_EQ(low->relative_sigma, Curve::kRippleSigma);
  // In proportion to size it would be 5: a quarter of the value is open.
  const Curve steep = Make({{1024, 10, 0}, {2048, 30, 0}});
  EXPECT_DOUBLE_EQ(steep.At(512)->relative_sigma, std::hypot(0.02, 0.25));
}

TEST(Curve, AboveItsSizesGoesOnWithItsLastLine) {
  const Curve curve = Make(LatencyAndRate(10));
  const std::optional<Estimate> high = curve.At(524288 * 2);
  ASSERT_TRUE(high.has_value());
  EXPECT_NEAR(high->seconds, 10e-6 + 524288 * 2 * 1e-9, 1e-12);
  EXPECT_EQ(high->standing, Standing::kExtrapolated);
  // A fall at the end is a change of protocol or noise, not a rate.
  const Curve falling = Make({{1, 2}, {2, 1}});
  EXPECT_EQ(falling.At(4)->seconds, 1);
}

TEST(Curve, OfOnePointAnswersAboveItWithAnOpenBracket) {
  const Curve curve = Make({{1024, 10, 0}});
  EXPECT_EQ(curve.At(1024)->standing, Standing::kMeasured);
  const std::optional<Estimate> high = curve.At(4096);
  ASSERT_TRUE(high.has_value());
  EXPECT_DOUBLE_EQ(high->seconds, 20);
  EXPECT_NEAR(high->relative_sigma, std::hypot(0.02, std::log(2.0)), 1e-12);
  EXPECT_EQ(curve.At(512)->seconds, 10);
}

TEST(Curve, AnswersNothingBeyondItsReach) {
  const Curve curve = Make({{1024, 1}, {4096, 2}});
  EXPECT_TRUE(curve.At(1024 / Curve::kReachBelow).has_value());
  EXPECT_FALSE(curve.At(1024 / Curve::kReachBelow * 0.999).has_value());
  EXPECT_TRUE(curve.At(4096 * Curve::kReachAbove).has_value());
  EXPECT_FALSE(curve.At(4096 * Curve::kReachAbove * 1.001).has_value());
  for (const double size : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(curve.At(size).has_value()) << size;
  }
}

TEST(Curve, OfAnotherNodeIsAReferenceEverywhere) {
  const Curve curve = Make({{1024, 1}, {4096, 2}}, Origin::kReference);
  for (const double size : {512.0, 1024.0, 2048.0, 8192.0}) {
    EXPECT_EQ(curve.At(size)->standing, Standing::kReference) << size;
  }
}

TEST(Curve, SortsItsPointsAndTakesTheLastOfEqualSizes) {
  const Curve curve = Make({{4, 9}, {1, 1}, {4, 5}, {2, 2}});
  ASSERT_THAT(curve.points(), SizeIs(3));
  EXPECT_EQ(curve.At(4)->seconds, 5);
  EXPECT_EQ(curve.At(1)->seconds, 1);
}

TEST(Curve, RefusesPointsThatCannotBe) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::vector<CurvePoint>, std::string>> cases = {
      {{}, "at least one point"},
      {{{0, 1}}, "size is 0; allowed: positive and finite"},
      {{{inf, 1}}, "size is inf"},
      {{{8, 0}}, "seconds is 0 at size 8"},
      {{{8, std::nan("")}}, "seconds is nan at size 8"},
      {{{8, 1, -1}}, "relative_sigma is -1 at size 8"},
      {{{8, 1, inf}}, "relative_sigma is inf at size 8"},
  };
  for (const auto& [points, part] : cases) {
    const absl::Status status =
        Curve::Create(points, Origin::kMeasured).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(Cliffs, AreFoundWhereADoublingCostsClearlyMoreThanTwice) {
  // The published all-to-all of eight PCIe GPUs: 14 KiB and 224 KiB to each.
  const Curve curve =
      Make({{8 * 14336, 22e-6, 0.2}, {8 * 229376, 1007e-6, 0.03}});
  const std::vector<Cliff> cliffs = curve.Cliffs();
  ASSERT_THAT(cliffs, SizeIs(1));
  EXPECT_EQ(cliffs[0].from_size, 8 * 14336);
  EXPECT_EQ(cliffs[0].to_size, 8 * 229376);
  EXPECT_EQ(cliffs[0].from_seconds, 22e-6);
  EXPECT_EQ(cliffs[0].to_seconds, 1007e-6);
  EXPECT_NEAR(cliffs[0].factor_per_doubling, 2.601, 0.001);
}

TEST(Cliffs, AreNotSeenInARateNorInALatency) {
  EXPECT_THAT(Make(LatencyAndRate(20)).Cliffs(), IsEmpty());
  EXPECT_THAT(Make({{1, 1}, {2, 2}, {4, 4}}).Cliffs(), IsEmpty());
  EXPECT_THAT(Make({{1, 1}}).Cliffs(), IsEmpty());
}

TEST(Cliffs, ThatAdjoinAreOne) {
  const std::vector<Cliff> cliffs =
      Make({{1, 1}, {2, 3}, {4, 9}, {8, 10}, {16, 11}, {32, 40}}).Cliffs();
  ASSERT_THAT(cliffs, SizeIs(2));
  EXPECT_EQ(cliffs[0].from_size, 1);
  EXPECT_EQ(cliffs[0].to_size, 4);
  EXPECT_NEAR(cliffs[0].factor_per_doubling, 3, 1e-12);
  EXPECT_EQ(cliffs[1].from_size, 16);
  EXPECT_EQ(cliffs[1].to_size, 32);
}

TEST(Cliffs, AreNotSeenOnTheWayOutOfADipNorWithinTheSpread) {
  EXPECT_THAT(Make({{1, 8}, {2, 3}, {4, 9}}).Cliffs(), IsEmpty());
  EXPECT_THAT(Make({{1, 1, 0.2}, {2, 2.5, 0.2}}).Cliffs(), IsEmpty());
  EXPECT_THAT(Make({{1, 1, 0.02}, {2, 2.5, 0.02}}).Cliffs(), SizeIs(1));
}

TEST(Standing, HasANameAndAnOrder) {
  EXPECT_EQ(ToString(Standing::kMeasured), "measured");
  EXPECT_EQ(ToString(Standing::kInterpolated), "interpolated");
  EXPECT_EQ(ToString(Standing::kExtrapolated), "extrapolated");
  EXPECT_EQ(ToString(Standing::kReference), "reference");
  EXPECT_EQ(Worse(Standing::kMeasured, Standing::kReference),
            Standing::kReference);
  EXPECT_EQ(Worse(Standing::kExtrapolated, Standing::kInterpolated),
            Standing::kExtrapolated);
}

TEST(CurveBlend, IsTheGeometricMeanOfCurvesOverTheSameSizes) {
  const auto a = Curve::Create({{1, 1, 0.01}, {4, 2, 0.01}, {16, 4, 0.03}},
                               Origin::kMeasured);
  const auto b = Curve::Create({{1, 4, 0.02}, {4, 4, 0.02}, {16, 16, 0.02}},
                               Origin::kReference);
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<const Curve*> curves = {&*a, &*b};
  const std::vector<double> weights = {0.5, 0.5};
  const auto blend = Curve::Blend(curves, weights, 3);
  ASSERT_TRUE(blend.has_value());
  EXPECT_EQ(blend->origin(), Origin::kReference);
  EXPECT_NEAR(blend->At(1)->seconds, 3 * 2, 1e-12);
  EXPECT_NEAR(blend->At(16)->seconds, 3 * 8, 1e-12);
  EXPECT_EQ(blend->At(1)->relative_sigma, 0.02);
  EXPECT_EQ(blend->At(16)->relative_sigma, 0.03);
  EXPECT_EQ(blend->At(16)->standing, Standing::kReference);
  EXPECT_GT(blend->At(8)->seconds, blend->At(4)->seconds);
  EXPECT_LT(blend->At(8)->seconds, blend->At(16)->seconds);
  EXPECT_FALSE(blend->At(100).has_value());
}

TEST(CurveBlend, OfOneCurveAloneIsThatCurve) {
  const auto curve = Curve::Create({{1, 1, 0}, {2, 3, 0}, {8, 5, 0}, {9, 9, 0}},
                                   Origin::kMeasured);
  ASSERT_TRUE(curve.ok());
  const std::vector<const Curve*> curves = {&*curve};
  const std::vector<double> weights = {1};
  const auto blend = Curve::Blend(curves, weights, 1);
  ASSERT_TRUE(blend.has_value());
  for (double size : {0.5, 1.0, 1.7, 5.0, 8.5, 9.0, 20.0}) {
    EXPECT_NEAR(blend->At(size)->seconds, curve->At(size)->seconds, 1e-12);
    EXPECT_NEAR(blend->At(size)->relative_sigma,
                curve->At(size)->relative_sigma, 1e-12);
  }
}

TEST(CurveBlend, NeedsTheSameSizes) {
  const auto a = Curve::Create({{1, 1, 0}, {4, 2, 0}}, Origin::kMeasured);
  const auto b = Curve::Create({{1, 1, 0}, {5, 2, 0}}, Origin::kMeasured);
  ASSERT_TRUE(a.ok() && b.ok());
  const std::vector<const Curve*> curves = {&*a, &*b};
  const std::vector<double> weights = {0.5, 0.5};
  EXPECT_FALSE(Curve::Blend(curves, weights, 1).has_value());
}

}  // namespace
}  // namespace fabricwise
