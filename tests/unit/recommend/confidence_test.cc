// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/confidence.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(ProbabilityFirstIsBest, IsCertainWithoutOthers) {
  EXPECT_EQ(ProbabilityFirstIsBest({}), 1);
  const std::vector<Uncertain> one = {{1, 0.5}};
  EXPECT_EQ(ProbabilityFirstIsBest(one), 1);
}

TEST(ProbabilityFirstIsBest, OfTwoIsTheNormalProbability) {
  for (double gap : {-2.0, -0.5, 0.0, 0.3, 1.0, 3.0}) {
    const std::vector<Uncertain> two = {{10, 0.6}, {10 + gap, 0.8}};
    EXPECT_NEAR(ProbabilityFirstIsBest(two), std::erfc(-gap / std::sqrt(2)) / 2,
                2e-3)
        << gap;
  }
}

TEST(ProbabilityFirstIsBest, IsSharedOutAmongEquals) {
  for (size_t count : {2u, 3u, 5u, 9u}) {
    const std::vector<Uncertain> equals(count, {1, 0.1});
    EXPECT_NEAR(ProbabilityFirstIsBest(equals), 1 / static_cast<double>(count),
                2e-3);
  }
}

TEST(ProbabilityFirstIsBest, WithoutSpreadIsDecidedByTheMeans) {
  EXPECT_NEAR(ProbabilityFirstIsBest(std::vector<Uncertain>{{1, 0}, {2, 0}}), 1,
              1e-12);
  EXPECT_NEAR(ProbabilityFirstIsBest(std::vector<Uncertain>{{2, 0}, {1, 0}}), 0,
              1e-12);
  EXPECT_NEAR(ProbabilityFirstIsBest(std::vector<Uncertain>{{1, 0}, {1, 0}}),
              0.5, 1e-12);
  EXPECT_NEAR(ProbabilityFirstIsBest(std::vector<Uncertain>{{0, 0}, {0, 0}}),
              0.5, 1e-12);
  EXPECT_NEAR(
      ProbabilityFirstIsBest(std::vector<Uncertain>{{0, 0}, {1e-3, 1e-4}}), 1,
      1e-6);
}

TEST(ProbabilityFirstIsBest, CountsTheChanceThatTheFirstMissesItsLimit) {
  // The other is far behind and within its limit: it wins where the first
  // misses.
  for (const double sigmas : {-1.0, 0.0, 0.4, 2.0}) {
    const std::vector<Uncertain> two = {{10, 1, 10 + sigmas}, {30, 1}};
    EXPECT_NEAR(ProbabilityFirstIsBest(two),
                std::erfc(-sigmas / std::sqrt(2)) / 2, 2e-3)
        << sigmas;
  }
  // One that misses by far as well does not.
  EXPECT_NEAR(
      ProbabilityFirstIsBest(std::vector<Uncertain>{{10, 1, 10}, {30, 1, 15}}),
      1, 2e-3);
}

TEST(ProbabilityFirstIsBest, CountsTheChanceThatACheaperOneMeetsItsLimit) {
  // Cheaper by far, and over its limit by as many of its sigmas.
  for (const double sigmas : {0.0, 0.5, 1.0, 3.0}) {
    const std::vector<Uncertain> two = {{20, 1}, {10, 1, 10 - sigmas}};
    EXPECT_NEAR(ProbabilityFirstIsBest(two),
                1 - std::erfc(sigmas / std::sqrt(2)) / 2, 2e-3)
        << sigmas;
  }
}

TEST(ProbabilityFirstIsBest, OfPlansThatAllMissIsTheLeasts) {
  EXPECT_NEAR(ProbabilityFirstIsBest(
                  std::vector<Uncertain>{{10, 1, 1}, {10, 1, 1}, {30, 1, 1}}),
              0.5, 2e-3);
  EXPECT_NEAR(
      ProbabilityFirstIsBest(std::vector<Uncertain>{{10, 0, 1}, {20, 0, 1}}), 1,
      1e-12);
  EXPECT_NEAR(
      ProbabilityFirstIsBest(std::vector<Uncertain>{{10, 0, 1}, {20, 0, 20}}),
      0.5, 1e-12);
  EXPECT_NEAR(
      ProbabilityFirstIsBest(std::vector<Uncertain>{{10, 0, 1}, {20, 0, 21}}),
      0, 1e-12);
}

}  // namespace
}  // namespace fabricwise
