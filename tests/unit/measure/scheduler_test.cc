// SPDX-License-Identifier: Apache-2.0
#include "server/measure/scheduler.h"

#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/measure/fake_worker.h"

namespace fabricwise {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

// Keeps measurements by node, as a store does.
class FakeSink : public MeasurementSink {
 public:
  explicit FakeSink(const Clock* clock) : clock_(clock) {}

  absl::StatusOr<std::optional<Span>> OnProbe(const NodeProbe& probe) override {
    ++looks;
    if (!readable.ok()) return readable;
    const auto& kept = by_node[FingerprintId(probe.fingerprint)];
    if (kept.empty()) return std::nullopt;
    return Span{.newest = newest, .oldest = newest};
  }
  absl::Status Keep(const Fingerprint& node,
                    absl::Span<const Measurement> measurements) override {
    for (const Measurement& each : measurements) {
      by_node[FingerprintId(node)].push_back(ToString(each.key));
    }
    newest = clock_->Now();
    return absl::OkStatus();
  }
  absl::Status Publish(const Fingerprint& node) override {
    published.push_back(FingerprintId(node));
    return publishable;
  }
  std::vector<MeasurementKey> Wanted() override { return wanted; }
  void Log(
      Level, absl::string_view event,
      const std::vector<std::pair<absl::string_view, std::string>>&) override {
    events.emplace_back(event);
  }

  std::map<std::string, std::vector<std::string>> by_node;
  std::vector<std::string> published, events;
  std::vector<MeasurementKey> wanted;
  absl::Status readable, publishable;
  absl::Time newest;
  int looks = 0;

 private:
  const Clock* const clock_;
};

class SchedulerTest : public testing::Test {
 protected:
  // Both clocks, as a rule; a wall clock may also jump alone.
  void Pass(absl::Duration time) {
    clock_.Advance(time);
    steady_ += time;
  }

  RunResult Submitted(const RunOrder& order, std::stop_token stop = {}) {
    std::optional<RunResult> result;
    EXPECT_TRUE(
        scheduler_
            .Submit(order, stop,
                    {.on_progress =
                         [this](const RunProgress& progress) {
                           progress_.push_back(progress);
                         },
                     .on_end = [&](const RunResult& end) { result = end; }})
            .ok());
    scheduler_.Step();
    return result.value_or(
        RunResult{.status = absl::UnknownError("it has not ended")});
  }

  int64_t Runs(RunKind kind, RunVerdict verdict) {
    return scheduler_.Counts().runs[{kind, verdict}];
  }

  FakeClock clock_;
  absl::Duration steady_ = absl::Seconds(5);
  FakeSink sink_{&clock_};
  FakeWorker worker_;
  Runner runner_{worker_.AsFunction(), RunnerOptions(), &clock_,
                 [](absl::string_view) {}};
  Scheduler scheduler_{
      {}, &runner_, &sink_, &clock_, [this] { return steady_; }};
  std::vector<RunProgress> progress_;
};

TEST_F(SchedulerTest, MeasuresANewNodeQuicklyThenFullyThenRests) {
  EXPECT_EQ(scheduler_.Step(), absl::ZeroDuration());
  EXPECT_EQ(Runs(RunKind::kQuick, RunVerdict::kKept), 1);
  EXPECT_EQ(sink_.published.size(), 1u);
  EXPECT_EQ(scheduler_.Step(), absl::ZeroDuration());
  EXPECT_EQ(Runs(RunKind::kFull, RunVerdict::kKept), 1);
  EXPECT_EQ(sink_.published.size(), 2u);
  EXPECT_GE(scheduler_.Step(), absl::Hours(4));
  const SchedulerCounts counts = scheduler_.Counts();
  EXPECT_EQ(counts.state, "idle");
  EXPECT_THAT(counts.detail, HasSubstr("next run in 4h"));
  EXPECT_GT(counts.gpu_time, absl::ZeroDuration());
  EXPECT_GT(counts.kept_count, 500);
  EXPECT_THAT(counts.skips, IsEmpty());
}

TEST_F(SchedulerTest, GoesOnWithWhatTheStoreHolds) {
  scheduler_.Step();
  Scheduler restarted({}, &runner_, &sink_, &clock_,
                      [this] { return steady_; });
  const size_t before = worker_.plans.size();
  EXPECT_GT(restarted.Step(), absl::Hours(3));
  EXPECT_EQ(worker_.plans.size(), before + 1) << "it only looked at the node";
}

TEST_F(SchedulerTest, MeasuresOnlyIdleGpus) {
  worker_.Then(FakeWorker::Good(18, /*foreign=*/1));
  EXPECT_EQ(scheduler_.Step(), absl::Minutes(5));
  EXPECT_EQ(worker_.plans.size(), 1u);
  EXPECT_THAT(scheduler_.Counts().skips,
              ElementsAre(Pair(SkipReason::kBusy, 1)));
  EXPECT_EQ(scheduler_.Counts().state, "busy");
  // Woken early it neither looks nor counts again.
  EXPECT_EQ(scheduler_.Step(), absl::Minutes(5));
  EXPECT_EQ(worker_.plans.size(), 1u);
  EXPECT_THAT(scheduler_.Counts().skips,
              ElementsAre(Pair(SkipReason::kBusy, 1)));

  Pass(absl::Minutes(5));
  worker_.Then(FakeWorker::Good(18, /*foreign=*/1));
  scheduler_.Step();
  EXPECT_THAT(scheduler_.Counts().skips,
              ElementsAre(Pair(SkipReason::kBusy, 2)));
}

TEST_F(SchedulerTest, BacksOffWhileTheWorkerFails) {
  worker_.Then(FakeWorker::Dies());
  EXPECT_EQ(scheduler_.Step(), absl::ZeroDuration());
  EXPECT_EQ(scheduler_.Step(), absl::Minutes(1));
  EXPECT_EQ(scheduler_.Counts().state, "backing off");
  EXPECT_THAT(scheduler_.Counts().faults,
              ElementsAre(Pair(WorkerEnd::kDied, 1)));
  EXPECT_THAT(scheduler_.Counts().skips,
              ElementsAre(Pair(SkipReason::kBackOff, 1)));
  EXPECT_EQ(Runs(RunKind::kProbe, RunVerdict::kFailed), 1);
  Pass(absl::Minutes(1));
  scheduler_.Step();
  EXPECT_EQ(Runs(RunKind::kQuick, RunVerdict::kKept), 1);
}

TEST_F(SchedulerTest, ANewPolicyHoldsFromTheNextStepOn) {
  scheduler_.Step();
  scheduler_.Step();
  const absl::Duration before = scheduler_.Step();
  DuePolicy policy;
  policy.quick_interval -= absl::Hours(1);
  policy.full_interval -= absl::Hours(1);
  scheduler_.SetPolicy(policy);
  EXPECT_EQ(scheduler_.Step(), before - absl::Hours(1));
}

TEST_F(SchedulerTest, TellsHowLongItIsBusy) {
  EXPECT_EQ(scheduler_.BusyTime(), absl::ZeroDuration());
  std::optional<absl::Duration> seen;
  EXPECT_TRUE(scheduler_
                  .Submit({.kind = RunKind::kProbe}, {},
                          {.on_progress = [](const RunProgress&) {},
                           .on_end =
                               [&](const RunResult&) {
                                 Pass(absl::Minutes(3));
                                 seen = scheduler_.BusyTime();
                               }})
                  .ok());
  scheduler_.Step();
  EXPECT_EQ(seen, absl::Minutes(3));
  EXPECT_EQ(scheduler_.BusyTime(), absl::ZeroDuration());
}

TEST_F(SchedulerTest, AWallClockThatJumpsChangesNothing) {
  scheduler_.Step();
  scheduler_.Step();
  const size_t before = worker_.plans.size();
  for (const absl::Duration jump : {absl::Hours(1000), -absl::Hours(2000)}) {
    clock_.Advance(jump);
    EXPECT_GE(scheduler_.Step(), absl::Hours(4));
  }
  EXPECT_EQ(worker_.plans.size(), before);
  Pass(absl::Hours(5));
  worker_.Then(FakeWorker::Good());
  scheduler_.Step();
  EXPECT_GT(worker_.plans.size(), before);
}

TEST_F(SchedulerTest, MeasuresAgainWhenTheNodeHasChanged) {
  scheduler_.Step();
  scheduler_.Step();
  Pass(absl::Hours(5));
  for (int i = 0; i < 9; ++i) worker_.Then(FakeWorker::Good(/*links=*/17));
  scheduler_.Step();
  EXPECT_EQ(sink_.by_node.size(), 2u);
  EXPECT_EQ(Runs(RunKind::kQuick, RunVerdict::kKept), 2);
}

TEST_F(SchedulerTest, DoesWhatItIsAskedTo) {
  sink_.wanted = {GemmKey{.m = 3, .n = 5, .k = 7}};
  const RunResult result = Submitted({.kind = RunKind::kQuick});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.profile_changed);
  EXPECT_EQ(result.note, "");
  ASSERT_FALSE(progress_.empty());
  EXPECT_EQ(progress_.back().done_count, progress_.back().total_count);
  EXPECT_EQ(result.kept_count, progress_.back().total_count);
  EXPECT_EQ(sink_.by_node.size(), 1u);
  EXPECT_THAT(sink_.by_node.begin()->second, Contains("gemm/bf16/m3n5k7"));
}

TEST_F(SchedulerTest, AChoiceOfKeysDoesNotStandForARun) {
  const RunResult result =
      Submitted({.kind = RunKind::kQuick, .key_prefixes = {"launch/"}});
  EXPECT_EQ(result.kept_count, 1);
  scheduler_.Step();
  EXPECT_EQ(Runs(RunKind::kQuick, RunVerdict::kKept), 2);
}

TEST_F(SchedulerTest, ALookIsNoRun) {
  EXPECT_EQ(scheduler_.LastProbe(), std::nullopt);
  const RunResult result = Submitted({.kind = RunKind::kProbe});
  EXPECT_TRUE(result.status.ok());
  EXPECT_FALSE(result.profile_changed);
  ASSERT_TRUE(scheduler_.LastProbe().has_value());
  EXPECT_EQ(scheduler_.LastProbe()->fingerprint.fabric, "nvlink");
  EXPECT_EQ(worker_.plans.size(), 1u);
}

TEST_F(SchedulerTest, SaysWhyItDidNot) {
  worker_.Then(FakeWorker::Good(18, /*foreign=*/2));
  EXPECT_EQ(Submitted({}).status.code(), absl::StatusCode::kFailedPrecondition);

  worker_.Then(FakeWorker::Dies());
  EXPECT_EQ(Submitted({}).status,
            absl::InternalError("the worker died of SIGSEGV"));

  EXPECT_EQ(Submitted({.key_prefixes = {"nothing"}}).status.code(),
            absl::StatusCode::kFailedPrecondition);

  sink_.publishable = absl::DataLossError("store.db: damaged");
  const RunResult result = Submitted({});
  EXPECT_EQ(result.status, sink_.publishable);
  EXPECT_FALSE(result.profile_changed);

  sink_.readable = absl::DataLossError("store.db: unreadable");
  EXPECT_EQ(Submitted({}).status, sink_.readable);
}

TEST_F(SchedulerTest, WhatFailsOnItsOwnIsANote) {
  worker_.Then(FakeWorker::Good());
  worker_.Then(FakeWorker::Dies());
  const RunResult result = Submitted({});
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_TRUE(result.profile_changed);
  EXPECT_THAT(result.note, HasSubstr("the worker died of SIGSEGV"));
}

TEST_F(SchedulerTest, TakesOneOrderAtATime) {
  const RunListener silent = {.on_progress = [](const RunProgress&) {},
                              .on_end = [](const RunResult&) {}};
  EXPECT_TRUE(scheduler_.Submit({}, {}, silent).ok());
  const absl::Status second = scheduler_.Submit({}, {}, silent);
  EXPECT_EQ(second, absl::AbortedError("another run is under way"));

  // Also while one is under way; once it has ended the next may come.
  absl::Status during, after;
  std::optional<RunResult> ended;
  scheduler_.Step();
  ASSERT_TRUE(scheduler_
                  .Submit({}, {},
                          {.on_progress =
                               [&](const RunProgress&) {
                                 during = scheduler_.Submit({}, {}, silent);
                               },
                           .on_end =
                               [&](const RunResult&) {
                                 after = scheduler_.Submit({}, {}, silent);
                               }})
                  .ok());
  scheduler_.Step();
  EXPECT_EQ(during.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(after.ok()) << after;
}

TEST_F(SchedulerTest, TheAskerMayCancel) {
  std::stop_source stop;
  worker_.Then(FakeWorker::Good());
  worker_.Then([&](const FakeWorker::Plan&, std::stop_token token,
                   const FakeWorker::Say& say) {
    (void)say(FakeWorker::ProbeFrame());
    EXPECT_FALSE(token.stop_requested());
    stop.request_stop();
    EXPECT_TRUE(token.stop_requested());
    return WorkerRun{.end = WorkerEnd::kStopped,
                     .status = absl::CancelledError("the worker was stopped")};
  });
  const RunResult result = Submitted({}, stop.get_token());
  EXPECT_EQ(result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(sink_.published, IsEmpty());
  EXPECT_EQ(worker_.plans.size(), 2u);
}

TEST_F(SchedulerTest, StoppingEndsTheRunUnderWay) {
  absl::Notification running;
  worker_.Then(FakeWorker::Good());
  worker_.Then([&](const FakeWorker::Plan&, std::stop_token token,
                   const FakeWorker::Say& say) {
    (void)say(FakeWorker::ProbeFrame());
    absl::Notification stopped;
    const std::stop_callback on_stop(token, [&] { stopped.Notify(); });
    running.Notify();
    stopped.WaitForNotification();
    return WorkerRun{.end = WorkerEnd::kStopped,
                     .status = absl::CancelledError("the worker was stopped")};
  });
  scheduler_.Start();
  running.WaitForNotification();
  scheduler_.Stop();
  EXPECT_EQ(Runs(RunKind::kQuick, RunVerdict::kCancelled), 1);
  EXPECT_EQ(scheduler_.Submit({}, {}, {}).code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, OrdersThatWaitAreRefusedAtTheEnd) {
  std::optional<RunResult> result;
  ASSERT_TRUE(
      scheduler_
          .Submit({}, {},
                  {.on_progress = [](const RunProgress&) {},
                   .on_end = [&](const RunResult& end) { result = end; }})
          .ok());
  scheduler_.Stop();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(worker_.plans, IsEmpty());
}

TEST_F(SchedulerTest, MeasuresOnlyWhenAskedWhereToldSo) {
  Scheduler quiet({.scheduled = false}, &runner_, &sink_, &clock_,
                  [this] { return steady_; });
  EXPECT_EQ(quiet.Step(), absl::InfiniteDuration());
  EXPECT_THAT(worker_.plans, IsEmpty());
}

TEST_F(SchedulerTest, LogsRunsAndWhyThereIsNone) {
  scheduler_.Step();
  EXPECT_THAT(sink_.events, ElementsAre("run begins", "run ended"));
  sink_.events.clear();
  Pass(absl::Hours(30));
  worker_.Then(FakeWorker::Good(18, /*foreign=*/1));
  scheduler_.Step();
  EXPECT_THAT(sink_.events, ElementsAre("run put off"));
}

TEST_F(SchedulerTest, MeasuresAgainWhenARunDiffersFromThoseBefore) {
  scheduler_.Step();
  scheduler_.Step();
  EXPECT_GE(scheduler_.Step(), absl::Hours(4));
  scheduler_.OnDrift();
  EXPECT_EQ(scheduler_.Step(), absl::ZeroDuration());
  EXPECT_EQ(Runs(RunKind::kFull, RunVerdict::kKept), 2);
  EXPECT_GE(scheduler_.Step(), absl::Hours(3));
}

TEST_F(SchedulerTest, ADriftDoesNotMeasureWhereRunsAreOnRequest) {
  Scheduler asked({.scheduled = false}, &runner_, &sink_, &clock_,
                  [this] { return steady_; });
  asked.OnDrift();
  EXPECT_EQ(asked.Step(), absl::InfiniteDuration());
  EXPECT_TRUE(worker_.plans.empty());
}

}  // namespace
}  // namespace fabricwise
