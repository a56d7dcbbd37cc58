// SPDX-License-Identifier: Apache-2.0
//
// Whole commands against a service of the test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/json.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/unit/client/samples.h"

namespace fabricwise {
namespace {

using ::google::protobuf::util::MessageDifferencer;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FixedClock final : public Clock {
 public:
  absl::Time Now() const override { return SampleNow(); }
};

// Answers with the samples, or with `failure`, and remembers what was asked.
struct Script {
  absl::Status failure;
  v1::RecommendParallelismRequest recommend;
  v1::SweepConcurrencyRequest sweep;
  v1::WatchRecommendationRequest watch;
  v1::RunMeasurementRequest measure;
  v1::GetStatusResponse status;
  v1::DiagnoseNodeResponse diagnosis;
  absl::Status diagnosis_failure;
  std::string note;
  ServiceAddress address;
  bool misses = false;   // whether every plan misses limits
  int watches = 0;       // begun
  int dead_watches = 0;  // after the first, such as find nobody
  std::vector<absl::Duration> slept;
};

void AddMisses(v1::PlanAdvice* plan) {
  plan->add_misses("TPOT 5.18 ms is over the limit of 2.00 ms");
  plan->add_misses("memory: needs more");
}

class ScriptedService final : public Service {
 public:
  explicit ScriptedService(Script* script) : script_(script) {}

  absl::StatusOr<v1::RecommendParallelismResponse> Recommend(
      const v1::RecommendParallelismRequest& request) override {
    script_->recommend = request;
    v1::RecommendParallelismResponse answer = SampleAnswer();
    if (script_->misses) {
      for (auto& plan : *answer.mutable_plans()) AddMisses(&plan);
    }
    return Or(answer);
  }
  absl::StatusOr<v1::SweepConcurrencyResponse> Sweep(
      const v1::SweepConcurrencyRequest& request) override {
    script_->sweep = request;
    v1::SweepConcurrencyResponse answer = SampleSweep();
    if (script_->misses) {
      AddMisses(answer.mutable_points(1)->mutable_plans(0));
      AddMisses(answer.mutable_points(3)->mutable_plans(0));
    }
    return Or(answer);
  }
  absl::StatusOr<v1::NodeProfile> GetProfile(v1::ProfileView view) override {
    v1::NodeProfile profile = SampleProfile();
    if (view == v1::PROFILE_VIEW_FILE) profile.set_profile_file("{}\n");
    return Or(profile);
  }
  absl::Status Watch(
      const v1::WatchRecommendationRequest& request,
      const std::function<bool(const v1::WatchRecommendationResponse&)>& each)
      override {
    script_->watch = request;
    if (++script_->watches > 1 && script_->watches <= 1 + script_->dead_watches)
      return absl::UnavailableError("cannot reach it");
    v1::WatchRecommendationResponse response;
    *response.mutable_answer() = SampleAnswer();
    for (const char* reason : {"first answer", "new grounds", "new grounds"}) {
      response.set_reason(reason);
      if (!each(response)) return absl::OkStatus();
    }
    return script_->failure;
  }
  absl::StatusOr<v1::GetStatusResponse> GetStatus() override {
    return Or(script_->status);
  }
  absl::Status RunMeasurement(
      const v1::RunMeasurementRequest& request,
      const std::function<bool(const v1::RunMeasurementResponse&)>& each)
      override {
    script_->measure = request;
    if (!script_->failure.ok()) return script_->failure;
    v1::RunMeasurementResponse response;
    response.set_done_count(1);
    response.set_total_count(1);
    response.mutable_measurement()->set_key("launch/graph_node");
    response.mutable_measurement()->set_median_seconds(1.2e-6);
    response.set_profile_changed(true);
    response.set_note(script_->note);
    each(response);
    return absl::OkStatus();
  }
  absl::StatusOr<v1::DiagnoseNodeResponse> Diagnose() override {
    if (!script_->diagnosis_failure.ok()) return script_->diagnosis_failure;
    return script_->diagnosis;
  }
  absl::StatusOr<v1::NodeProfile> ImportProfile(
      const v1::ImportProfileRequest&) override {
    return Or(SampleProfile());
  }

 private:
  template <typename T>
  absl::StatusOr<T> Or(T value) const {
    if (!script_->failure.ok()) return script_->failure;
    return value;
  }
  Script* const script_;
};

struct Result {
  int code = 0;
  std::string out, err;
};

class CommandTest : public ::testing::Test {
 protected:
  Result Run(std::vector<std::string> arguments) {
    std::ostringstream out, err;
    ClientEnvironment environment;
    environment.out = &out;
    environment.err = &err;
    environment.terminal = terminal_;
    environment.clock = &clock_;
    environment.connect = [this](const ServiceAddress& address)
        -> absl::StatusOr<std::unique_ptr<Service>> {
      script_.address = address;
      return std::make_unique<ScriptedService>(&script_);
    };
    environment.sleep = [this](absl::Duration time) {
      script_.slept.push_back(time);
    };
    int code = RunClient(std::move(arguments), environment);
    return {code, out.str(), err.str()};
  }

  // The command is refused before anything is asked, in one line.
  void ExpectRefused(std::vector<std::string> arguments,
                     const std::string& message) {
    Result result = Run(std::move(arguments));
    EXPECT_EQ(result.code, kRefused);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("fabricwise: " + message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  }

  FixedClock clock_;
  TerminalFacts terminal_;
  Script script_;
};

TEST_F(CommandTest, RecommendAsksWhatTheFlagsSay) {
  Result result = Run({"recommend",
                       "--model",
                       "Kimi-K2.5",
                       "--concurrency",
                       "64",
                       "--phase",
                       "decode",
                       "--input-tokens",
                       "100",
                       "--output-tokens",
                       "200",
                       "--context-tokens",
                       "2048",
                       "--gpus",
                       "2",
                       "--engine",
                       "reference",
                       "--objective",
                       "slo",
                       "--ttft-ms",
                       "250",
                       "--tpot-ms",
                       "20.5",
                       "--ignore-memory",
                       "--current-mode",
                       "TP8",
                       "--scope",
                       "communication",
                       "--extra-all-reduces",
                       "6",
                       "--gpu-indices",
                       "2,3",
                       "--plan-options",
                       "fp8d,tbo",
                       "--routing-skew",
                       "0.8",
                       "--host-us",
                       "50",
                       "--max-plans",
                       "1000",
                       "--deadline-ms",
                       "1234",
                       "--target",
                       "node7:7410"});
  ASSERT_EQ(result.code, kAnswered) << result.err;
  v1::RecommendParallelismRequest expected;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  R"({"model": {"preset": "Kimi-K2.5"},
                      "workload": {"concurrency": 64, "input_tokens": 100,
                        "output_tokens": 200, "routing_skew": 0.8,
                        "phase": "PHASE_DECODE", "context_tokens": 2048,
                        "extra_all_reduces": 6},
                      "limits": {"max_tpot_seconds": 0.0205,
                        "max_ttft_seconds": 0.25, "ignore_memory": true},
                      "engine": "ENGINE_REFERENCE",
                      "gpus": {"count": 2, "indices": [2, 3]},
                      "plan_options": ["PLAN_OPTION_FP8_DISPATCH",
                        "PLAN_OPTION_TWO_BATCH_OVERLAP"],
                      "objective": "OBJECTIVE_THROUGHPUT_IN_LIMITS",
                      "current_plan": "TP8", "max_plans": 1000,
                      "cost_scope": "COST_SCOPE_COMMUNICATION"})",
                  &expected)
                  .ok());
  expected.set_host_seconds_per_step(50e-6);
  MessageDifferencer differencer;
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_float_comparison(
      google::protobuf::util::DefaultFieldComparator::APPROXIMATE);
  differencer.set_field_comparator(&comparator);
  EXPECT_TRUE(differencer.Compare(expected, script_.recommend))
      << script_.recommend.DebugString();
  EXPECT_EQ(script_.address.target, "node7:7410");
  EXPECT_EQ(script_.address.deadline, absl::Milliseconds(1234));
}

TEST_F(CommandTest, AConfigIsServedFromItsFolder) {
  const std::string folder = testing::TempDir() + "a model";
  std::filesystem::create_directories(folder);
  const auto repository = [&](const std::string& name) {
    std::ofstream(folder + "/" + name) << "{}";
    EXPECT_EQ(Run({"recommend", "--config", folder + "/../a model/" + name,
                   "--concurrency", "1"})
                  .code,
              kAnswered);
    EXPECT_EQ(script_.recommend.model().hugging_face_config(), "{}");
    return script_.recommend.model().repository();
  };
  EXPECT_EQ(repository("config.json"), folder);
  // Any other name does not say that the weights are beside it.
  EXPECT_EQ(repository("other.json"), "");
  std::filesystem::remove_all(folder);
}

TEST_F(CommandTest, WhatIsNotSaidIsLeftToTheServer) {
  ASSERT_EQ(Run({"recommend", "--model", "m", "--concurrency", "1"}).code,
            kAnswered);
  const v1::Workload& load = script_.recommend.workload();
  EXPECT_FALSE(load.has_input_tokens() || load.has_output_tokens() ||
               load.has_context_tokens() || load.has_routing_skew());
  EXPECT_FALSE(script_.recommend.has_gpus());
  EXPECT_FALSE(script_.recommend.has_host_seconds_per_step());
  EXPECT_FALSE(script_.recommend.has_max_plans());
  EXPECT_EQ(script_.recommend.engine(), v1::ENGINE_UNSPECIFIED);
  EXPECT_EQ(script_.address.target, "");
}

TEST_F(CommandTest, OneConcurrencyIsARecommendationInJson) {
  Result result = Run(
      {"recommend", "--model", "m", "--concurrency", "64", "--format", "json"});
  ASSERT_EQ(result.code, kAnswered);
  EXPECT_THAT(result.out, HasSubstr("\"output_tokens_per_second\": 12345"));
  v1::RecommendParallelismResponse answer;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(result.out, &answer).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(answer, SampleAnswer()));
}

TEST_F(CommandTest, SeveralConcurrenciesAreASweepInJson) {
  Result result = Run({"recommend", "--model", "m", "--concurrency", "1,8,64",
                       "--format", "json"});
  ASSERT_EQ(result.code, kAnswered);
  EXPECT_THAT(script_.sweep.concurrencies(), ::testing::ElementsAre(1, 8, 64));
  v1::SweepConcurrencyResponse answer;
  ASSERT_TRUE(
      google::protobuf::util::JsonStringToMessage(result.out, &answer).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(answer, SampleSweep()));
}

TEST_F(CommandTest, JsonWritesFieldsAtZeroAndLeavesAbsentOnesOut) {
  v1::PlanAdvice plan;
  absl::StatusOr<std::string> json = ToJson(plan, JsonForm::kOneLine);
  ASSERT_TRUE(json.ok());
  EXPECT_THAT(*json, HasSubstr("\"tpot_seconds\":0"));
  EXPECT_THAT(*json, ::testing::Not(HasSubstr("ttft_seconds")));
  EXPECT_EQ(json->back(), '\n');
  EXPECT_EQ(std::count(json->begin(), json->end(), '\n'), 1);
}

TEST_F(CommandTest, FlagsFormatPrintsCommandsToPaste) {
  Result result = Run({"recommend", "--model", "m", "--concurrency", "64",
                       "--format", "flags"});
  EXPECT_THAT(result.out, StartsWith("# Qwen3-30B-A3B, 64 sequences, steady"));
  EXPECT_THAT(result.out, HasSubstr("vllm serve Qwen/Qwen3-30B-A3B"));
}

TEST_F(CommandTest, APipeIsPlainUnlessColourIsAskedFor) {
  std::vector<std::string> arguments = {"sweep", "--model", "m"};
  EXPECT_THAT(Run(arguments).out, ::testing::Not(HasSubstr("\x1b")));
  arguments.insert(arguments.end(), {"--color", "always"});
  EXPECT_THAT(Run(arguments).out, HasSubstr("\x1b[1mQwen3-30B-A3B"));
  terminal_ = {true, 80, "xterm", "C.UTF-8", true};
  EXPECT_THAT(Run({"sweep", "--model", "m"}).out,
              ::testing::Not(HasSubstr("\x1b")));
}

TEST_F(CommandTest, BadFlagsAreRefusedByNameValueAndWhatIsAllowed) {
  std::vector<std::string> base = {"recommend", "--model", "m"};
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ExpectRefused(base, "--concurrency is required");
  ExpectRefused(with({"--concurrency", "1,,8"}),
                "--concurrency: \"\" is no whole number; allowed: numbers "
                "from 1 to 1000000");
  ExpectRefused(with({"--concurrency", "1e3"}),
                "--concurrency: \"1e3\" is no whole number");
  ExpectRefused(with({"--concurrency", "9223372036854775808"}),
                "--concurrency: \"9223372036854775808\" is no whole number");
  ExpectRefused(with({"--concurrency", "1", "--engine", "tgi"}),
                "--engine: \"tgi\"; allowed: any, vllm, sglang, trtllm, "
                "reference");
  ExpectRefused(with({"--concurrency", "1", "--phase", "warm"}),
                "--phase: \"warm\"; allowed: steady, decode, prefill");
  ExpectRefused(with({"--concurrency", "1", "--tpot-ms", "fast"}),
                "--tpot-ms: \"fast\" is no number");
  ExpectRefused(with({"--concurrency", "1", "--format", "csv"}),
                "--format: \"csv\"; allowed: table, json, flags");
  ExpectRefused(with({"--concurrency", "1", "--gpus", "4294967297"}),
                "--gpus is 4294967297; allowed: 1 to");
  ExpectRefused(with({"--concurrency", "1", "--gpu-indices", "0,one"}),
                "--gpu-indices: \"one\" is no whole number; allowed: indices "
                "of GPUs as nvidia-smi shows them, with commas between them");
  ExpectRefused(with({"--concurrency", "1", "--gpu-indices", "0,-1"}),
                "--gpu-indices has -1; allowed: 0 to");
  ExpectRefused(with({"--concurrency", "1", "--plan-options", "tbo,sbo"}),
                "--plan-options: \"sbo\"; allowed: tbo, fp8d");
  for (const std::string odd : {"0", "1001", "4294967297"}) {
    ExpectRefused(with({"--concurrency", "1", "--max-plans", odd}),
                  "--max-plans is " + odd + "; allowed: 1 to 1000");
  }
  ExpectRefused(with({"--concurrency", "1,8", "--max-plans", "2"}),
                "--max-plans is given with 2 values of --concurrency; allowed: "
                "one, as several show the best plan of each");
  ExpectRefused(with({"--concurrency", "1", "--deadline-ms", "0"}),
                "--deadline-ms: \"0\"; allowed: 1 to 3600000");
  ExpectRefused(
      with({"--concurrency", "1", "--target", "a:1", "--profile", "p"}),
      "--target excludes --profile");
  ExpectRefused(with({"--concurrency", "1", "--config", "c"}),
                "--model excludes --config");
  ExpectRefused(with({"--concurrency", "1", "--frobnicate"}),
                "The following argument was not expected: --frobnicate");
  ExpectRefused({"recommend", "--concurrency", "1"},
                "--model or --config is required");
  ExpectRefused({"recommend", "--concurrency", "1", "--config", "no/such"},
                "no file \"no/such\"");
  ExpectRefused({"recommend", "--concurrency", "1", "--config", "tests"},
                "cannot read \"tests\": a directory");
  ExpectRefused({"watch", "--model", "m", "--concurrency", "1,2"},
                "--concurrency has 2 values; allowed: 1");
  ExpectRefused({}, "A subcommand is required");
  ExpectRefused({"--color", "never", "advise"},
                "\"advise\" is no command; allowed: recommend, sweep, ");
  ExpectRefused({"--color", "blue", "status"},
                "--color: \"blue\"; allowed: auto, always, never");
}

TEST_F(CommandTest, AServersRefusalNamesTheFlag) {
  script_.failure = absl::InvalidArgumentError(
      "workload.concurrency is 0; allowed: 1 to 1000000");
  Result result = Run({"recommend", "--model", "m", "--concurrency", "0"});
  EXPECT_EQ(result.code, kRefused);
  EXPECT_EQ(result.err,
            "fabricwise: --concurrency: workload.concurrency is 0; allowed: 1 "
            "to 1000000\n");
}

TEST_F(CommandTest, ExitCodesTellRefusedUnreachableAndNotAnswerableApart) {
  auto code = [&](const absl::Status& failure) {
    script_.failure = failure;
    return Run({"recommend", "--model", "m", "--concurrency", "1"}).code;
  };
  EXPECT_EQ(code(absl::OkStatus()), 0);
  EXPECT_EQ(code(absl::InvalidArgumentError("x")), 1);
  EXPECT_EQ(code(absl::NotFoundError("x")), 1);
  EXPECT_EQ(code(absl::ResourceExhaustedError("x")), 1);
  EXPECT_EQ(code(absl::PermissionDeniedError("x")), 1);
  EXPECT_EQ(code(absl::UnavailableError("x")), 2);
  EXPECT_EQ(code(absl::DeadlineExceededError("x")), 2);
  EXPECT_EQ(code(absl::InternalError("x")), 2);
  EXPECT_EQ(code(absl::FailedPreconditionError("x")), 3);
}

// An answer that misses the limits is one all the same: a script that must
// know asks for another exit code.
TEST_F(CommandTest, LimitsThatNoPlanMeetsAreSaidOnStderr) {
  const std::vector<std::string> recommend = {"recommend", "--model", "m",
                                              "--concurrency", "64"};
  EXPECT_EQ(Run(recommend).err, "");
  auto failing = recommend;
  failing.push_back("--fail-on-miss");
  EXPECT_EQ(Run(failing).code, kAnswered);
  script_.misses = true;
  const Result told = Run(recommend);
  EXPECT_EQ(told.code, kAnswered);
  EXPECT_EQ(told.err,
            "fabricwise: no plan meets the limits; the first, 2xTP1: TPOT 5.18 "
            "ms is over the limit of 2.00 ms\n");
  const Result failed = Run(failing);
  EXPECT_EQ(failed.code, kMissed);
  EXPECT_EQ(failed.err, told.err);
  EXPECT_EQ(failed.out, told.out);

  const Result sweep = Run({"sweep", "--model", "m", "--fail-on-miss"});
  EXPECT_EQ(sweep.code, kMissed);
  EXPECT_THAT(sweep.err,
              StartsWith("fabricwise: no plan meets the limits at concurrency "
                         "2, 8; "));
}

TEST_F(CommandTest, AnErrorIsOneHarmlessLine) {
  script_.failure = absl::UnavailableError("a\nb\x1b[2J");
  Result result = Run({"recommend", "--model", "m", "--concurrency", "1"});
  EXPECT_EQ(result.err, "fabricwise: a; b?[2J\n");
}

TEST_F(CommandTest, StatusThatCannotAdviseIsExitCode3) {
  script_.status.set_serving(true);
  EXPECT_EQ(Run({"status"}).code, kAnswered);
  script_.status.set_serving(false);
  script_.status.set_reason("no profile is loaded");
  Result result = Run({"status"});
  EXPECT_EQ(result.code, kNotAnswerable);
  EXPECT_THAT(result.out, HasSubstr("cannot be given: no profile is loaded"));
  EXPECT_EQ(result.err,
            "fabricwise: the daemon cannot advise: no profile is loaded\n");
}

TEST_F(CommandTest, DoctorLooksAtDaemonAndProfile) {
  script_.status.set_serving(true);
  Result result = Run({"doctor"});
  EXPECT_EQ(result.code, kNotAnswerable);
  EXPECT_THAT(result.out, HasSubstr("daemon"));
  EXPECT_THAT(result.out, HasSubstr("bad  experts"));
  EXPECT_EQ(result.err, "fabricwise: some questions cannot be answered\n");
  EXPECT_THAT(Run({"doctor", "--profile", "p"}).out,
              ::testing::Not(HasSubstr("daemon")));
}

TEST_F(CommandTest, DoctorTellsWhatTheWorkerSees) {
  script_.status.set_serving(true);
  script_.status.set_worker_installed(true);
  script_.status.set_scheduler_state("idle");
  script_.status.set_scheduler_detail("next run in 3h");
  script_.status.set_fingerprint("a");
  script_.status.set_node_fingerprint("b");
  script_.diagnosis.mutable_fingerprint()->add_gpus()->set_name("NVIDIA H200");
  script_.diagnosis.mutable_fingerprint()->set_fabric("nvlink");
  v1::NodeFinding* const finding = script_.diagnosis.add_findings();
  finding->set_severity(v1::FINDING_SEVERITY_ERROR);
  finding->set_subject("GPU 1 to 0");
  finding->set_detail("copies are damaged");
  finding->set_remedy("turn ACS off");
  Result result = Run({"doctor"});
  EXPECT_THAT(result.out, HasSubstr("installed, idle: next run in 3h"));
  EXPECT_THAT(result.out, HasSubstr("not of this node as it is now"));
  EXPECT_THAT(result.out, HasSubstr("1x NVIDIA H200, nvlink"));
  EXPECT_THAT(result.out, HasSubstr("bad  hardware     GPU 1 to 0: copies are "
                                    "damaged. Remedy: turn ACS off"));

  script_.diagnosis_failure = absl::InternalError("the worker died of SIGSEGV");
  EXPECT_THAT(Run({"doctor"}).out,
              HasSubstr("not to be seen: the worker died of SIGSEGV"));
}

TEST_F(CommandTest, MeasureDrawsABarOnATerminal) {
  terminal_ = {.is_terminal = true, .columns = 60, .locale = "en_US.UTF-8"};
  const Result result = Run({"measure"});
  EXPECT_EQ(result.code, kAnswered);
  EXPECT_THAT(result.out, HasSubstr("100 %  1 of 1"));
  EXPECT_THAT(result.out,
              ::testing::EndsWith(" 1 measured; a new profile is in use\n"));
}

TEST_F(CommandTest, MeasureSaysWhatCouldNotBeMeasured) {
  script_.note = "own collectives: the worker died of SIGSEGV";
  EXPECT_THAT(Run({"measure"}).out,
              HasSubstr(" ! not all could be measured: own collectives: the "
                        "worker died of SIGSEGV\n"));
}

TEST_F(CommandTest, WatchPrintsEachAnswerUntilItsCount) {
  Result result = Run({"watch", "--model", "m", "--concurrency", "8", "--count",
                       "2", "--format", "json"});
  EXPECT_EQ(result.code, kAnswered);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2);
  EXPECT_EQ(script_.watch.question().workload().concurrency(), 8);

  script_.failure = absl::InternalError("broken");
  result = Run({"watch", "--model", "m", "--concurrency", "8"});
  EXPECT_EQ(result.code, kUnreachable);
  EXPECT_THAT(result.out, HasSubstr("first answer"));
  EXPECT_THAT(script_.slept, ::testing::IsEmpty());
}

TEST_F(CommandTest, WatchWaitsForADaemonThatRestarts) {
  script_.failure = absl::UnavailableError("the daemon is stopping");
  script_.dead_watches = 6;
  const Result result = Run({"watch", "--model", "m", "--concurrency", "8",
                             "--count", "6", "--format", "json"});
  EXPECT_EQ(result.code, kAnswered);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 6);
  EXPECT_EQ(result.err,
            "fabricwise: lost the daemon, trying for 10m to reach it again: "
            "the daemon is stopping\n"
            "fabricwise: connected again\n");
  std::vector<absl::Duration> waits;
  for (const int seconds : {1, 2, 4, 8, 16, 30, 30}) {
    waits.push_back(absl::Seconds(seconds));
  }
  EXPECT_EQ(script_.slept, waits);
}

TEST_F(CommandTest, WatchGivesUpOnADaemonThatStaysAway) {
  script_.failure = absl::UnavailableError("the daemon is stopping");
  script_.dead_watches = 1'000'000;
  const Result result = Run({"watch", "--model", "m", "--concurrency", "8"});
  EXPECT_EQ(result.code, kUnreachable);
  EXPECT_THAT(result.err, ::testing::EndsWith("fabricwise: cannot reach it\n"));
  absl::Duration waited;
  for (const absl::Duration wait : script_.slept) waited += wait;
  EXPECT_GE(waited, absl::Minutes(10));
  EXPECT_LT(waited, absl::Minutes(11));
}

TEST_F(CommandTest, WatchDoesNotWaitForADaemonThatNeverAnswered) {
  script_.watches = 1;
  script_.dead_watches = 1'000'000;
  EXPECT_EQ(Run({"watch", "--model", "m", "--concurrency", "8"}).code,
            kUnreachable);
  EXPECT_THAT(script_.slept, ::testing::IsEmpty());
}

TEST_F(CommandTest, MeasureShowsProgressAndTheServersRefusal) {
  Result result = Run({"measure", "--full", "--key", "launch/", "--key",
                       "memory/", "--budget-s", "30"});
  EXPECT_EQ(result.code, kAnswered);
  EXPECT_EQ(result.out,
            " 1 of 1  launch/graph_node  1.20 us\n"
            " 1 measured; a new profile is in use\n");
  EXPECT_EQ(script_.measure.kind(), v1::MEASUREMENT_KIND_FULL);
  EXPECT_THAT(script_.measure.key_prefixes(),
              ::testing::ElementsAre("launch/", "memory/"));
  EXPECT_EQ(script_.measure.budget().seconds(), 30);

  script_.failure = absl::FailedPreconditionError("no worker is installed");
  result = Run({"measure"});
  EXPECT_EQ(result.code, kNotAnswerable);
  EXPECT_EQ(result.err, "fabricwise: no worker is installed\n");
}

TEST_F(CommandTest, CurvesListsAllAndDrawsOne) {
  EXPECT_THAT(Run({"curves"}).out, HasSubstr("all_to_all/n8/nccl/graph"));
  std::string one = Run({"curves", "all_to_all"}).out;
  EXPECT_THAT(one, HasSubstr("cliff  from 112 KiB to 1.75 MiB"));
  EXPECT_THAT(Run({"curves", "--plot"}).out, HasSubstr("no cliff"));
  EXPECT_THAT(Run({"curves", "all_to_all", "--model", "kimi-k2.5"}).out,
              HasSubstr("Kimi-K2.5: from 1 to 16 tokens per GPU"));
  EXPECT_THAT(Run({"curves", "all_to_all", "--format", "csv"}).out,
              StartsWith("key,size,seconds,relative_sigma,basis\n"));
  EXPECT_THAT(Run({"curves", "all_to_all", "--format", "json"}).out,
              ::testing::Not(HasSubstr("all_reduce")));
  Result none = Run({"curves", "broadcast"});
  EXPECT_EQ(none.code, kRefused);
  EXPECT_EQ(none.err,
            "fabricwise: no curve has \"broadcast\" in its key; there are: "
            "all_reduce/n2/nccl/graph, all_to_all/n8/nccl/graph\n");
}

TEST_F(CommandTest, ModelsShowIsOurOwnForm) {
  EXPECT_THAT(Run({"models", "list"}).out, HasSubstr("Kimi-K2.5"));
  v1::ListModelsResponse listed;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  Run({"models", "list", "--format", "json"}).out, &listed)
                  .ok());
  EXPECT_GE(listed.models_size(), 34);
  Result shown = Run({"models", "show", "kimi-k2.5"});
  EXPECT_EQ(shown.code, kAnswered);
  EXPECT_THAT(shown.out, HasSubstr("\"num_experts\": 384"));
  Result unknown = Run({"models", "show", "kimi-k9"});
  EXPECT_EQ(unknown.code, kRefused);
  EXPECT_THAT(unknown.err, HasSubstr("kimi-k9"));
}

TEST_F(CommandTest, HelpAndVersionAreAnswers) {
  Result version = Run({"--version"});
  EXPECT_EQ(version.code, kAnswered);
  EXPECT_THAT(version.out, StartsWith("fabricwise 0."));
  Result help = Run({"recommend", "--help"});
  EXPECT_EQ(help.code, kAnswered);
  EXPECT_THAT(help.out, HasSubstr("--explain"));
  EXPECT_EQ(help.err, "");
}

TEST_F(CommandTest, ProfileExportWritesTheFileWhole) {
  EXPECT_EQ(Run({"profile", "export"}).out, "{}\n");
  std::string path = ::testing::TempDir() + "/exported.json";
  EXPECT_EQ(Run({"profile", "export", "--out", path}).code, kAnswered);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "{}");
  Result odd = Run({"profile", "export", "--out", "/no/such/folder/x"});
  EXPECT_EQ(odd.code, kRefused);
  EXPECT_THAT(odd.err, HasSubstr("cannot write \"/no/such/folder/x\""));
}

}  // namespace
}  // namespace fabricwise
