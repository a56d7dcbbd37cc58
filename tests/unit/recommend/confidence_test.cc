// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/confidence.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(ProbabilityFirstIsLeast, IsCertainWithoutOthers) {
  EXPECT_EQ(ProbabilityFirstIsLeast({}), 1);
  const std::vector<Uncertain> one = {{1, 0.5}};
  EXPECT_EQ(ProbabilityFirstIsLeast(one), 1);
}

TEST(ProbabilityFirstIsLeast, OfTwoIsTheNormalProbability) {
  for (double gap : {-2.0, -0.5, 0.0, 0.3, 1.0, 3.0}) {
    const std::vector<Uncertain> two = {{10, 0.6}, {10 + gap, 0.8}};
    EXPECT_NEAR(ProbabilityFirstIsLeast(two),
                std::erfc(-gap / std::sqrt(2)) / 2, 2e-3)
        << gap;
  }
}

TEST(ProbabilityFirstIsLeast, IsSharedOutAmongEquals) {
  for (size_t count : {2u, 3u, 5u, 9u}) {
    const std::vector<Uncertain> equals(count, {1, 0.1});
    EXPECT_NEAR(ProbabilityFirstIsLeast(equals), 1 / static_cast<double>(count),
                2e-3);
  }
}

TEST(ProbabilityFirstIsLeast, WithoutSpreadIsDecidedByTheMeans) {
  EXPECT_NEAR(ProbabilityFirstIsLeast(std::vector<Uncertain>{{1, 0}, {2, 0}}),
              1, 1e-12);
  EXPECT_NEAR(ProbabilityFirstIsLeast(std::vector<Uncertain>{{2, 0}, {1, 0}}),
              0, 1e-12);
  EXPECT_NEAR(ProbabilityFirstIsLeast(std::vector<Uncertain>{{1, 0}, {1, 0}}),
              0.5, 1e-12);
  EXPECT_NEAR(ProbabilityFirstIsLeast(std::vector<Uncertain>{{0, 0}, {0, 0}}),
              0.5, 1e-12);
  EXPECT_NEAR(
      ProbabilityFirstIsLeast(std::vector<Uncertain>{{0, 0}, {1e-3, 1e-4}}), 1,
      1e-6);
}

}  // namespace
}  // namespace fabricwise
