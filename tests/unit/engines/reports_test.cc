// SPDX-License-Identifier: Apache-2.0
//
// What users reported of models that do not load and of nodes that are sick, as
// far as it can be told before anything is timed: one test a report, engine and
// mode, under the number that the case has among those collected (TC30 on).
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

constexpr char kFlash[] = "TC30 vllm#54178 Qwen3.8-Flash-Next-FP8";
constexpr char kMinimax[] = "TC31 vllm#48173 MiniMax-M2.7";
constexpr char kGptq[] = "TC32 vllm#17604 Qwen3-235B GPTQ-Int4";
constexpr char kQwen36[] = "TC33 vllm#52997 Qwen3.6-35B-A3B-FP8";
constexpr char kV4Pro[] = "TC33 vllm#42384 DeepSeek-V4-Pro";
constexpr char kR1[] = "TC33 sglang#3345 DeepSeek-R1";

struct Loading {
  const char* report;
  EngineId engine;
  ModelShape model;
  const char* mode;
  const char* share;  // that does not divide; empty: it loads
};

void PrintTo(const Loading& row, std::ostream* out) { *out << row.report; }

std::vector<Loading> Loadings() {
  const ModelShape flash = Experts(640, kFp8), minimax = Preset("MiniMax-M2.5"),
                   gptq = Experts(1536, kInt4Of128),
                   qwen36 = Experts(512, kFp8), v4_pro = Experts(3072, kFp8),
                   r1 = Preset("DeepSeek-R1");
  return {
      {kFlash, kVllm, flash, "TP2", "= 320"},
      {kFlash, kVllm, flash, "TP4", "= 160"},
      {kFlash, kVllm, flash, "TP8", "= 80"},
      {kFlash, kVllm, flash, "TP2+EP2", ""},
      {kFlash, kVllm, flash, "TP8+EP8", ""},
      {kFlash, kSglang, flash, "TP8", "= 80"},
      {kFlash, kSglang, flash, "TP8+EP8", ""},
      {kMinimax, kVllm, minimax, "TP8", "= 192"},
      {kMinimax, kVllm, minimax, "TP4", ""},
      {kMinimax, kVllm, minimax, "TP8+EP8", ""},
      {kMinimax, kSglang, minimax, "TP8", "= 192"},
      {kGptq, kVllm, gptq, "TP8", "= 192"},
      {kGptq, kVllm, gptq, "TP4", ""},
      {kGptq, kVllm, gptq, "TP4+EP4", ""},
      {kGptq, kVllm, gptq, "TP8+EP8", ""},
      {kGptq, kSglang, gptq, "TP8", "= 192"},
      {kGptq, kSglang, gptq, "TP8+EP8", ""},
      {kQwen36, kVllm, qwen36, "TP8", "= 64"},
      {kQwen36, kVllm, qwen36, "TP4", ""},
      {kQwen36, kVllm, qwen36, "TP8+EP8", ""},
      {kV4Pro, kVllm, v4_pro, "TP16", "= 192"},
      {kV4Pro, kVllm, v4_pro, "TP8", ""},
      {kV4Pro, kVllm, v4_pro, "TP16+EP16", ""},
      {kV4Pro, kSglang, v4_pro, "TP16", "= 192"},
      {kV4Pro, kSglang, v4_pro, "TP8", ""},
      {kV4Pro, kSglang, v4_pro, "TP16+EP16", ""},
      {kR1, kSglang, r1, "TP32", "fp8 block 128"},
      {kR1, kSglang, r1, "TP32+EP32", "= 576"},
      {kR1, kSglang, r1, "TP16", ""},
      {kR1, kVllm, r1, "TP32+EP32", "= 576"},
      {kR1, kVllm, r1, "TP16", ""},
      {"heads", kVllm, r1, "TP3", "num_attention_heads 128"},
      {"heads", kSglang, r1, "TP3", "num_attention_heads 128"},
      {"heads", kTrtllm, r1, "TP3", "num_attention_heads 128"},
  };
}

class ReportedLoading : public testing::TestWithParam<Loading> {};

TEST_P(ReportedLoading, IsRefusedAndItsRemedyIsNot) {
  const Loading& row = GetParam();
  ExpectRefusal(row.engine, row.model, row.mode, std::string(row.share));
}

INSTANTIATE_TEST_SUITE_P(Of, ReportedLoading, testing::ValuesIn(Loadings()),
                         [](const testing::TestParamInfo<Loading>& of) {
                           const Loading& row = of.param;
                           return TestName(
                               absl::StrCat(std::string(row.report), " ",
                                            std::string(row.mode), " in ",
                                            std::string(ToString(row.engine))));
                         });

// ---- Nodes that are sick

struct Sick {
  const char* report;
  Fingerprint node;
  const char* mode;
  bool without_custom;        // all-reduce: the flag that leaves it out
  bool without_p2p;           // of NCCL: the variable
  bool takes_custom = false;  // the recipe, for messages that are short enough
  EngineId engine = kVllm;
};

void PrintTo(const Sick& row, std::ostream* out) { *out << row.report; }

Fingerprint With(Fingerprint node, const char* fact) {
  node.facts = {fact};
  return node;
}

std::vector<Sick> SickNodes() {
  const Fingerprint geforce = Box("NVIDIA GeForce RTX 4090", 8, false, false);
  const Fingerprint pro = Box("NVIDIA RTX PRO 6000", 2, false, false);
  const Fingerprint ada =
      Box("NVIDIA RTX 5880 Ada Generation", 2, false, false);
  const Fingerprint pcie4 = Box("NVIDIA RTX PRO 6000", 4, false, true);
  const Sick rows[] = {
      {"TC40 sglang#4814 peer access not supported", geforce, "TP2", true,
       false},
      {"TC40 sglang#4814 without peers to talk to", geforce, "2xTP1", false,
       false},
      {"TC41 NCCL#1999 ACS redirects", With(pro, "acs=redirect"), "TP2", true,
       true},
      {"TC41 NCCL#2079 the IOMMU translates", With(ada, "iommu=on"), "TP2",
       true, true},
      {"TC41 vllm#33041 copies over NVLink do not work",
       Box("NVIDIA H200", 8, true, false), "TP8", true, true},
      {"TC43 vllm#56128 four GPUs on PCIe", pcie4, "TP4", false, false},
      {"TC43 vllm#39040 two GPUs on PCIe", pcie4, "TP2", false, false, true},
      {"TC45 untuned NCCL gets no hint that was not measured",
       Box("NVIDIA RTX PRO 6000", 8, false, true), "TP8", false, false},
      {"eight healthy GPUs on NVLink", Node(8), "TP8", false, false, true},
  };
  std::vector<Sick> all;
  for (EngineId engine : {kVllm, kSglang}) {
    for (Sick row : rows) {
      row.engine = engine;
      all.push_back(std::move(row));
    }
  }
  return all;
}

class ReportedNode : public testing::TestWithParam<Sick> {};

TEST_P(ReportedNode, GetsItsRemedy) {
  const Sick& row = GetParam();
  const ModelShape& model = Preset("Llama-3.1-70B");
  const Plan plan = PlanOf(model, row.mode);
  const LaunchAdvice launch =
      GetEngine(row.engine).Launch(model, plan, {}, row.node, Gpus(plan));
  const char* const flag = " --disable-custom-all-reduce";
  if (row.without_custom) {
    EXPECT_THAT(launch.commands[0], HasSubstr(flag));
  } else {
    EXPECT_THAT(launch.commands[0], Not(HasSubstr(flag)));
  }
  std::vector<std::string> of_nccl;
  for (const std::string& variable : launch.environment) {
    if (variable.rfind("NCCL_", 0) == 0) of_nccl.push_back(variable);
  }
  EXPECT_EQ(of_nccl, row.without_p2p
                         ? std::vector<std::string>{"NCCL_P2P_DISABLE=1"}
                         : std::vector<std::string>());
  const Recipe recipe = RecipeOf(row.engine, model, row.mode, row.node);
  bool custom = false;
  for (const CollectiveUse& use : recipe.collectives) {
    if (use.steps[0].op != CollectiveOp::kAllReduce) continue;
    EXPECT_EQ(use.paths.back().implementation, CollectiveImpl::kNccl);
    custom = custom || use.paths.size() > 1;
  }
  EXPECT_EQ(custom, row.takes_custom);
  if (!custom) {
    EXPECT_EQ(recipe.fused.count, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ReportedNode, testing::ValuesIn(SickNodes()),
                         [](const testing::TestParamInfo<Sick>& of) {
                           const Sick& row = of.param;
                           return TestName(
                               absl::StrCat(std::string(row.report), " ",
                                            std::string(row.mode), " in ",
                                            std::string(ToString(row.engine))));
                         });

}  // namespace
}  // namespace fabricwise
