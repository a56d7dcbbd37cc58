// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engines/engine.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum CollectiveOp;

constexpr EngineId kReference = EngineId::kReference;

TEST(Engines, AreFoundByTheirId) {
  EXPECT_THAT(AllEngines(), ElementsAre(EngineId::kReference, EngineId::kVllm,
                                        EngineId::kSglang, EngineId::kTrtllm));
  for (EngineId id : AllEngines()) {
    EXPECT_EQ(GetEngine(id).id(), id);
    EXPECT_FALSE(GetEngine(id).version().empty());
  }
}

TEST(Reference, RunsBareLayersWithoutEdges) {
  const Recipe recipe = RecipeOf(kReference, Preset("Kimi-K2.5"), "TP8");
  EXPECT_EQ(CountOf(recipe, kAllReduce), 2 * 61);
  EXPECT_EQ(CountOf(recipe, kAllGather), 0);
  for (const GemmUse& use : recipe.gemms) {
    EXPECT_EQ(use.section, Section::kLayers) << use.name;
  }
}

TEST(Reference, AllowsEveryWayForExpertTokens) {
  const Engine& engine = GetEngine(kReference);
  EXPECT_THAT(
      engine.Transports(1),
      ElementsAre(ExpertTransport::kNone, ExpertTransport::kNcclAllToAll));
  EXPECT_THAT(engine.Transports(4),
              ElementsAre(ExpertTransport::kAllGatherReduceScatter,
                          ExpertTransport::kNcclAllToAll));
  const ModelShape& qwen = Preset("Qwen3-235B-A22B-FP8");
  // 192 is no multiple of an fp8 block, which is a serving engine's rule.
  for (const char* mode : {"TP8", "TP8+EP4xMTP2", "TP8+EP8:a2a", "DP8",
                           "DP2xTP4+EP2xMTP4", "PP2xDP2xTP2+EP4:a2a"}) {
    EXPECT_EQ(RefusalOf(kReference, qwen, mode), "") << mode;
  }
}

TEST(Reference, TakesPlainNccl) {
  const Recipe recipe = RecipeOf(kReference, Preset("Llama-3.1-8B"), "TP2");
  for (const CollectiveUse& use : recipe.collectives) {
    ASSERT_EQ(use.paths.size(), 1u);
    EXPECT_EQ(use.paths[0].implementation, CollectiveImpl::kNccl);
  }
}

TEST(Reference, HasNothingToLaunch) {
  const ModelShape& model = Preset("Llama-3.1-8B");
  const Plan plan = PlanOf(model, "TP2");
  const LaunchAdvice launch =
      GetEngine(kReference).Launch(model, plan, {}, Node(8), Gpus(plan));
  EXPECT_THAT(launch.commands, IsEmpty());
  EXPECT_THAT(launch.environment, IsEmpty());
  EXPECT_EQ(launch.engine_version, "1");
}

TEST(Reference, HasNoOptionsOfPlans) {
  for (const char* mode : {"DP8+EP8:a2a+tbo", "DP8+EP8+fp8d"}) {
    EXPECT_EQ(RefusalOf(EngineId::kReference, Preset("Kimi-K2.5"), mode),
              "bare layers run in one batch and in the model's own format");
  }
}

}  // namespace
}  // namespace fabricwise
