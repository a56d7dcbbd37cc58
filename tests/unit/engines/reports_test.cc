// SPDX-License-Identifier: Apache-2.0
//
// What users reported of models that do not load and of nodes that are sick, as
// far as it can be told before anything is timed: one row a report and mode.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr EngineId kVllm = EngineId::kVllm, kSglang = EngineId::kSglang,
                   kTrtllm = EngineId::kTrtllm;

constexpr WeightFormat kFp8{NumberFormat::kFp8Block};
constexpr WeightFormat kInt4Of128{NumberFormat::kInt4Group, 128};

// ---- Models that do not load

ModelShape Experts(int64_t width, const WeightFormat& format) {
  ModelShape model = Preset("Qwen3-235B-A22B");
  model.moe_intermediate_size = width;
  model.expert_weights = format;
  return model;
}

struct Loading {
  const char* report;
  EngineId engine;
  ModelShape model;
  const char* mode;
  const char* share;  // that does not divide; empty: it loads
};

TEST(Reports, OfWidthsThatDoNotDivideAreRefusedAndTheirRemediesAreNot) {
  const ModelShape flash = Experts(640, kFp8), minimax = Preset("MiniMax-M2.5"),
                   gptq = Experts(1536, kInt4Of128),
                   qwen36 = Experts(512, kFp8), v4_pro = Experts(3072, kFp8),
                   r1 = Preset("DeepSeek-R1");
  const Loading rows[] = {
      {"vllm#54178, Qwen3.8-Flash-Next-FP8", kVllm, flash, "TP2", "= 320"},
      {"vllm#54178, Qwen3.8-Flash-Next-FP8", kVllm, flash, "TP4", "= 160"},
      {"vllm#54178, Qwen3.8-Flash-Next-FP8", kVllm, flash, "TP8", "= 80"},
      {"vllm#54178, Qwen3.8-Flash-Next-FP8", kVllm, flash, "TP2+EP2", ""},
      {"vllm#54178, Qwen3.8-Flash-Next-FP8", kVllm, flash, "TP8+EP8", ""},
      {"vllm#54178, Qwen3.8-Flash-Next-FP8", kSglang, flash, "TP8", "= 80"},
      {"vllm#54178, Qwen3.8-Flash-Next-FP8", kSglang, flash, "TP8+EP8", ""},
      {"vllm#48173, MiniMax-M2.7", kVllm, minimax, "TP8", "= 192"},
      {"vllm#48173, MiniMax-M2.7", kVllm, minimax, "TP4", ""},
      {"vllm#48173, MiniMax-M2.7", kVllm, minimax, "TP8+EP8", ""},
      {"vllm#48173, MiniMax-M2.7", kSglang, minimax, "TP8", "= 192"},
      {"vllm#17604, Qwen3-235B GPTQ-Int4", kVllm, gptq, "TP8", "= 192"},
      {"vllm#17604, Qwen3-235B GPTQ-Int4", kVllm, gptq, "TP4", ""},
      {"vllm#17604, Qwen3-235B GPTQ-Int4", kVllm, gptq, "TP8+EP8", ""},
      {"vllm#17604, Qwen3-235B GPTQ-Int4", kSglang, gptq, "TP8", "= 192"},
      {"vllm#17604, Qwen3-235B GPTQ-Int4", kSglang, gptq, "TP8+EP8", ""},
      {"vllm#52997, Qwen3.6-35B-A3B-FP8", kVllm, qwen36, "TP8", "= 64"},
      {"vllm#52997, Qwen3.6-35B-A3B-FP8", kVllm, qwen36, "TP4", ""},
      {"vllm#52997, Qwen3.6-35B-A3B-FP8", kVllm, qwen36, "TP8+EP8", ""},
      {"vllm#42384, DeepSeek-V4-Pro", kVllm, v4_pro, "TP16", "= 192"},
      {"vllm#42384, DeepSeek-V4-Pro", kVllm, v4_pro, "TP8", ""},
      {"vllm#42384, DeepSeek-V4-Pro", kVllm, v4_pro, "TP16+EP16", ""},
      {"vllm#42384, DeepSeek-V4-Pro", kSglang, v4_pro, "TP16", "= 192"},
      {"vllm#42384, DeepSeek-V4-Pro", kSglang, v4_pro, "TP8", ""},
      {"vllm#42384, DeepSeek-V4-Pro", kSglang, v4_pro, "TP16+EP16", ""},
      {"sglang#3345, DeepSeek-R1", kSglang, r1, "TP32", "fp8 block 128"},
      {"sglang#3345, DeepSeek-R1", kSglang, r1, "TP32+EP32", "= 576"},
      {"sglang#3345, DeepSeek-R1", kSglang, r1, "TP16", ""},
      {"sglang#3345, DeepSeek-R1", kVllm, r1, "TP32+EP32", "= 576"},
      {"sglang#3345, DeepSeek-R1", kVllm, r1, "TP16", ""},
      {"Kimi-K2 INT4 g32 at Marlin's limit", kVllm, Preset("Kimi-K2.5"), "TP32",
       ""},
      {"Kimi-K2 INT4 g32 at Marlin's limit", kSglang, Preset("Kimi-K2.5"),
       "TP32", ""},
      {"Kimi-K2 INT4 g32 at Marlin's limit", kSglang, Preset("Kimi-K2.5"),
       "TP64", "= 32"},
      {"heads, in each engine", kVllm, r1, "TP3", "num_attention_heads 128"},
      {"heads, in each engine", kSglang, r1, "TP3", "num_attention_heads 128"},
      {"heads, in each engine", kTrtllm, r1, "TP3", "num_attention_heads 128"},
  };
  for (const Loading& row : rows) {
    const std::string refusal =
        RefusalOf(row.engine, row.model, row.mode, Node(64));
    const std::string what = std::string(row.report) + ", " + row.mode;
    if (std::string(row.share).empty()) {
      EXPECT_EQ(refusal, "") << what;
    } else {
      EXPECT_THAT(refusal, HasSubstr(row.share)) << what;
    }
  }
}

// ---- Nodes that are sick

struct Sick {
  const char* report;
  Fingerprint node;
  const char* mode;
  bool without_custom;        // all-reduce: the flag that leaves it out
  bool without_p2p;           // of NCCL: the variable
  bool takes_custom = false;  // the recipe, for messages that are short enough
};

Fingerprint With(Fingerprint node, const char* fact) {
  node.facts = {fact};
  return node;
}

TEST(Reports, OfSickNodesGetTheirRemedies) {
  const Fingerprint geforce = Box("NVIDIA GeForce RTX 4090", 8, false, false);
  const Fingerprint pro = Box("NVIDIA RTX PRO 6000", 2, false, false);
  const Fingerprint ada =
      Box("NVIDIA RTX 5880 Ada Generation", 2, false, false);
  const Sick rows[] = {
      {"sglang#4814: peer access not supported", geforce, "TP2", true, false},
      {"sglang#4814, without peers to talk to", geforce, "2xTP1", false, false},
      {"NCCL#1999: ACS redirects", With(pro, "acs=redirect"), "TP2", true,
       true},
      {"NCCL#2079: the IOMMU translates", With(ada, "iommu=on"), "TP2", true,
       true},
      {"vllm#56128: four GPUs on PCIe",
       Box("NVIDIA RTX PRO 6000", 4, false, true), "TP4", false, false},
      {"vllm#39040: two GPUs on PCIe",
       Box("NVIDIA RTX PRO 6000", 4, false, true), "TP2", false, false, true},
      {"eight healthy GPUs on NVLink", Node(8), "TP8", false, false, true},
  };
  const ModelShape& model = Preset("Llama-3.1-70B");
  for (EngineId engine : {kVllm, kSglang}) {
    for (const Sick& row : rows) {
      SCOPED_TRACE(std::string(row.report) + ", " +
                   std::string(ToString(engine)));
      const Plan plan = PlanOf(model, row.mode);
      const LaunchAdvice launch =
          GetEngine(engine).Launch(model, plan, {}, row.node, Gpus(plan));
      const char* const flag = " --disable-custom-all-reduce";
      if (row.without_custom) {
        EXPECT_THAT(launch.commands[0], HasSubstr(flag));
      } else {
        EXPECT_THAT(launch.commands[0], Not(HasSubstr(flag)));
      }
      EXPECT_EQ(launch.environment,
                row.without_p2p ? std::vector<std::string>{"NCCL_P2P_DISABLE=1"}
                                : std::vector<std::string>());
      const Recipe recipe = RecipeOf(engine, model, row.mode, row.node);
      bool custom = false;
      for (const CollectiveUse& use : recipe.collectives) {
        if (use.steps[0].op != CollectiveOp::kAllReduce) continue;
        EXPECT_EQ(use.paths.back().implementation, CollectiveImpl::kNccl);
        custom = custom || use.paths.size() > 1;
      }
      EXPECT_EQ(custom, row.takes_custom);
    }
  }
}

}  // namespace
}  // namespace fabricwise
