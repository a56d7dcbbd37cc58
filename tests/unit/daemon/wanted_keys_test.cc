// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/wanted_keys.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"

namespace fabricwise {
namespace {

using testing::Contains;
using testing::IsEmpty;

std::vector<std::string> Wanted(std::initializer_list<const char*> presets,
                                size_t gpus) {
  std::vector<ModelShape> models;
  for (const char* preset : presets) {
    models.push_back(*FindPreset(preset).value());
  }
  Fingerprint node;
  node.gpus.resize(gpus, Gpu{.memory_bytes = int64_t{141} << 30});
  std::vector<std::string> keys;
  for (const MeasurementKey& key : WantedKeys(models, node)) {
    keys.push_back(ToString(key));
  }
  return keys;
}

TEST(WantedKeys, AreTheProductsOfTheModelOnTheNode) {
  const std::vector<std::string> keys = Wanted({"Llama-3.1-8B"}, 2);
  // Hidden 4096, intermediate 14336: whole, and halved by TP2.
  EXPECT_THAT(keys, Contains("gemm/bf16/m16n4096k14336"));
  EXPECT_THAT(keys, Contains("gemm/bf16/m16n4096k7168"));
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), keys.size());
  for (const std::string& key : keys) {
    EXPECT_TRUE(ParseMeasurementKey(key).ok()) << key;
  }
}

TEST(WantedKeys, AreTheExpertsAndTheAttentionOfItsPlans) {
  const std::vector<std::string> keys = Wanted({"Qwen3-30B-A3B"}, 2);
  for (const char* key : {"experts/bf16/h2048i768e128k8/tp1ep1/t16",
                          "experts/bf16/h2048i768e128k8/tp2ep1/t256",
                          "experts/bf16/h2048i768e128k8/tp1ep2/t2048",
                          "attention/gqa/bf16/b32q1c8192/h32kv4d128",
                          "attention/gqa/bf16/b1q1c1024/h16kv2d128",
                          "attention/gqa/bf16/b8q1024c1024/h16kv2d128",
                          "attention/gqa/bf16/b1q512c4352/h32kv4d128"}) {
    EXPECT_THAT(keys, Contains(key));
  }
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), keys.size());
}

TEST(WantedKeys, AreBoundedHoweverManyModels) {
  const std::vector<std::string> keys =
      Wanted({"Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B", "Qwen3-32B",
              "Mixtral-8x22B", "Phi-4"},
             8);
  EXPECT_EQ(keys.size(), size_t{kMostWantedKeys});
  EXPECT_THAT(keys, Contains("gemm/bf16/m16n4096k14336")) << "the first's";
}

TEST(WantedKeys, AreTheExpertsInBlocksOfFp8) {
  EXPECT_THAT(Wanted({"DeepSeek-V3"}, 8),
              Contains("experts/fp8_block/h7168i2048e256k8/tp1ep8/t64"));
}

TEST(WantedKeys, LeaveOutFormatsThatTheWorkerDoesNotMeasure) {
  for (const std::string& key : Wanted({"Kimi-K2.5"}, 8)) {
    EXPECT_EQ(key.find("int4"), std::string::npos) << key;
  }
}

TEST(WantedKeys, OfNothingAreNone) { EXPECT_THAT(Wanted({}, 8), IsEmpty()); }

}  // namespace
}  // namespace fabricwise
