// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/request_metrics.h"

#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(RequestMetrics, CountsByMethodAndCode) {
  RequestMetrics metrics({"A", "B"});
  metrics.Record("B", absl::StatusCode::kOk, absl::Microseconds(120), true);
  metrics.Record("B", absl::StatusCode::kOk, absl::Microseconds(80), false);
  metrics.Record("B", absl::StatusCode::kUnauthenticated, absl::Seconds(2),
                 false);
  metrics.Record("C", static_cast<absl::StatusCode>(99), absl::ZeroDuration(),
                 false);
  const std::vector<MethodCounts> counts = metrics.Counts();
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_EQ(counts[0].method, "A");
  EXPECT_EQ(counts[0].by_code[0], 0);
  EXPECT_EQ(counts[1].method, "B");
  EXPECT_EQ(counts[1].by_code[0], 2);
  EXPECT_EQ(counts[1].by_code[16], 1);
  EXPECT_EQ(counts[1].cached, 1);
  EXPECT_EQ(counts[1].total_duration, absl::Microseconds(2'000'200));
  EXPECT_EQ(counts[2].method, "other");
  EXPECT_EQ(counts[2].by_code[static_cast<int>(absl::StatusCode::kUnknown)], 1);
}

TEST(RequestMetrics, PutsADurationUnderTheFirstBoundThatHoldsIt) {
  RequestMetrics metrics({"A"});
  metrics.Record("A", absl::StatusCode::kOk, absl::Microseconds(100), false);
  metrics.Record("A", absl::StatusCode::kOk, absl::Nanoseconds(100'001), false);
  metrics.Record("A", absl::StatusCode::kOk, absl::Seconds(5), false);
  const MethodCounts counts = metrics.Counts()[0];
  EXPECT_EQ(counts.by_duration[1], 1);  // up to 100 us
  EXPECT_EQ(counts.by_duration[2], 1);  // up to 150 us
  EXPECT_EQ(counts.by_duration.back(), 1);
}

TEST(RequestMetrics, BoundsResolveATenthToTenMilliseconds) {
  int between = 0;
  for (size_t i = 1; i < kDurationBoundsSeconds.size(); ++i) {
    EXPECT_GT(kDurationBoundsSeconds[i], kDurationBoundsSeconds[i - 1]);
    if (kDurationBoundsSeconds[i - 1] >= 1e-4 &&
        kDurationBoundsSeconds[i] <= 1e-2) {
      ++between;
      EXPECT_LE(kDurationBoundsSeconds[i] / kDurationBoundsSeconds[i - 1], 1.7);
    }
  }
  EXPECT_GE(between, 10);
}

TEST(RequestMetrics, LosesNothingWhenManyThreadsCount) {
  RequestMetrics metrics({"A", "B"});
  constexpr int kThreads = 4, kEach = 5000;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kEach; ++i) {
          metrics.Record("A", absl::StatusCode::kOk, absl::Microseconds(i),
                         i % 2 == 0);
        }
      });
    }
  }
  const MethodCounts counts = metrics.Counts()[0];
  EXPECT_EQ(counts.by_code[0], kThreads * kEach);
  EXPECT_EQ(counts.cached, kThreads * kEach / 2);
  EXPECT_EQ(std::accumulate(counts.by_duration.begin(),
                            counts.by_duration.end(), int64_t{0}),
            kThreads * kEach);
}

}  // namespace
}  // namespace fabricwise
