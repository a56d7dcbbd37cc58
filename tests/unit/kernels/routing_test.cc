// SPDX-License-Identifier: Apache-2.0
#include "kernels/load/routing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

int64_t Sum(const std::vector<int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

TEST(DrawFullestRankTest, OneRankGetsEveryCopy) {
  const RoutingDraw draw{
      .num_experts = 128, .experts_per_token = 8, .tokens = 100};
  EXPECT_EQ(Sum(DrawFullestRank(draw, 1)), 800);
}

TEST(DrawFullestRankTest, ATokenVisitsDistinctExperts) {
  const RoutingDraw draw{.num_experts = 8, .experts_per_token = 8, .tokens = 5};
  EXPECT_EQ(DrawFullestRank(draw, 1), std::vector<int64_t>(8, 5));
  RoutingDraw skewed = draw;
  skewed.skew = 100;  // weights that no double tells from nothing
  EXPECT_EQ(DrawFullestRank(skewed, 1), std::vector<int64_t>(8, 5));
}

TEST(DrawFullestRankTest, TheFullestRankHasAtLeastTheMean) {
  RoutingDraw draw{
      .num_experts = 128, .experts_per_token = 8, .ranks = 8, .tokens = 1};
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    for (draw.tokens = 1; draw.tokens <= 64; draw.tokens *= 4) {
      const std::vector<int64_t> rows = DrawFullestRank(draw, seed);
      EXPECT_GE(Sum(rows), draw.tokens);
      EXPECT_LE(rows.size(), 16u);
      EXPECT_GT(*std::min_element(rows.begin(), rows.end()), 0);
    }
  }
}

TEST(DrawFullestRankTest, UniformRoutingLoadsAllExpertsAlike) {
  const RoutingDraw draw{
      .num_experts = 64, .experts_per_token = 4, .tokens = 16384};
  const std::vector<int64_t> rows = DrawFullestRank(draw, 7);
  ASSERT_EQ(rows.size(), 64u);
  // Mean 1024, standard deviation 31: six of them.
  for (const int64_t of_one : rows) {
    EXPECT_GE(of_one, 1024 - 186);
    EXPECT_LE(of_one, 1024 + 186);
  }
}

TEST(DrawFullestRankTest, SkewedRoutingFollowsItsPowerLaw) {
  const RoutingDraw draw{
      .num_experts = 64, .experts_per_token = 1, .tokens = 65536, .skew = 1};
  std::vector<int64_t> rows = DrawFullestRank(draw, 7);
  std::sort(rows.rbegin(), rows.rend());
  double total = 0;
  for (int rank = 1; rank <= 64; ++rank) total += 1.0 / rank;
  EXPECT_NEAR(static_cast<double>(rows[0]), 65536 / total, 650);
  EXPECT_NEAR(static_cast<double>(rows[3]), 65536 / total / 4, 350);
}

TEST(DrawFullestRankTest, TheSameSeedDrawsTheSameAndAnotherDoesNot) {
  const RoutingDraw draw{
      .num_experts = 128, .experts_per_token = 8, .ranks = 2, .tokens = 64};
  EXPECT_EQ(DrawFullestRank(draw, 3), DrawFullestRank(draw, 3));
  EXPECT_NE(DrawFullestRank(draw, 3), DrawFullestRank(draw, 4));
}

TEST(CutIntoTilesTest, EveryElementIsInOneTile) {
  const std::vector<int64_t> rows = {1, 40, 16, 17};
  constexpr int64_t kColumns = 100;
  std::set<std::pair<int64_t, int64_t>> covered;
  for (const ExpertTile& tile : CutIntoTiles(rows, kColumns, 16, 32)) {
    EXPECT_GE(tile.rows, 1);
    EXPECT_LE(tile.rows, 16);
    const int64_t first = Sum({rows.begin(), rows.begin() + tile.expert});
    const auto of_expert = rows[static_cast<size_t>(tile.expert)];
    EXPECT_GE(tile.first_row, first);
    EXPECT_LE(tile.first_row + tile.rows, first + of_expert);
    for (int64_t row = 0; row < tile.rows; ++row) {
      const int64_t end = std::min<int64_t>(tile.first_column + 32, kColumns);
      for (int64_t column = tile.first_column; column < end; ++column) {
        EXPECT_TRUE(covered.emplace(tile.first_row + row, column).second);
      }
    }
  }
  EXPECT_EQ(covered.size(), static_cast<size_t>(Sum(rows) * kColumns));
}

TEST(CutIntoTilesTest, TilesOfTheSameWeightsStandSideBySide) {
  const std::vector<ExpertTile> tiles = CutIntoTiles({20}, 64, 16, 32);
  ASSERT_EQ(tiles.size(), 4u);
  EXPECT_EQ(tiles[0].first_column, tiles[1].first_column);
  EXPECT_EQ(tiles[1].first_row, 16);
  EXPECT_EQ(tiles[1].rows, 4);
  EXPECT_EQ(tiles[2].first_column, 32);
}

}  // namespace
}  // namespace fabricwise
