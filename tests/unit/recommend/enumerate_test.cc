// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/enumerate.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Modes(const std::string& model, EngineId engine,
                               int gpus) {
  std::vector<std::string> modes;
  for (const Plan& plan :
       EnumeratePlans(**FindPreset(model), GetEngine(engine), gpus)) {
    EXPECT_EQ(plan.gpus(), gpus);
    modes.push_back(ModeName(plan));
  }
  return modes;
}

TEST(EnumeratePlans, OfADenseModelAreReplicasStagesAndSlices) {
  EXPECT_THAT(Modes("Llama-3.1-8B", EngineId::kVllm, 1), ElementsAre("TP1"));
  EXPECT_THAT(
      Modes("Llama-3.1-8B", EngineId::kVllm, 4),
      UnorderedElementsAre("TP4", "PP4", "4xTP1", "PP2xTP2", "2xTP2", "2xPP2"));
  EXPECT_THAT(Modes("Llama-3.1-8B", EngineId::kReference, 3),
              UnorderedElementsAre("TP3", "PP3", "3xTP1"));
  for (const std::string& mode : Modes("Llama-3.1-8B", EngineId::kVllm, 8)) {
    EXPECT_EQ(mode.find("EP"), std::string::npos) << mode;
    EXPECT_EQ(mode.find("DP"), std::string::npos) << mode;
  }
}

TEST(EnumeratePlans, OfAMoeModelSplitExpertsInEveryWay) {
  EXPECT_THAT(Modes("Kimi-K2.5", EngineId::kVllm, 2),
              UnorderedElementsAre("TP2", "TP2+EP2", "DP2", "DP2+EP2",
                                   "DP2+EP2:deepep-ll", "DP2+EP2:flashinfer",
                                   "PP2", "2xTP1"));
  EXPECT_THAT(Modes("Kimi-K2.5", EngineId::kReference, 2),
              UnorderedElementsAre("TP2", "TP2+EP2", "TP2+EP2:a2a", "DP2",
                                   "DP2+EP2", "DP2+EP2:a2a", "PP2", "2xTP1"));
  EXPECT_THAT(Modes("Kimi-K2.5", EngineId::kReference, 8),
              IsSupersetOf({"TP8+EP4xMTP2", "DP2xTP4+EP8:a2a", "PP2xDP4+EP4",
                            "2xDP2xTP2+EP2xMTP2", "4xDP2"}));
}

TEST(EnumeratePlans, AreConsistentAndDistinctForAnyNode) {
  for (EngineId engine : AllEngines()) {
    for (int gpus : {1, 2, 3, 5, 6, 7, 8, 16}) {
      std::set<std::string> seen;
      for (const Plan& plan :
           EnumeratePlans(**FindPreset("Kimi-K2.5"), GetEngine(engine), gpus)) {
        EXPECT_EQ(plan.gpus(), gpus);
        EXPECT_EQ(plan.expert_parallel * plan.moe_tp, plan.stage_gpus());
        EXPECT_TRUE(seen.insert(ModeName(plan)).second) << ModeName(plan);
        const auto parsed = ParseMode(ModeName(plan), /*is_moe=*/true);
        ASSERT_TRUE(parsed.ok()) << parsed.status();
        EXPECT_EQ(*parsed, plan) << ModeName(plan);
      }
    }
  }
}

TEST(EnumeratePlans, ComeSimplestFirst) {
  int before = 0;
  for (const Plan& plan : EnumeratePlans(**FindPreset("Kimi-K2.5"),
                                         GetEngine(EngineId::kReference), 8)) {
    EXPECT_GE(Complexity(plan), before);
    before = Complexity(plan);
  }
}

TEST(GpuCounts, ArePowersOfTwoAndTheNode) {
  EXPECT_THAT(GpuCounts(1), ElementsAre(1));
  EXPECT_THAT(GpuCounts(2), ElementsAre(1, 2));
  EXPECT_THAT(GpuCounts(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(GpuCounts(6), ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(GpuCounts(8), ElementsAre(1, 2, 4, 8));
}

TEST(Complexity, CountsWhatIsOutOfTheOrdinary) {
  const auto of = [](const char* mode) {
    return Complexity(*ParseMode(mode, /*is_moe=*/true));
  };
  EXPECT_EQ(of("TP1"), 0);
  EXPECT_EQ(of("TP8"), 1);
  EXPECT_EQ(of("TP8+EP8"), 2);
  EXPECT_EQ(of("TP8+EP8:a2a"), 3);
  EXPECT_EQ(of("TP8+EP4xMTP2"), 3);
  EXPECT_EQ(of("2xPP2xDP2xTP2+EP4:deepep-ll"), 6);
  EXPECT_EQ(of("DP8+EP8"), 2);
}

TEST(EnumeratePlans, AddWhatAnEngineOffersOfTheOptionsThatAreAskedFor) {
  const ModelShape& model = **FindPreset("Kimi-K2.5");
  const auto added = [&](EngineId id, const PlanOptions& options) {
    const Engine& engine = GetEngine(id);
    const std::vector<Plan> plain = EnumeratePlans(model, engine, 4);
    std::vector<std::string> modes;
    int complexity = 0;
    for (const Plan& plan : EnumeratePlans(model, engine, 4, options)) {
      EXPECT_GE(Complexity(plan), complexity);
      complexity = Complexity(plan);
      if (std::find(plain.begin(), plain.end(), plan) == plain.end()) {
        modes.push_back(ModeName(plan));
      }
    }
    return modes;
  };
  const PlanOptions overlap{.two_batch_overlap = true},
      fp8{.fp8_dispatch = true}, both{true, true};
  EXPECT_THAT(
      added(EngineId::kVllm, overlap),
      UnorderedElementsAre("DP4+EP4:deepep-ll+tbo", "DP2xTP2+EP4:deepep-ll+tbo",
                           "2xDP2+EP2:deepep-ll+tbo"));
  EXPECT_THAT(added(EngineId::kVllm, fp8), IsEmpty());
  EXPECT_THAT(added(EngineId::kSglang, both),
              IsSupersetOf({"TP4+EP4:deepep-ll+tbo", "DP4+EP4:deepep-ll+tbo",
                            "DP4+EP4+fp8d", "DP4+fp8d"}));
  EXPECT_THAT(added(EngineId::kTrtllm, both), IsEmpty());
  EXPECT_THAT(added(EngineId::kReference, both), IsEmpty());
}

}  // namespace
}  // namespace fabricwise
