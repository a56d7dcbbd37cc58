// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/scenario.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

TEST(Scenario, IsAQuestionInOneLine) {
  const Scenario scenario =
      ParseScenario(
          " chat-8 :  model=llama-3.1-8b concurrency=64 engine=vllm "
          "phase=decode objective=latency context-tokens=2048 gpus=2 "
          "gpu-indices=3,1")
          .value();
  EXPECT_EQ(scenario.name, "chat-8");
  EXPECT_EQ(scenario.model, "Llama-3.1-8B");
  const Question& question = scenario.question;
  EXPECT_EQ(question.workload.concurrency, 64);
  EXPECT_EQ(question.workload.phase, Phase::kDecode);
  EXPECT_EQ(question.workload.context_tokens, 2048);
  EXPECT_EQ(question.engines, std::vector{EngineId::kVllm});
  EXPECT_EQ(question.objective, Objective::kLatency);
  EXPECT_EQ(question.gpus.count, 2);
  EXPECT_EQ(question.gpus.indices, (std::vector{3, 1}));
}

TEST(Scenario, PrintsBackWhatIsNoDefault) {
  for (const char* text :
       {"a: model=Qwen3-30B-A3B concurrency=1",
        "b.2: model=Qwen3-8B concurrency=8 engine=reference phase=prefill "
        "objective=throughput input-tokens=2048 output-tokens=128 gpus=1",
        "c_3: model=Qwen3-8B concurrency=8 phase=decode context-tokens=512",
        "d: model=Qwen3-8B concurrency=8 gpus=2 gpu-indices=4,5,7",
        "e: model=Kimi-K2.5 concurrency=8 plan-options=tbo,fp8d"}) {
    const Scenario scenario = ParseScenario(text).value();
    const std::string printed = ToString(scenario);
    EXPECT_EQ(ToString(ParseScenario(printed).value()), printed);
  }
  EXPECT_EQ(ToString(ParseScenario("a:concurrency=1 phase=steady "
                                   "model=Qwen3-8B input-tokens=1024")
                         .value()),
            "a: model=Qwen3-8B concurrency=1");
}

TEST(Scenario, SaysWhatIsOff) {
  for (const auto& [text, message] : {
           std::pair("no colon", "a scenario is 'no colon'; allowed: NAME: "),
           std::pair("-a: model=Qwen3-8B concurrency=1",
                     "a scenario's name is '-a'; allowed: 1 to 45 letters"),
           std::pair("a b: model=Qwen3-8B concurrency=1", "'a b'"),
           std::pair(": model=Qwen3-8B concurrency=1", "a scenario's name"),
           std::pair("a: concurrency=1", "scenario a has no model="),
           std::pair("a: model=Qwen3-8B", "scenario a has no concurrency="),
           std::pair("a: model=Qwen3-8B concurrency=many",
                     "concurrency is 'many'; allowed: 1 to 1000000"),
           std::pair("a: model=Qwen3-8B concurrency=0", "concurrency"),
           std::pair("a: model=Qwen3-8B concurrency=1 gpus=0", "gpus"),
           std::pair("a: model=Qwen3-8B concurrency=1 gpu-indices=1,,2",
                     "gpu-indices is ''; allowed: 0 to 1023"),
           std::pair("a: model=Qwen3-8B concurrency=1 gpu-indices=2,2",
                     "gpus.indices is 2 given twice"),
           std::pair("a: model=Qwen3-8B concurrency=1 plan-options=sbo",
                     "plan-options is 'sbo'; allowed: tbo, fp8d"),
           std::pair("a: model=Qwen3-8B concurrency=1 users=3",
                     "a scenario's part is 'users=3'; allowed: model="),
           std::pair("a: model=Qwen3-8B concurrency=1 concurrency=2",
                     "concurrency is given twice"),
           std::pair("a: model=Qwen3-8B concurrency=1 engine=best", "'best'"),
           std::pair("a: model=Qwen3-8B concurrency=1 phase=x", "'x'"),
           std::pair("a: model=Qwen3-8B concurrency=1 objective=x", "'x'"),
           std::pair("a: model=Qwen3-8B concurrency=1 context-tokens=9",
                     "context_tokens"),
       }) {
    const absl::Status status = ParseScenario(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << text;
  }
  const absl::Status status =
      ParseScenario("a: model=Qwen3-8X concurrency=1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Qwen3-8B"));
}

}  // namespace
}  // namespace fabricwise
