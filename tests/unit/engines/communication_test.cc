// SPDX-License-Identifier: Apache-2.0
//
// How often each engine all-reduces, and that expert parallelism of one
// attention-DP rank changes nothing of what is sent.
#include <algorithm>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

using ::testing::IsEmpty;

struct Case {
  EngineId engine;
  std::string model;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " in " << ToString(c.engine);
}

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  return TestName(absl::StrCat(info.param.model, " in ",
                               std::string(ToString(info.param.engine))));
}

std::vector<Case> Cases(bool moe_only) {
  std::vector<Case> cases;
  for (const ModelShape& model : Presets()) {
    if (moe_only && !model.is_moe()) continue;
    for (EngineId engine : ServingEngines()) {
      cases.push_back({engine, model.name});
    }
  }
  return cases;
}

const std::vector<Fingerprint>& Nodes() {
  static const auto* const nodes =
      new std::vector<Fingerprint>{Node(8), Box("NVIDIA B200", 8, true, true)};
  return *nodes;
}

// ---- All-reduces of a step

class AllReduces : public testing::TestWithParam<Case> {};

// TensorRT-LLM's code for these has the whole embedding on every GPU.
bool HasWholeEmbedding(const Case& c) {
  static constexpr const char* kTypes[] = {"deepseek_v3", "deepseek_v32",
                                           "deepseek_v4", "kimi_k2",
                                           "glm_moe_dsa", "glm4_moe"};
  return c.engine == EngineId::kTrtllm &&
         std::find(std::begin(kTypes), std::end(kTypes),
                   Preset(c.model).model_type) != std::end(kTypes);
}

TEST_P(AllReduces, AreTwoALayerAndOneOfTheEmbedding) {
  const ModelShape& model = Preset(GetParam().model);
  int checked = 0;
  for (const int t : {2, 4, 8}) {
    const std::string mode = absl::StrCat("TP", t);
    if (!RefusalOf(GetParam().engine, model, mode).empty()) continue;
    ++checked;
    const Recipe recipe = RecipeOf(GetParam().engine, model, mode);
    EXPECT_EQ(CountOf(recipe, CollectiveOp::kAllReduce),
              static_cast<double>(2 * model.num_layers) +
                  (HasWholeEmbedding(GetParam()) ? 0 : 1))
        << mode;
    EXPECT_EQ(CollectiveOf(recipe, "all_gather logits").count, 1) << mode;
    for (const CollectiveUse& use : recipe.collectives) {
      if (use.steps[0].op != CollectiveOp::kAllReduce) continue;
      EXPECT_EQ(use.group_size, t) << use.name;
      EXPECT_EQ(use.steps[0].bytes_per_token,
                static_cast<double>(2 * model.hidden_size))
          << use.name;
    }
  }
  EXPECT_GT(checked, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, AllReduces, testing::ValuesIn(Cases(false)),
                         NameOf);

TEST(AllReducesOfKimi, Are123InVllmAndSglangAnd122InTrtllm) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  ASSERT_EQ(kimi.num_layers, 61);
  ASSERT_EQ(kimi.num_moe_layers, 60);
  for (EngineId engine : ServingEngines()) {
    const bool trtllm = engine == EngineId::kTrtllm;
    for (const char* mode : {"TP8", "TP8+EP8"}) {
      SCOPED_TRACE(
          absl::StrCat(std::string(ToString(engine)), ", ", std::string(mode)));
      const Recipe recipe = RecipeOf(engine, kimi, mode);
      EXPECT_EQ(CountOf(recipe, CollectiveOp::kAllReduce), trtllm ? 122 : 123);
      EXPECT_EQ(CollectiveOf(recipe, "all_reduce attention").count, 61);
      EXPECT_EQ(CollectiveOf(recipe, "all_reduce experts").count, 60);
      EXPECT_EQ(CollectiveOf(recipe, "all_reduce dense layers").count, 1);
      EXPECT_EQ(CountOf(recipe, CollectiveOp::kAllGather), 1);  // logits
    }
  }
}

// ---- Tensor parallelism with and without expert parallelism

class ExpertParallelism : public testing::TestWithParam<Case> {};

TEST_P(ExpertParallelism, OfOneDataParallelRankSendsWhatTensorParallelismDoes) {
  const EngineId engine = GetParam().engine;
  const ModelShape& model = Preset(GetParam().model);
  int checked = 0;
  for (const Fingerprint& node : Nodes()) {
    for (const int t : {2, 4, 8}) {
      const std::string sliced = absl::StrCat("TP", t);
      const std::string whole = absl::StrCat("TP", t, "+EP", t);
      if (!RefusalOf(engine, model, sliced, node).empty() ||
          !RefusalOf(engine, model, whole, node).empty()) {
        continue;
      }
      ++checked;
      const Recipe tp = RecipeOf(engine, model, sliced, node);
      const Recipe ep = RecipeOf(engine, model, whole, node);
      EXPECT_EQ(Lines(tp), Lines(ep)) << whole;
      EXPECT_THAT(tp.exchanges, IsEmpty()) << sliced;
      EXPECT_THAT(ep.exchanges, IsEmpty()) << whole;
      ASSERT_EQ(tp.collectives.size(), ep.collectives.size());
      for (size_t i = 0; i < tp.collectives.size(); ++i) {
        EXPECT_EQ(tp.collectives[i].paths, ep.collectives[i].paths) << whole;
        EXPECT_EQ(tp.collectives[i].only, ep.collectives[i].only) << whole;
      }
      EXPECT_EQ(tp.fused.count, ep.fused.count) << whole;
    }
  }
  EXPECT_GT(checked, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, ExpertParallelism, testing::ValuesIn(Cases(true)),
                         NameOf);

}  // namespace
}  // namespace fabricwise
