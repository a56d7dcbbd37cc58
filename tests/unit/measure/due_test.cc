// SPDX-License-Identifier: Apache-2.0
#include "server/measure/due.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

constexpr absl::Duration kStart = absl::Seconds(1000);

class DueTest : public testing::Test {
 protected:
  // An idle node of two GPUs, its measurements this old.
  void Look(std::optional<absl::Duration> quick_age,
            std::optional<absl::Duration> full_age, bool busy = false,
            const std::string& fingerprint_id = "a") {
    due_.OnProbe(now_, fingerprint_id, 2, busy, quick_age, full_age);
  }
  DueClock::Decision Decide() const { return due_.Decide(now_); }
  void Kept(RunKind kind, absl::Duration gpu_time = absl::ZeroDuration()) {
    due_.OnRun(now_, kind, RunVerdict::kKept, gpu_time);
  }

  DuePolicy policy_;
  absl::Duration now_ = kStart;
  DueClock due_{policy_, 1, kStart};
};

TEST_F(DueTest, FirstLooksAtTheNode) {
  EXPECT_EQ(Decide().run, RunKind::kProbe);
  EXPECT_EQ(Decide().due, DueReason::kNewNode);
}

TEST_F(DueTest, ANodeNeverMeasuredGetsAQuickRunAndThenAFullOne) {
  Look(std::nullopt, std::nullopt);
  EXPECT_EQ(Decide().run, RunKind::kQuick);
  EXPECT_EQ(Decide().due, DueReason::kNewNode);
  Kept(RunKind::kQuick, absl::Seconds(90));
  EXPECT_EQ(Decide().run, RunKind::kFull) << "whatever the first one cost";
  EXPECT_EQ(Decide().due, DueReason::kNewNode);
  Kept(RunKind::kFull, absl::Seconds(500));
  EXPECT_EQ(Decide().run, std::nullopt);
  EXPECT_EQ(Decide().skip, SkipReason::kNotDue);
}

TEST_F(DueTest, AgesFromTheStoreCountAfterARestart) {
  Look(absl::Hours(1), absl::Hours(20));
  const DueClock::Decision decision = Decide();
  EXPECT_EQ(decision.run, std::nullopt);
  // Between the interval and the longest that jitter makes of it.
  EXPECT_GE(decision.look_again, now_ + absl::Hours(3));
  EXPECT_LE(decision.look_again, now_ + absl::Hours(3) + absl::Minutes(24));
  now_ = decision.look_again;
  EXPECT_EQ(Decide().run, RunKind::kQuick);
  EXPECT_EQ(Decide().due, DueReason::kInterval);
}

TEST_F(DueTest, AWallClockThatWasSetBackNeitherHurriesNorDelays) {
  Look(-absl::Hours(1000), -absl::Hours(1000));
  EXPECT_EQ(Decide().run, std::nullopt);
  EXPECT_LE(Decide().look_again, now_ + policy_.quick_interval * 1.1);
}

TEST_F(DueTest, OneFullRunDoesForAQuickOneToo) {
  Look(absl::Hours(100), absl::Hours(100));
  EXPECT_EQ(Decide().run, RunKind::kFull);
  Kept(RunKind::kFull);
  EXPECT_EQ(Decide().run, std::nullopt);
  EXPECT_GE(Decide().look_again, now_ + policy_.quick_interval);
}

TEST_F(DueTest, BusyGpusAreLookedAtAgainLater) {
  Look(std::nullopt, std::nullopt, /*busy=*/true);
  EXPECT_EQ(Decide().run, std::nullopt);
  EXPECT_EQ(Decide().skip, SkipReason::kBusy);
  EXPECT_EQ(Decide().look_again, now_ + policy_.busy_retry);
  now_ += policy_.busy_retry;
  EXPECT_EQ(Decide().run, RunKind::kQuick);
}

TEST_F(DueTest, ARunThatYieldedIsTriedAgainOnceTheJobMayBeGone) {
  Look(std::nullopt, std::nullopt);
  due_.OnRun(now_, RunKind::kQuick, RunVerdict::kYielded, absl::Seconds(1));
  EXPECT_EQ(Decide().skip, SkipReason::kBusy);
  now_ += policy_.busy_retry;
  EXPECT_EQ(Decide().run, RunKind::kQuick);
}

TEST_F(DueTest, FailuresBackOffTwiceAsLongEachUpToTheMost) {
  Look(std::nullopt, std::nullopt);
  absl::Duration expected = policy_.first_backoff;
  for (int i = 0; i < 20; ++i) {
    due_.OnRun(now_, RunKind::kQuick, RunVerdict::kFailed, absl::Seconds(1));
    EXPECT_EQ(Decide().run, std::nullopt);
    EXPECT_EQ(Decide().skip, SkipReason::kBackOff);
    EXPECT_EQ(Decide().look_again, now_ + expected);
    now_ = Decide().look_again;
    // That the node could be looked at says nothing of the runs.
    Look(std::nullopt, std::nullopt);
    Kept(RunKind::kProbe);
    EXPECT_EQ(Decide().run, RunKind::kQuick);
    expected = std::min(expected * 2, policy_.most_backoff);
  }
  EXPECT_EQ(expected, policy_.most_backoff);
  Kept(RunKind::kQuick);
  due_.OnRun(now_, RunKind::kFull, RunVerdict::kFailed, absl::Seconds(1));
  EXPECT_EQ(Decide().look_again, now_ + policy_.first_backoff);
}

TEST_F(DueTest, AFailedLookBacksOffToo) {
  due_.OnProbeFailed(now_);
  EXPECT_EQ(Decide().skip, SkipReason::kBackOff);
  now_ = Decide().look_again;
  EXPECT_EQ(Decide().run, RunKind::kProbe);
}

TEST_F(DueTest, IdleTimePaysForScheduledRuns) {
  Look(absl::Hours(100), absl::Hours(1));
  ASSERT_EQ(Decide().run, RunKind::kQuick);
  // More than 4 hours of two idle GPUs are worth at 0.3 %, 86.4 s.
  Kept(RunKind::kQuick, absl::Seconds(172.8));
  now_ = Decide().look_again;
  Look(absl::Hours(4), absl::Hours(5));
  const DueClock::Decision decision = Decide();
  EXPECT_EQ(decision.run, std::nullopt);
  EXPECT_EQ(decision.skip, SkipReason::kOverBudget);
  EXPECT_GT(decision.look_again, now_ + absl::Hours(3));
  now_ = decision.look_again + absl::Seconds(1);
  EXPECT_EQ(Decide().run, RunKind::kQuick);
}

TEST_F(DueTest, BusyTimePaysForNothing) {
  Look(absl::Hours(100), absl::Hours(1));
  Kept(RunKind::kQuick, absl::Seconds(10));
  Look(absl::ZeroDuration(), absl::Hours(1), /*busy=*/true);
  now_ += absl::Hours(100);
  Look(absl::ZeroDuration(), absl::Hours(1), /*busy=*/false);
  EXPECT_EQ(Decide().skip, SkipReason::kOverBudget);
}

TEST_F(DueTest, OverManyDaysTheBudgetIsKept) {
  absl::Duration spent;
  const absl::Duration end = now_ + absl::Hours(24) * 30;
  Look(std::nullopt, std::nullopt);
  while (now_ < end) {
    const DueClock::Decision decision = Decide();
    if (!decision.run) {
      ASSERT_GT(decision.look_again, now_);
      now_ = decision.look_again;
      Look(absl::Hours(1), absl::Hours(1));
      continue;
    }
    const absl::Duration cost =
        absl::Seconds(*decision.run == RunKind::kFull ? 600 : 120);
    now_ += cost / 2;
    Kept(*decision.run, cost);
    spent += cost;
  }
  const double ratio = absl::FDivDuration(spent, (end - kStart) * 2);
  EXPECT_LE(ratio, 0.0034);  // with the first runs, which are on the house
  EXPECT_GE(ratio, 0.0025);
}

TEST_F(DueTest, AChangedNodeIsMeasuredAtOnce) {
  Look(std::nullopt, std::nullopt);
  Kept(RunKind::kQuick, absl::Seconds(100));
  Kept(RunKind::kFull, absl::Seconds(600));
  now_ += policy_.quick_interval;
  Look(std::nullopt, std::nullopt, false, "b");
  EXPECT_EQ(Decide().run, RunKind::kQuick);
  EXPECT_EQ(Decide().due, DueReason::kNewNode);
}

TEST_F(DueTest, ANodeThatFlapsIsHeldToTheBudget) {
  Look(std::nullopt, std::nullopt);
  Kept(RunKind::kQuick, absl::Seconds(100));
  now_ += absl::Minutes(1);
  Look(std::nullopt, std::nullopt, false, "b");
  EXPECT_EQ(Decide().skip, SkipReason::kOverBudget);
}

TEST_F(DueTest, ANewPolicyMovesWhatIsSetAlready) {
  Look(absl::Hours(1), absl::Hours(1));
  const absl::Duration before = Decide().look_again;
  DuePolicy policy = policy_;
  policy.quick_interval -= absl::Hours(2);
  due_.SetPolicy(policy);
  EXPECT_EQ(Decide().look_again, before - absl::Hours(2));
  policy.quick_interval = absl::Hours(1) - absl::Hours(1) * 0.5;
  due_.SetPolicy(policy);
  EXPECT_EQ(Decide().run, RunKind::kQuick);
}

TEST_F(DueTest, AChoiceOfKeysLeavesTheRestAsOldAsItIs) {
  Look(absl::Hours(100), absl::Hours(1));
  Kept(RunKind::kProbe, absl::ZeroDuration());
  EXPECT_EQ(Decide().run, RunKind::kQuick);
}

TEST_F(DueTest, NodesOfOneClusterDoNotMeasureInStep) {
  std::set<absl::Duration> times;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    DueClock due(policy_, seed, kStart);
    due.OnProbe(kStart, "a", 2, false, absl::ZeroDuration(),
                absl::ZeroDuration());
    const absl::Duration at = due.Decide(kStart).look_again;
    EXPECT_GE(at, kStart + absl::Hours(4));
    EXPECT_LE(at, kStart + absl::Hours(4.4));
    times.insert(absl::Floor(at, absl::Minutes(1)));
  }
  EXPECT_GT(times.size(), 20u);
}

TEST_F(DueTest, ADriftIsLookedAtAgainAtOnceWhateverTheBudgetSays) {
  for (const RunKind kind : {RunKind::kQuick, RunKind::kFull}) {
    Look(absl::Hours(1), absl::Hours(2), false,
         kind == RunKind::kFull ? "b" : "a");
    Kept(kind, absl::Hours(1));
    EXPECT_EQ(Decide().run, std::nullopt);
    due_.OnDrift(now_);
    EXPECT_EQ(Decide().run, RunKind::kFull) << "whatever found it";
    EXPECT_EQ(Decide().due, DueReason::kDrift);
    Kept(RunKind::kQuick);
    EXPECT_EQ(Decide().run, RunKind::kFull) << "a quick one leaves old points";
    Kept(RunKind::kFull, absl::Hours(1));
    EXPECT_EQ(Decide().run, std::nullopt);
    now_ += policy_.quick_interval;
  }
}

TEST_F(DueTest, ADriftThatComesAgainSoonDoesNotKeepTheGpusBusy) {
  Look(absl::Hours(1), absl::Hours(2));
  Kept(RunKind::kQuick);
  due_.OnDrift(now_);
  Kept(RunKind::kFull);
  now_ += policy_.quick_interval / 2;
  due_.OnDrift(now_);
  EXPECT_EQ(Decide().run, std::nullopt);
}

TEST_F(DueTest, ADriftOnBusyGpusWaitsAndOneOfAnotherNodeIsForgotten) {
  Look(absl::Hours(1), absl::Hours(2));
  Kept(RunKind::kQuick);
  Look(std::nullopt, std::nullopt, /*busy=*/true);
  due_.OnDrift(now_);
  EXPECT_EQ(Decide().skip, SkipReason::kBusy);
  now_ += policy_.busy_retry;
  EXPECT_EQ(Decide().due, DueReason::kDrift);
  Look(absl::Hours(1), absl::Hours(2), false, "b");
  EXPECT_EQ(Decide().run, std::nullopt);
}

}  // namespace
}  // namespace fabricwise
