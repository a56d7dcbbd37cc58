// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/scenario.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

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
  EXPECT_EQ(scenario.model.name, "Llama-3.1-8B");
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
        "e: model=Kimi-K2.5 concurrency=8 plan-options=tbo,fp8d",
        "f: model=Llama-3.1-8B-Instruct concurrency=8 objective=slo "
        "ttft-ms=250 tpot-ms=20.5"}) {
    const Scenario scenario = ParseScenario(text).value();
    const std::string printed = ToString(scenario);
    EXPECT_EQ(ToString(ParseScenario(printed).value()), printed);
    EXPECT_EQ(ParseScenario(printed)->question, scenario.question);
  }
  EXPECT_EQ(ToString(ParseScenario("a:concurrency=1 phase=steady "
                                   "model=Qwen3-8B input-tokens=1024")
                         .value()),
            "a: model=Qwen3-8B concurrency=1");
}

TEST(Scenario, HasTheLimitsOfTheFlagsOfTheSameNames) {
  const Scenario scenario =
      ParseScenario(
          "a: model=meta-llama/Llama-3.1-8B-Instruct concurrency=1 "
          "objective=slo ttft-ms=250 tpot-ms=20.5")
          .value();
  EXPECT_EQ(scenario.model.repository, "meta-llama/Llama-3.1-8B-Instruct");
  EXPECT_EQ(scenario.question.objective, Objective::kThroughputInLimits);
  EXPECT_DOUBLE_EQ(scenario.question.limits.max_ttft_seconds, 0.25);
  EXPECT_DOUBLE_EQ(scenario.question.limits.max_tpot_seconds, 0.0205);
  EXPECT_THAT(ToString(scenario),
              HasSubstr("objective=slo ttft-ms=250 tpot-ms=20.5"));
}

TEST(Scenario, HasAModelOfItsOwn) {
  const std::string folder = testing::TempDir() + "ours";
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/config.json";
  std::ofstream(file) << R"({"model_type": "llama", "hidden_size": 512,
      "num_hidden_layers": 2, "vocab_size": 1000, "num_attention_heads": 8,
      "num_key_value_heads": 8, "intermediate_size": 1024})";
  const std::string text = "a: config=" + file + " concurrency=4";
  const absl::StatusOr<Scenario> scenario = ParseScenario(text);
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  EXPECT_EQ(scenario->model.name, "ours");
  EXPECT_EQ(scenario->model.hidden_size, 512);
  EXPECT_EQ(scenario->model.repository, folder);
  EXPECT_EQ(ToString(*scenario), text);
  std::filesystem::remove_all(folder);
  const absl::Status gone = ParseScenario(text).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), HasSubstr(file + ": no such file"));
}

TEST(Scenario, SaysWhatIsOff) {
  for (const auto& [text, message] : {
           std::pair("no colon", "a scenario is 'no colon'; allowed: NAME: "),
           std::pair("-a: model=Qwen3-8B concurrency=1",
                     "a scenario's name is '-a'; allowed: 1 to 45 letters"),
           std::pair("a b: model=Qwen3-8B concurrency=1", "'a b'"),
           std::pair(": model=Qwen3-8B concurrency=1", "a scenario's name"),
           std::pair("a: concurrency=1",
                     "scenario a has no model= and no config="),
           std::pair("a: config=deploy concurrency=1",
                     "deploy: not a plain file"),
           std::pair("a: config= concurrency=1",
                     "config is empty; allowed: the path of a config.json"),
           std::pair("a: model=Qwen3-8B concurrency=1 tpot-ms=fast",
                     "tpot-ms is 'fast'; allowed: a number of milliseconds"),
           std::pair("a: model=Qwen3-8B concurrency=1 ttft-ms=0", "ttft-ms"),
           std::pair("a: model=Qwen3-8B concurrency=1 ttft-ms=inf", "ttft-ms"),
           std::pair("a: model=Qwen3-8B concurrency=1 objective=slo", "limits"),
           std::pair("a: model=Qwen3-8B concurrency=1 phase=prefill tpot-ms=1",
                     "max_tpot_seconds"),
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
