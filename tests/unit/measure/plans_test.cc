// SPDX-License-Identifier: Apache-2.0
#include "server/measure/plans.h"

#include <algorithm>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using testing::Contains;
using testing::Not;

std::vector<std::string> Keys(const RunPlan& plan) {
  std::vector<std::string> keys;
  for (const PlanPart& part : plan.parts) {
    for (const MeasurementKey& key : part.keys) keys.push_back(ToString(key));
  }
  return keys;
}

RunPlan Plan(const RunOrder& order, int gpus,
             const std::vector<MeasurementKey>& wanted = {}) {
  auto plan = MakePlan(order, gpus, wanted);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : RunPlan();
}

TEST(Plans, AllKeysAreValidOnceAndCounted) {
  for (const RunKind kind : {RunKind::kQuick, RunKind::kFull}) {
    for (int gpus = 1; gpus <= 16; ++gpus) {
      const RunPlan plan = Plan({.kind = kind}, gpus);
      const std::vector<std::string> keys = Keys(plan);
      EXPECT_EQ(plan.key_count, std::ssize(keys));
      EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), keys.size());
      for (const std::string& key : keys) {
        EXPECT_TRUE(ParseMeasurementKey(key).ok()) << key;
      }
      for (const PlanPart& part : plan.parts) {
        EXPECT_FALSE(part.keys.empty());
        EXPECT_GT(part.budget, absl::ZeroDuration());
      }
    }
  }
}

TEST(Plans, AQuickRunReachesWhereServingLives) {
  const std::vector<std::string> keys =
      Keys(Plan({.kind = RunKind::kQuick}, 8));
  for (const char* key :
       {"all_reduce/n2/nccl/graph/4096B", "all_reduce/n4/nccl/graph/65536B",
        "all_reduce/n8/nccl/graph/4194304B", "all_to_all/n8/nccl/graph/16384B",
        "all_gather/n4/nccl/graph/1048576B", "send_recv/n2/nccl/graph/4096B",
        "reduce_scatter/n2/nccl/graph/67108864B",
        "all_reduce/n8/one_shot/graph/16384B", "memory/read/1073741824B",
        "gemm/bf16/m16n4096k1024", "launch/graph_node",
        "experts/bf16/h2048i768e128k8/tp1ep1/t16",
        "experts/bf16/h7168i2048e256k8/tp1ep8/t256",
        "experts/bf16/h4096i14336e8k2/tp8ep1/t4096",
        "attention/gqa/bf16/b16q1c2048/h32kv8d128",
        "attention/mla/bf16/b64q1c2048/h16kv1d576",
        // 8,192 tokens of prompts of 1,024; 512 that see 4,096.
        "attention/gqa/bf16/b8q1024c1024/h32kv8d128",
        "attention/mla/bf16/b1q512c4352/h16kv1d576",
        "experts/fp8_block/h7168i2048e256k8/tp8ep1/t256"}) {
    EXPECT_THAT(keys, Contains(key));
  }
}

TEST(Plans, AFullRunHoldsAQuickOneAndMore) {
  const std::vector<std::string> full = Keys(Plan({.kind = RunKind::kFull}, 8));
  for (const std::string& key : Keys(Plan({.kind = RunKind::kQuick}, 8))) {
    EXPECT_THAT(full, Contains(key));
  }
  for (const char* key :
       {"all_reduce/n8/nccl/eager/2048B", "all_reduce/n2/nccl/graph/x4/65536B",
        "all_to_all/n8/nccl/graph/a1/16384B",
        "send_recv/n2[3,5]/nccl/graph/1048576B", "gemm/fp8/m1n7168k2048",
        "all_gather/n8/nccl_symmetric/graph/8192B",
        "all_reduce/n8/nccl/graph/268435456B",
        "all_reduce/n8/nccl/graph+gemm/16384B",
        "all_reduce/n2/one_shot/graph+gemm/4096B",
        "experts/bf16/h2880i2880e128k4/tp1ep8/t64",
        "attention/mla/bf16/b16q1c32768/h128kv1d576",
        "attention/gqa/bf16/b1q16384c24576/h64kv8d64",
        "experts/fp8_block/h4096i1536e128k8/tp1ep8/t1024"}) {
    EXPECT_THAT(full, Contains(key));
  }
}

TEST(Plans, GroupsArePowersOfTwoAndTheWholeNode) {
  const std::vector<std::string> keys =
      Keys(Plan({.kind = RunKind::kQuick}, 6));
  EXPECT_THAT(keys, Contains("all_reduce/n6/nccl/graph/4096B"));
  EXPECT_THAT(keys, Contains("all_reduce/n4/nccl/graph/4096B"));
  EXPECT_THAT(keys, Not(Contains("all_reduce/n8/nccl/graph/4096B")));
}

TEST(Plans, ExpertsAreCutAsTheNodeCanCutThem) {
  // No number of experts and no width goes evenly into eleven.
  for (const int gpus : {1, 11}) {
    for (const std::string& key : Keys(Plan({.kind = RunKind::kFull}, gpus))) {
      if (key.starts_with("experts/")) {
        EXPECT_NE(key.find("/tp1ep1/"), std::string::npos) << key;
      }
    }
  }
  // Of 1,536 columns a twelfth is whole blocks of fp8, a sixteenth is not.
  EXPECT_THAT(Keys(Plan({.kind = RunKind::kFull}, 12)),
              Contains("experts/fp8_block/h4096i1536e128k8/tp12ep1/t1"));
  const std::vector<std::string> sixteen =
      Keys(Plan({.kind = RunKind::kFull}, 16));
  EXPECT_THAT(sixteen, Contains("experts/bf16/h4096i1536e128k8/tp16ep1/t1"));
  EXPECT_THAT(sixteen,
              Not(Contains("experts/fp8_block/h4096i1536e128k8/tp16ep1/t1")));
  const std::vector<std::string> two = Keys(Plan({.kind = RunKind::kFull}, 2));
  EXPECT_THAT(two, Contains("experts/bf16/h2048i768e128k8/tp2ep1/t1"));
  EXPECT_THAT(two, Contains("experts/bf16/h2048i768e128k8/tp1ep2/t1"));
}

TEST(Plans, OneGpuHasNoCollectives) {
  for (const std::string& key : Keys(Plan({.kind = RunKind::kFull}, 1))) {
    EXPECT_FALSE(
        std::holds_alternative<CollectiveKey>(ParseMeasurementKey(key).value()))
        << key;
  }
}

TEST(Plans, ServingSizesOfEveryCurveComeBeforeTheRestOfAny) {
  const RunPlan plan = Plan({.kind = RunKind::kFull}, 4);
  bool rest = false;
  for (const MeasurementKey& key : plan.parts[0].keys) {
    const int64_t size = std::get<CollectiveKey>(key).size_bytes;
    const bool serving = size == 4096 || size == 16384 || size == 65536 ||
                         size == 262144 || size == 1048576 || size == 4194304;
    EXPECT_FALSE(serving && rest) << ToString(key);
    rest = rest || !serving;
  }
  EXPECT_TRUE(rest);
}

TEST(Plans, PartsShareTheBudget) {
  for (const RunOrder& order :
       {RunOrder{.kind = RunKind::kQuick}, RunOrder{.kind = RunKind::kFull},
        RunOrder{.kind = RunKind::kFull, .budget = absl::Seconds(7)}}) {
    absl::Duration sum;
    for (const PlanPart& part : Plan(order, 8).parts) sum += part.budget;
    const absl::Duration whole = order.budget.value_or(
        order.kind == RunKind::kFull ? kFullBudget : kQuickBudget);
    EXPECT_NEAR(absl::FDivDuration(sum, whole), 1, 1e-6);
  }
}

TEST(Plans, PrefixesChoose) {
  const std::vector<std::string> keys = Keys(Plan(
      {.kind = RunKind::kQuick, .key_prefixes = {"memory/", "all_reduce/n2/"}},
      4));
  EXPECT_THAT(keys, Contains("memory/copy/1048576B"));
  EXPECT_THAT(keys, Contains("all_reduce/n2/one_shot/graph/4096B"));
  for (const std::string& key : keys) {
    EXPECT_TRUE(key.starts_with("memory/") || key.starts_with("all_reduce/n2/"))
        << key;
  }
  const auto none = MakePlan(
      {.kind = RunKind::kQuick, .key_prefixes = {"gemm/fp8", "x"}}, 4, {});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.status().message(),
            "no key of a quick run on 4 GPUs begins with gemm/fp8 or x");
}

TEST(Plans, WantedKeysAreAddedOnce) {
  const GemmKey known = {.m = 16, .n = 4096, .k = 4096};
  const GemmKey odd = {.m = 17, .n = 4097, .k = 4095};
  const std::vector<std::string> keys =
      Keys(Plan({.kind = RunKind::kQuick}, 2, {known, odd, odd}));
  EXPECT_EQ(std::count(keys.begin(), keys.end(), ToString(known)), 1);
  EXPECT_EQ(std::count(keys.begin(), keys.end(), ToString(odd)), 1);
}

TEST(Plans, ACurveIsAKeyLessWhatMayBeRefined) {
  const auto curve = [](const char* text) {
    return ToString(CurveOf(*ParseMeasurementKey(text)));
  };
  EXPECT_EQ(curve("all_reduce/n2/nccl/graph/4096B"),
            "all_reduce/n2/nccl/graph/1B");
  EXPECT_EQ(curve("gemm/bf16/m16n4096k2048"), "gemm/bf16/m1n4096k2048");
  EXPECT_EQ(curve("memory/read/1048576B"), "memory/read/1B");
  EXPECT_EQ(curve("launch/graph_node"), "launch/graph_node");
  EXPECT_EQ(curve("exchange/deepep_low_latency/dispatch/n8/h7168e256k8/t128"),
            "exchange/deepep_low_latency/dispatch/n8/h7168e256k8/t1");
  EXPECT_EQ(curve("experts/bf16/h2048i768e128k8/tp1ep2/t64"),
            "experts/bf16/h2048i768e128k8/tp1ep2/t1");
  EXPECT_EQ(curve("attention/gqa/bf16/b8q1c2048/h32kv4d128"),
            "attention/gqa/bf16/b8q1c1/h32kv4d128");
}

}  // namespace
}  // namespace fabricwise
