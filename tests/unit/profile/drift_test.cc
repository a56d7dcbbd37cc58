// SPDX-License-Identifier: Apache-2.0
#include "server/profile/drift.h"

#include <cmath>
#include <map>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/profile_file.h"
#include "tests/support/history.h"
#include "tests/support/read_file.h"

namespace fabricwise {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kInterval = absl::Hours(4);

Measurement AllReduce(int64_t size_bytes, double seconds, int run,
                      double relative_iqr = 0.01) {
  Measurement m;
  m.key = CollectiveKey{.group = {.size = 2}, .size_bytes = size_bytes};
  m.statistics.median_seconds = seconds;
  m.statistics.iqr_seconds = seconds * relative_iqr;
  m.start_time = absl::FromUnixSeconds(1'800'000'000) + run * kInterval;
  return m;
}

std::vector<Drift> DriftOf(absl::Span<const Measurement> history) {
  return FindDrift(HistoryOf(history));
}

// `count` runs of a curve of three small and three large sizes.
std::vector<Measurement> Runs(int count, double last_small = 1,
                              double last_large = 1) {
  std::vector<Measurement> history;
  for (int run = 0; run < count; ++run) {
    for (const int64_t size :
         {1 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20, 16 << 20}) {
      const double slow = size <= kMostSmallBytes ? last_small : last_large;
      history.push_back(AllReduce(size,
                                  1e-5 * std::sqrt(static_cast<double>(size)) *
                                      (run == count - 1 ? slow : 1),
                                  run));
    }
  }
  return history;
}

TEST(Drift, ASteadyNodeHasARatioOfOne) {
  const std::vector<Drift> drifts = DriftOf(Runs(6));
  ASSERT_THAT(drifts, SizeIs(2));
  EXPECT_EQ(drifts[0].subject, "all_reduce/n2/nccl/graph");
  EXPECT_EQ(drifts[0].band, SizeBand::kSmall);
  EXPECT_EQ(drifts[1].band, SizeBand::kLarge);
  for (const Drift& drift : drifts) {
    EXPECT_DOUBLE_EQ(drift.ratio, 1);
    EXPECT_EQ(drift.point_count, 3);
    EXPECT_FALSE(drift.drifted);
    EXPECT_GT(drift.relative_sigma, 0.01);
  }
}

TEST(Drift, TenPercentIsSeenInTheFirstRunAndInItsBandAlone) {
  const std::vector<Drift> drifts = DriftOf(Runs(6, 1, 1.1));
  EXPECT_FALSE(drifts[0].drifted);
  EXPECT_TRUE(drifts[1].drifted);
  EXPECT_NEAR(drifts[1].ratio, 1.1, 1e-9);
}

TEST(Drift, FasterThanBeforeIsADriftAsWell) {
  const std::vector<Drift> drifts = DriftOf(Runs(6, 0.9, 1));
  EXPECT_TRUE(drifts[0].drifted);
  EXPECT_NEAR(drifts[0].ratio, 0.9, 1e-9);
}

TEST(Drift, NeedsThreeRunsForABaseline) {
  EXPECT_THAT(FindDrift({}), IsEmpty());
  EXPECT_THAT(DriftOf(Runs(kLeastBaselineRuns)), IsEmpty());
  EXPECT_TRUE(DriftOf(Runs(kLeastBaselineRuns + 1, 1.1, 1))[0].drifted);
}

TEST(Drift, OneRunThatIsThereTwiceIsOneRun) {
  std::vector<Measurement> history = Runs(kLeastBaselineRuns);
  const std::vector<Measurement> again = history;
  history.insert(history.end(), again.begin(), again.end());
  EXPECT_THAT(DriftOf(history), IsEmpty());
}

TEST(Drift, LastsUntilHalfOfTheBaselineIsAsSlow) {
  std::vector<Measurement> history;
  int slow_runs = 0;
  for (int run = 0; run < 2 * kMostBaselineRuns; ++run) {
    const bool slow = run >= kMostBaselineRuns;
    history.push_back(AllReduce(1024, slow ? 1.2e-5 : 1e-5, run));
    if (slow && DriftOf(history)[0].drifted) ++slow_runs;
  }
  EXPECT_GE(slow_runs, kMostBaselineRuns / 2);
  EXPECT_FALSE(DriftOf(history)[0].drifted);
}

TEST(Drift, OneOddPointAndOneOddRunMoveNothing) {
  std::vector<Measurement> history = Runs(6);
  history.back().statistics.median_seconds *= 3;  // of the last run
  for (size_t i = 0; i < 6; ++i) {
    history[i].statistics.median_seconds *= 5;  // the first run
  }
  for (const Drift& drift : DriftOf(history)) {
    EXPECT_NEAR(drift.ratio, 1, 1e-9);
    EXPECT_FALSE(drift.drifted);
  }
}

TEST(Drift, RunsThatLieFarApartHideWhatLiesWithin) {
  std::vector<Measurement> history;
  const double times[] = {1.0, 1.12, 0.9, 1.07, 0.93, 1.1};
  for (int run = 0; run < 6; ++run) {
    history.push_back(AllReduce(1024, times[run] * 1e-5, run));
  }
  EXPECT_FALSE(DriftOf(history)[0].drifted);
  history.push_back(AllReduce(1024, 2e-5, 6));
  EXPECT_TRUE(DriftOf(history)[0].drifted);
}

TEST(Drift, ComparesOnlyWhatTheLastRunMeasured) {
  // Five sizes are left from a full run; the quick one after it measures one.
  std::vector<Measurement> history = Runs(6);
  history.push_back(AllReduce(16 << 10, 2e-5 * 128, 7));
  const std::vector<Drift> drifts = DriftOf(history);
  EXPECT_EQ(drifts[0].point_count, 1);
  EXPECT_TRUE(drifts[0].drifted);
  EXPECT_EQ(drifts[1].point_count, 3);
}

TEST(Drift, OtherFamiliesAreJudgedAsAWhole) {
  std::vector<Measurement> history;
  for (int run = 0; run < 5; ++run) {
    const double slow = run == 4 ? 1.1 : 1;
    for (const int64_t n : {1024, 2048, 4096}) {
      Measurement m = AllReduce(1, 2e-5 * slow, run);
      m.key = GemmKey{.m = 16, .n = n, .k = 4096};
      history.push_back(m);
    }
    Measurement m = AllReduce(1, 1e-6, run);
    m.key = LaunchKey{};
    history.push_back(m);
  }
  const std::vector<Drift> drifts = DriftOf(history);
  ASSERT_THAT(drifts, SizeIs(2));
  EXPECT_EQ(drifts[0].subject, "gemm/bf16");
  EXPECT_EQ(drifts[0].band, SizeBand::kAll);
  EXPECT_EQ(drifts[0].point_count, 3);
  EXPECT_TRUE(drifts[0].drifted);
  EXPECT_EQ(drifts[1].subject, "launch/graph_node");
  EXPECT_FALSE(drifts[1].drifted);
}

// What the worker recorded of a node, again and again with the spread that it
// recorded.
class Replay {
 public:
  Replay(const std::string& name, unsigned seed)
      : random_(seed),
        recorded_(ReadProfile(
                      name, ReadWholeFile("deploy/profiles/" + name + ".json"))
                      .value()
                      .measurements) {}

  // Times of keys that begin with `prefix` are `factor` as long.
  void AddRun(double factor = 1, const std::string& prefix = "") {
    ++run_;
    for (const Measurement& m : recorded_) {
      Measurement& again = history_.emplace_back(m);
      const double sigma = RelativeSigma(m.statistics);
      // A time is never below some part of what it is at best.
      const double noise =
          std::max(0.2, 1 + sigma * std::normal_distribution<>()(random_));
      again.statistics.median_seconds *= noise;
      if (absl::StartsWith(ToString(m.key), prefix)) {
        again.statistics.median_seconds *= factor;
      }
      again.start_time =
          absl::FromUnixSeconds(1'800'000'000) + run_ * kInterval;
    }
  }
  void DropLastRun() {
    history_.resize(history_.size() - recorded_.size());
    --run_;
  }
  std::vector<Drift> Drifts() const { return DriftOf(history_); }

 private:
  std::mt19937 random_;
  const std::vector<Measurement> recorded_;
  std::vector<Measurement> history_;
  int run_ = 0;
};

constexpr const char* kNodes[] = {"h200x2-p2p-worker", "h200x2-shm-worker",
                                  "h200x2-net-worker"};

TEST(DriftReplay, AtMostOneRunInAHundredAlarmsForNothing) {
  constexpr int kBaselines = 10, kRunsEach = 10;
  int alarms = 0;
  for (const char* node : kNodes) {
    for (int i = 0; i < kBaselines; ++i) {
      Replay replay(node, static_cast<unsigned>(i));
      for (int run = 0; run < 3 + i % 4; ++run) replay.AddRun();
      for (int run = 0; run < kRunsEach; ++run) {
        replay.AddRun();
        int drifted = 0;
        for (const Drift& drift : replay.Drifts()) drifted += drift.drifted;
        alarms += drifted > 0;
        replay.DropLastRun();
      }
    }
  }
  EXPECT_LE(alarms, std::size(kNodes) * kBaselines * kRunsEach / 100);
}

TEST(DriftReplay, TenPercentIsSeenAtOnceInGraphsOverNvlinkAndSharedMemory) {
  for (const char* node : {"h200x2-p2p-worker", "h200x2-shm-worker"}) {
    for (const char* curve :
         {"all_reduce/n2/nccl/graph", "all_to_all/n2/nccl/graph",
          "all_gather/n2/nccl/graph", "reduce_scatter/n2/nccl/graph"}) {
      Replay replay(node, 1);
      for (int run = 0; run < 6; ++run) replay.AddRun();
      replay.AddRun(1.1, std::string(curve) + "/");
      int seen = 0;
      for (const Drift& drift : replay.Drifts()) {
        // With its skewed kin, not those in turn with products.
        EXPECT_EQ(drift.drifted, absl::StartsWith(drift.subject + "/",
                                                  absl::StrCat(curve, "/")))
            << node << " " << curve << ": " << drift.subject << " "
            << ToString(drift.band) << " " << drift.ratio << " +- "
            << drift.relative_sigma;
        seen += drift.drifted;
      }
      EXPECT_GE(seen, 2) << node << " " << curve;
    }
  }
}

TEST(DriftReplay, OverSocketsMessagesScatterAndNeedTwentyAndSixtyPercent) {
  for (const auto& [factor, least_band] :
       {std::pair(1.2, SizeBand::kLarge), std::pair(1.6, SizeBand::kSmall)}) {
    for (const char* curve :
         {"all_reduce/n2/nccl/graph", "all_to_all/n2/nccl/graph"}) {
      Replay replay("h200x2-net-worker", 1);
      for (int run = 0; run < 6; ++run) replay.AddRun();
      replay.AddRun(factor, std::string(curve) + "/");
      for (const Drift& drift : replay.Drifts()) {
        if (drift.subject != curve || drift.band < least_band) continue;
        EXPECT_TRUE(drift.drifted)
            << curve << " " << ToString(drift.band) << " " << drift.ratio;
      }
    }
  }
}

}  // namespace
}  // namespace fabricwise
