// SPDX-License-Identifier: Apache-2.0
#include "server/domain/workload.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::function<void(Question&)> change;
  std::string message;
};

TEST(ValidateQuestionTest, DefaultsAreValid) {
  EXPECT_TRUE(Validate(Question{}).ok());
}

TEST(ValidateQuestionTest, BoundsAreInclusive) {
  Question question;
  question.workload = {.concurrency = kMaxConcurrency,
                       .phase = Phase::kDecode,
                       .input_tokens = kMaxTokens,
                       .output_tokens = kMaxTokens,
                       .context_tokens = kMaxTokens,
                       .routing_skew = 2,
                       .extra_all_reduces = 100'000};
  question.limits.max_tpot_seconds = 0.05;
  question.objective = Objective::kThroughputInLimits;
  question.engines = {EngineId::kVllm, EngineId::kReference};
  question.gpus.count = 1024;
  question.current_mode = "TP8+EP8";
  question.host_seconds_per_step = 0;
  EXPECT_TRUE(Validate(question).ok()) << Validate(question);
}

TEST(ValidateQuestionTest, RefusalsNameFieldValueAndWhatIsAllowed) {
  const std::vector<Case> cases = {
      {[](Question& q) { q.workload.concurrency = 0; },
       "workload.concurrency is 0; allowed: 1 to 1000000"},
      {[](Question& q) { q.workload.concurrency = 1'000'000'000; },
       "workload.concurrency is 1000000000; allowed: 1 to 1000000"},
      {[](Question& q) {
         q.workload.concurrency = std::numeric_limits<int64_t>::min();
       },
       "workload.concurrency is -9223372036854775808; allowed: 1 to 1000000"},
      {[](Question& q) { q.workload.input_tokens = 0; },
       "workload.input_tokens is 0; allowed: 1 to 16777216"},
      {[](Question& q) {
         q.workload.output_tokens = std::numeric_limits<int64_t>::max();
       },
       "workload.output_tokens is 9223372036854775807; allowed: 1 to "
       "16777216"},
      {[](Question& q) { q.workload.context_tokens = -1; },
       "workload.context_tokens is -1; allowed: 0 to 16777216"},
      {[](Question& q) { q.workload.context_tokens = 2048; },
       "workload.context_tokens is 2048 in phase steady; allowed: only in "
       "phase decode"},
      {[](Question& q) { q.workload.routing_skew = kNan; },
       "workload.routing_skew is nan; allowed: 0 to 2"},
      {[](Question& q) { q.workload.routing_skew = 2.5; },
       "workload.routing_skew is 2.5; allowed: 0 to 2"},
      {[](Question& q) { q.workload.extra_all_reduces = -4; },
       "workload.extra_all_reduces is -4; allowed: 0 to 100000"},
      {[](Question& q) { q.limits.max_tpot_seconds = kNan; },
       "limits.max_tpot_seconds is nan; allowed: over 0"},
      {[](Question& q) { q.limits.max_ttft_seconds = 0; },
       "limits.max_ttft_seconds is 0; allowed: over 0"},
      {[](Question& q) { q.limits.max_ttft_seconds = -kInfinity; },
       "limits.max_ttft_seconds is -inf; allowed: over 0"},
      {[](Question& q) {
         q.workload.phase = Phase::kPrefill;
         q.limits.max_tpot_seconds = 0.05;
       },
       "limits.max_tpot_seconds is 0.05 in phase prefill; allowed: no such "
       "limit there; phase prefill predicts no such time"},
      {[](Question& q) {
         q.workload.phase = Phase::kDecode;
         q.limits.max_ttft_seconds = 1;
       },
       "limits.max_ttft_seconds is 1 in phase decode; allowed: no such limit "
       "there; phase decode predicts no such time"},
      {[](Question& q) { q.objective = Objective::kThroughputInLimits; },
       "objective is slo without a limit; allowed: slo with "
       "limits.max_tpot_seconds or limits.max_ttft_seconds"},
      {[](Question& q) {
         q.engines = {EngineId::kVllm, EngineId::kVllm};
       },
       "engine is vllm given twice; allowed: each engine once"},
      {[](Question& q) { q.gpus.count = -1; },
       "gpus.count is -1; allowed: 0 to 1024"},
      {[](Question& q) { q.gpus.count = 1025; },
       "gpus.count is 1025; allowed: 0 to 1024"},
      {[](Question& q) {
         q.gpus.indices = {0, -1};
       },
       "gpus.indices is -1; allowed: 0 to 1023"},
      {[](Question& q) { q.gpus.indices = {1024}; },
       "gpus.indices is 1024; allowed: 0 to 1023"},
      {[](Question& q) {
         q.gpus.indices = {5, 3, 5};
       },
       "gpus.indices is 5 given twice; allowed: each GPU once"},
      {[](Question& q) {
         q.gpus = {.count = 3, .indices = {5, 3}};
       },
       "gpus.count is 3; allowed: 1 to 2, the GPUs that gpus.indices names"},
      {[](Question& q) { q.current_mode = "TP8+EP4"; },
       "current_plan: mode is 'TP8+EP4'; allowed: EP x MTP equal to the 8 "
       "GPUs of a stage"},
      {[](Question& q) { q.host_seconds_per_step = -0.5; },
       "host_seconds_per_step is -0.5; allowed: 0 to 1"},
      {[](Question& q) { q.host_seconds_per_step = kNan; },
       "host_seconds_per_step is nan; allowed: 0 to 1"},
  };
  for (const Case& c : cases) {
    Question question;
    c.change(question);
    const absl::Status status = Validate(question);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_EQ(status.message(), c.message);
  }
}

TEST(WorkloadNamesTest, EveryNameParsesToItsValue) {
  for (const Phase phase :
       {Phase::kSteadyState, Phase::kDecode, Phase::kPrefill}) {
    EXPECT_EQ(ParsePhase(ToString(phase)).value(), phase);
  }
  for (const Objective objective : {Objective::kThroughput, Objective::kLatency,
                                    Objective::kThroughputInLimits}) {
    EXPECT_EQ(ParseObjective(ToString(objective)).value(), objective);
  }
  for (const CostScope scope : {CostScope::kStep, CostScope::kCommunication}) {
    EXPECT_EQ(ParseCostScope(ToString(scope)).value(), scope);
  }
  for (const EngineId engine : {EngineId::kReference, EngineId::kVllm,
                                EngineId::kSglang, EngineId::kTrtllm}) {
    EXPECT_EQ(ParseEngine(ToString(engine)).value(), engine);
  }
}

TEST(WorkloadNamesTest, UnknownNamesAreRefusedWithTheNamesThereAre) {
  EXPECT_EQ(ParsePhase("Decode").status(),
            absl::InvalidArgumentError(
                "phase is 'Decode'; allowed: steady, decode, prefill"));
  EXPECT_EQ(ParseObjective("").status(),
            absl::InvalidArgumentError(
                "objective is ''; allowed: throughput, latency, slo"));
  EXPECT_EQ(ParseCostScope("all").status(),
            absl::InvalidArgumentError(
                "cost_scope is 'all'; allowed: step, communication"));
  EXPECT_EQ(ParseEngine("tgi").status(),
            absl::InvalidArgumentError("engine is 'tgi'; allowed: reference, "
                                       "vllm, sglang, trtllm"));
}

}  // namespace
}  // namespace fabricwise
