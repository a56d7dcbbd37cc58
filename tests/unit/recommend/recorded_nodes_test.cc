// SPDX-License-Identifier: Apache-2.0
//
// Advice on the recorded node, one box over three fabrics, beside what was
// reported of such nodes.
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "server/profile/profile_file.h"
#include "server/recommend/advice.h"
#include "tests/support/read_file.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

// Output tokens per second of Qwen3-30B-A3B in `mode` for a burst of chats on
// two H200 over `fabric`.
double TokensPerSecond(const std::string& fabric, EngineId engine,
                       const std::string& mode) {
  const std::string path =
      absl::StrCat("deploy/profiles/h200x2-", fabric, ".json");
  auto data = ReadProfile(path, ReadWholeFile(path));
  EXPECT_TRUE(data.ok()) << data.status();
  if (!data.ok()) return 0;
  Question question;
  question.workload = {
      .concurrency = 256, .input_tokens = 225, .output_tokens = 200};
  question.engines = {engine};
  question.max_plans = kMaxPlans;
  const auto advice = Recommend(**FindPreset("Qwen3-30B-A3B"), question,
                                *BuildOrDie(*std::move(data)));
  EXPECT_TRUE(advice.ok()) << advice.status();
  if (!advice.ok()) return 0;
  for (const PlanAdvice& plan : advice->plans) {
    if (plan.mode == mode) return plan.output_tokens_per_second;
  }
  ADD_FAILURE() << mode << " is not answered on " << path;
  return 0;
}

// "Tensor parallelism: GPU heist gone wrong": Qwen3-30B on H200 in a virtual
// machine without NVLink lost a third of one GPU's throughput on all of them.
TEST(RecordedNode, WithoutPeerAccessRunsReplicasBeforeTensorParallelism) {
  for (EngineId engine : {EngineId::kVllm, EngineId::kSglang}) {
    SCOPED_TRACE(std::string(ToString(engine)));
    for (const char* fabric : {"shm", "net"}) {
      EXPECT_GT(TokensPerSecond(fabric, engine, "2xTP1"),
                TokensPerSecond(fabric, engine, "TP2"))
          << fabric;
    }
    EXPECT_GT(TokensPerSecond("net", engine, "TP1"),
              TokensPerSecond("net", engine, "TP2"));
    // With NVLink two are faster than one.
    EXPECT_GT(TokensPerSecond("p2p", engine, "TP2"),
              TokensPerSecond("p2p", engine, "TP1"));
  }
}

}  // namespace
}  // namespace fabricwise
