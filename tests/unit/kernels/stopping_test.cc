// SPDX-License-Identifier: Apache-2.0
#include "kernels/timing/stopping.h"

#include <random>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

constexpr double kMicro = 1e-6;

// Adds samples of `mean` +- a uniform `half_width` until the series is done;
// how many it took.
int Fill(SampleSeries& series, double mean, double half_width,
         double seconds_each) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> around(mean - half_width,
                                                mean + half_width);
  int count = 0;
  while (!series.done()) {
    ++count;
    series.Add(around(random), seconds_each * count);
  }
  return count;
}

TEST(QuantileTest, InterpolatesBetweenOrderStatistics) {
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(Quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(Quantile({7}, 0.99), 7);
}

TEST(SampleSeriesTest, QuietSamplesEndAsGoodAfterTheLeastNumber) {
  const StoppingRule rule;
  SampleSeries series(rule);
  EXPECT_EQ(Fill(series, 10 * kMicro, 0.1 * kMicro, 1e-3), rule.min_samples);
  const Statistics statistics = series.Summary();
  EXPECT_EQ(statistics.stop_reason, StopReason::kGood);
  EXPECT_EQ(statistics.samples, rule.min_samples);
  EXPECT_NEAR(statistics.median_seconds, 10 * kMicro, 0.1 * kMicro);
  EXPECT_LE(statistics.iqr_seconds, rule.target_relative_iqr * 10 * kMicro);
}

TEST(SampleSeriesTest, NoiseThatDoesNotFallEndsAsSettled) {
  SampleSeries series({.max_samples = 1000, .budget_seconds = 100});
  Fill(series, 10 * kMicro, 5 * kMicro, 1e-3);
  EXPECT_EQ(series.Summary().stop_reason, StopReason::kSettledNoisy);
  EXPECT_GT(series.Summary().iqr_seconds, 3 * kMicro);
}

TEST(SampleSeriesTest, SlowSamplesEndWithTheBudget) {
  SampleSeries series({.budget_seconds = 1});
  const int count = Fill(series, 0.5, 0.3, 0.5);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(series.Summary().stop_reason, StopReason::kOutOfBudget);
}

TEST(SampleSeriesTest, DiscardedSamplesAreCountedAndSpendTheBudget) {
  SampleSeries series({.budget_seconds = 1});
  series.Add(10 * kMicro, 0.1);
  series.Discard("throttled by heat", 0.5);
  EXPECT_FALSE(series.done());
  series.Discard("throttled by heat", 1.0);
  EXPECT_TRUE(series.done());
  const Statistics statistics = series.Summary();
  EXPECT_EQ(statistics.samples, 1);
  EXPECT_EQ(statistics.discarded, 2);
  EXPECT_EQ(statistics.discard_reason, "throttled by heat");
  EXPECT_EQ(statistics.stop_reason, StopReason::kOutOfBudget);
}

TEST(SampleSeriesTest, ASeriesWithoutSamplesSaysSo) {
  SampleSeries series({.budget_seconds = 1});
  series.Discard("throttled by heat", 2);
  EXPECT_EQ(series.Summary().samples, 0);
}

TEST(DifferenceTest, TakesOffWhatTheCompanyTakesAlone) {
  const Statistics both{.median_seconds = 20 * kMicro,
                        .iqr_seconds = 0.4 * kMicro,
                        .p99_seconds = 24 * kMicro,
                        .samples = 12,
                        .stop_reason = StopReason::kGood,
                        .verified = true,
                        .sm_clock_hertz = 1.9e9};
  Statistics alone = both;
  alone.median_seconds = 8 * kMicro;
  alone.iqr_seconds = 0.3 * kMicro;
  alone.stop_reason = StopReason::kSettledNoisy;
  const auto left = Difference(both, alone);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_DOUBLE_EQ(left->median_seconds, 12 * kMicro);
  EXPECT_DOUBLE_EQ(left->iqr_seconds, 0.5 * kMicro);
  EXPECT_DOUBLE_EQ(left->p99_seconds, 16 * kMicro);
  EXPECT_EQ(left->samples, 12);
  EXPECT_EQ(left->stop_reason, StopReason::kSettledNoisy);
  EXPECT_TRUE(left->verified);
  alone.verified = false;
  EXPECT_FALSE(Difference(both, alone)->verified);
}

TEST(DifferenceTest, NothingLeftIsNoFigure) {
  const Statistics both{.median_seconds = 8 * kMicro};
  const Statistics alone{.median_seconds = 9 * kMicro};
  EXPECT_EQ(Difference(both, alone).status().code(),
            absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace fabricwise
