// SPDX-License-Identifier: Apache-2.0
#include "server/measure/runner.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/measure/fake_worker.h"

namespace fabricwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using worker::v1::WorkerFrame;

MeasurementKey Key(const char* text) { return *ParseMeasurementKey(text); }

constexpr char kSmall[] = "all_reduce/n2/nccl/graph/4096B";
constexpr char kLarge[] = "all_reduce/n2/nccl/graph/8192B";
constexpr char kMemory[] = "memory/read/1048576B";

class RunnerTest : public testing::Test {
 protected:
  RunnerTest() {
    plan_.parts = {
        {.name = "first",
         .keys = {Key(kSmall), Key(kLarge)},
         .budget = absl::Seconds(10)},
        {.name = "second", .keys = {Key(kMemory)}, .budget = absl::Seconds(5)}};
    plan_.key_count = 3;
    probe_ = *runner_.Probe({}).probe;
    worker_.plans.clear();
    worker_.limits.clear();
  }

  RunReport Run() {
    return runner_.Run(plan_, probe_, stop_.get_token(),
                       {.on_progress =
                            [this](const RunProgress& progress) {
                              progress_.push_back(progress);
                            },
                        .keep =
                            [this](absl::Span<const Measurement> measurements) {
                              if (!keep_.ok()) return keep_;
                              for (const Measurement& each : measurements) {
                                kept_.push_back(ToString(each.key));
                                measurements_.push_back(each);
                              }
                              return absl::OkStatus();
                            }});
  }

  // The first part says these before its end, the second is good.
  RunReport RunSaying(std::vector<WorkerFrame> frames, WorkerRun run) {
    worker_.Then(FakeWorker::Says(std::move(frames), std::move(run)));
    return Run();
  }

  FakeClock clock_;
  FakeWorker worker_;
  std::vector<std::string> log_;
  Runner runner_{worker_.AsFunction(), RunnerOptions(), &clock_,
                 [this](absl::string_view line) { log_.emplace_back(line); }};
  RunPlan plan_;
  NodeProbe probe_;
  std::stop_source stop_;
  absl::Status keep_;
  std::vector<RunProgress> progress_;
  std::vector<std::string> kept_;
  std::vector<Measurement> measurements_;
};

TEST_F(RunnerTest, LooksAtTheNode) {
  const Runner::Look look = runner_.Probe({});
  ASSERT_TRUE(look.probe.ok());
  EXPECT_EQ(look.probe->time, clock_.Now());
  EXPECT_EQ(look.probe->fingerprint.fabric, "nvlink");
  EXPECT_EQ(look.report.gpu_time, absl::Milliseconds(500));
  ASSERT_EQ(worker_.plans.size(), 1u);
  EXPECT_TRUE(worker_.plans[0].probe_only());
}

TEST_F(RunnerTest, TellsWhyItCouldNotLook) {
  worker_.Then(FakeWorker::Dies());
  Runner::Look look = runner_.Probe({});
  EXPECT_EQ(look.probe.status(),
            absl::InternalError("the worker died of SIGSEGV"));
  EXPECT_THAT(look.report.faults, ElementsAre(Pair(WorkerEnd::kDied, 1)));

  worker_.Then(FakeWorker::Says(
      {FakeWorker::ProbeFrame(), FakeWorker::ResultFrame(kSmall)},
      {.end = WorkerEnd::kDone}));
  look = runner_.Probe({});
  EXPECT_EQ(look.probe.status().code(), absl::StatusCode::kInternal);
}

TEST_F(RunnerTest, KeepsAllPartsAndTellsHowFarItIs) {
  const RunReport report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kKept);
  EXPECT_TRUE(report.status.ok()) << report.status;
  EXPECT_EQ(report.kept_count, 3);
  EXPECT_EQ(report.gpu_time, absl::Seconds(1));
  EXPECT_THAT(kept_, ElementsAre(kSmall, kLarge, kMemory));
  EXPECT_THAT(report.faults, IsEmpty());

  ASSERT_EQ(progress_.size(), 6u);
  for (const RunProgress& progress : progress_) {
    EXPECT_EQ(progress.total_count, 3);
  }
  EXPECT_EQ(progress_[0].done_count, 0);
  EXPECT_EQ(progress_[0].key, kSmall);
  EXPECT_EQ(progress_[1].done_count, 1);
  ASSERT_TRUE(progress_[1].measurement.has_value());
  EXPECT_EQ(progress_[4].done_count, 2);
  EXPECT_EQ(progress_[5].done_count, 3);
}

TEST_F(RunnerTest, TellsTheWorkerWhatItIsHeldTo) {
  Run();
  ASSERT_EQ(worker_.plans.size(), 2u);
  EXPECT_THAT(worker_.plans[0].keys(), ElementsAre(kSmall, kLarge));
  EXPECT_EQ(worker_.plans[0].budget_milliseconds(), 10'000);
  EXPECT_EQ(worker_.plans[0].key_deadline_milliseconds(), 10'000);
  EXPECT_GT(worker_.limits[0].between_frames, absl::Seconds(10));
  EXPECT_GT(worker_.limits[0].run, worker_.limits[0].first_frame);
  EXPECT_EQ(worker_.limits[0].grace, absl::Milliseconds(250));
}

TEST_F(RunnerTest, AMeasurementIsARecord) {
  Run();
  ASSERT_FALSE(measurements_.empty());
  const Measurement& first = measurements_[0];
  EXPECT_EQ(first.statistics.median_seconds, 1e-5);
  EXPECT_EQ(first.statistics.samples, 50);
  EXPECT_EQ(first.statistics.stop_reason, StopReason::kGood);
  EXPECT_TRUE(first.statistics.verified);
  EXPECT_LT(first.statistics.sm_clock_hertz, 0) << "was not said";
  EXPECT_EQ(first.origin, Origin::kMeasured);
  EXPECT_EQ(first.source, "fabricwise-worker");
  EXPECT_EQ(first.fingerprint_id, FingerprintId(probe_.fingerprint));
  EXPECT_EQ(first.start_time, clock_.Now() - absl::Milliseconds(100));
}

TEST_F(RunnerTest, NothingOfAWorkerThatDiedIsKeptAndTheRestIsRun) {
  worker_.Then(FakeWorker::Dies());
  const RunReport report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kKept);
  EXPECT_EQ(report.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(report.status.message(),
            "first, 1 of 2 keys done: the worker died of SIGSEGV");
  EXPECT_THAT(kept_, ElementsAre(kMemory));
  EXPECT_THAT(report.faults, ElementsAre(Pair(WorkerEnd::kDied, 1)));
  EXPECT_EQ(report.gpu_time, absl::Seconds(3) * 2 + absl::Milliseconds(500))
      << "a worker that died held both GPUs for 3 s";
  EXPECT_THAT(log_, testing::Contains(HasSubstr("first, 1 of 2 keys done")));
}

TEST_F(RunnerTest, ARunOfWhichNothingIsKeptHasFailed) {
  worker_.Then(FakeWorker::Dies());
  worker_.Then(FakeWorker::Dies());
  const RunReport report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kFailed);
  EXPECT_THAT(report.faults, ElementsAre(Pair(WorkerEnd::kDied, 2)));
  EXPECT_THAT(kept_, IsEmpty());
}

TEST_F(RunnerTest, ResultsNobodyAskedForEndTheWorker) {
  auto result = [](const char* key, auto change) {
    WorkerFrame frame = FakeWorker::ResultFrame(key);
    change(*frame.mutable_result());
    return frame;
  };
  const auto as_is = [](worker::v1::Result&) {};
  WorkerFrame skip, progress;
  skip.mutable_skip()->set_key(kMemory);
  progress.mutable_progress()->set_key("?");
  const struct {
    std::vector<WorkerFrame> frames;
    const char* message;
  } cases[] = {
      {{result("memory/copy/64B", as_is)},
       "the worker measured 'memory/copy/64B', which was not asked for"},
      {{result("nonsense", as_is)}, "the worker measured what is no key"},
      {{result(kSmall, as_is), result(kSmall, as_is)}, "a second time"},
      {{skip}, "the worker skips 'memory/read/1048576B'"},
      {{progress}, "the worker begins what is no key"},
      {{result(kSmall,
               [](auto& r) {
                 r.set_median_seconds(std::numeric_limits<double>::quiet_NaN());
               })},
       "the worker measured nonsense: all_reduce/n2/nccl/graph/4096B: "
       "median_seconds is nan"},
      {{result(kSmall, [](auto& r) { r.set_median_seconds(-1); })},
       "median_seconds is -1"},
      {{result(kSmall, [](auto& r) { r.set_median_seconds(1e300); })},
       "median_seconds is 1e+300; allowed: 1e-09 to 300"},
      {{result(kSmall, [](auto& r) { r.set_median_seconds(1e-300); })},
       "median_seconds is 1e-300; allowed: 1e-09 to 300"},
      {{result(kSmall, [](auto& r) { r.set_iqr_seconds(301); })},
       "all_reduce/n2/nccl/graph/4096B: iqr_seconds is 301; allowed: 0 to 300"},
      {{result(kSmall, [](auto& r) { r.set_p99_seconds(1e300); })},
       "p99_seconds is 1e+300; allowed: 0 to 300"},
      {{result(kSmall, [](auto& r) { r.set_wall_milliseconds(-1); })},
       "wall_milliseconds is -1; allowed: 0 to 300000"},
      {{result(kSmall, [](auto& r) { r.set_samples(-5); })}, "samples is -5"},
      {{result(kSmall, [](auto& r) { r.set_stop_reason(9); })},
       "gives stop_reason 9 for 'all_reduce/n2/nccl/graph/4096B'"},
  };
  for (const auto& c : cases) {
    kept_.clear();
    std::vector<WorkerFrame> frames = {FakeWorker::ProbeFrame()};
    frames.insert(frames.end(), c.frames.begin(), c.frames.end());
    frames.push_back(FakeWorker::DoneFrame());
    const RunReport report = RunSaying(frames, {.end = WorkerEnd::kDone});
    EXPECT_EQ(report.status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(report.status.message()), HasSubstr(c.message));
    EXPECT_THAT(kept_, ElementsAre(kMemory));
    EXPECT_THAT(report.faults, ElementsAre(Pair(WorkerEnd::kRefused, 1)));
  }
}

TEST_F(RunnerTest, FurtherSizesOfAnAskedCurveAreTaken) {
  const RunReport report =
      RunSaying({FakeWorker::ProbeFrame(), FakeWorker::ResultFrame(kSmall),
                 FakeWorker::ResultFrame("all_reduce/n2/nccl/graph/6144B"),
                 FakeWorker::ResultFrame(kLarge), FakeWorker::DoneFrame()},
                {.end = WorkerEnd::kDone});
  EXPECT_TRUE(report.status.ok()) << report.status;
  EXPECT_EQ(report.kept_count, 4);
  EXPECT_EQ(progress_.back().done_count, 3) << "those asked for alone count";
}

TEST_F(RunnerTest, KeysThatCannotBeMeasuredHereAreDone) {
  WorkerFrame skip;
  skip.mutable_skip()->set_key(kSmall);
  skip.mutable_skip()->set_reason("no peer access");
  const RunReport report =
      RunSaying({FakeWorker::ProbeFrame(), skip,
                 FakeWorker::ResultFrame(kLarge), FakeWorker::DoneFrame()},
                {.end = WorkerEnd::kDone});
  EXPECT_TRUE(report.status.ok()) << report.status;
  EXPECT_THAT(kept_, ElementsAre(kLarge, kMemory));
  EXPECT_EQ(progress_.back().done_count, 3);
  EXPECT_THAT(log_, ElementsAre("first: 1 keys skipped: no peer access"));
}

TEST_F(RunnerTest, YieldsToAProcessOnAGpu) {
  // It comes between the parts.
  worker_.Then(FakeWorker::Good());
  worker_.Then(FakeWorker::Good(18, /*foreign=*/1));
  RunReport report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kYielded);
  EXPECT_EQ(report.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(report.status.message()), HasSubstr("busy"));
  EXPECT_THAT(kept_, ElementsAre(kSmall, kLarge));
  EXPECT_THAT(report.faults, IsEmpty()) << "no fault of the worker's";

  // It comes within a part: what was whole is kept.
  kept_.clear();
  WorkerFrame done = FakeWorker::DoneFrame();
  done.mutable_done()->set_yielded(true);
  report = RunSaying(
      {FakeWorker::ProbeFrame(), FakeWorker::ResultFrame(kSmall), done},
      {.end = WorkerEnd::kDone});
  EXPECT_EQ(report.verdict, RunVerdict::kYielded);
  EXPECT_THAT(kept_, ElementsAre(kSmall));
}

TEST_F(RunnerTest, StopsWhenTheNodeIsNoLongerTheSame) {
  worker_.Then(FakeWorker::Good(/*links=*/17));
  const RunReport report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kFailed);
  EXPECT_EQ(report.status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(kept_, IsEmpty());
  EXPECT_EQ(worker_.plans.size(), 1u);
}

TEST_F(RunnerTest, ACancelledRunKeepsWhatItsWorkerHandedOverInOrder) {
  RunReport report =
      RunSaying({FakeWorker::ProbeFrame(), FakeWorker::ResultFrame(kSmall),
                 FakeWorker::DoneFrame()},
                {.end = WorkerEnd::kStopped});
  EXPECT_EQ(report.verdict, RunVerdict::kCancelled);
  EXPECT_EQ(report.status, absl::CancelledError("the run was cancelled"));
  EXPECT_THAT(kept_, ElementsAre(kSmall));

  kept_.clear();
  report =
      RunSaying({FakeWorker::ProbeFrame(), FakeWorker::ResultFrame(kSmall)},
                {.end = WorkerEnd::kStopped,
                 .status = absl::CancelledError("the worker was stopped")});
  EXPECT_EQ(report.verdict, RunVerdict::kCancelled);
  EXPECT_THAT(kept_, IsEmpty());

  stop_.request_stop();
  const size_t before = worker_.plans.size();
  report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kCancelled);
  EXPECT_EQ(worker_.plans.size(), before) << "nothing is started any more";
}

TEST_F(RunnerTest, EndsWhenNothingCanBeKept) {
  keep_ = absl::ResourceExhaustedError("store.db: the disk is full");
  const RunReport report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kFailed);
  EXPECT_EQ(report.status, keep_);
  EXPECT_EQ(worker_.plans.size(), 1u);
}

TEST_F(RunnerTest, AWorkerThatSkipsEverythingHasFailedOnThisNode) {
  const auto skips = [](const FakeWorker::Plan& plan, std::stop_token,
                        const FakeWorker::Say& say) {
    (void)say(FakeWorker::ProbeFrame());
    for (const std::string& key : plan.keys()) {
      WorkerFrame skip;
      skip.mutable_skip()->set_key(key);
      (void)say(skip);
    }
    (void)say(FakeWorker::DoneFrame());
    return WorkerRun{.end = WorkerEnd::kDone};
  };
  worker_.Then(skips);
  worker_.Then(skips);
  const RunReport report = Run();
  EXPECT_EQ(report.verdict, RunVerdict::kFailed);
  EXPECT_EQ(report.status.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fabricwise
