// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/engines/recipes.h"

#include <cstdlib>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"

namespace fabricwise {
namespace {

template <typename Uses>
const auto& OfName(const Uses& uses, const std::string& name) {
  for (const auto& use : uses) {
    if (use.name == name) return use;
  }
  std::cerr << "no " << name << " in the recipe\n";
  std::abort();
}

}  // namespace

std::string TestName(std::string text) {
  for (char& c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return text;
}

const ModelShape& Preset(const std::string& name) {
  const auto preset = FindPreset(name);
  if (!preset.ok()) {
    std::cerr << preset.status() << "\n";
    std::abort();
  }
  return **preset;
}

Plan PlanOf(const ModelShape& model, const std::string& mode) {
  const auto plan = ParseMode(mode, model.is_moe());
  if (!plan.ok()) {
    std::cerr << plan.status() << "\n";
    std::abort();
  }
  return *plan;
}

Fingerprint Node(int gpus, bool nvlink) {
  constexpr int64_t kMemoryBytes = 141'000'000'000;
  const auto count = static_cast<size_t>(gpus);
  Fingerprint node;
  node.gpus.assign(count, {"NVIDIA H200", "", kMemoryBytes, 90});
  node.peer_access.assign(count, std::vector<bool>(count, nvlink));
  node.nvlinks.assign(count, std::vector<int>(count, nvlink ? 18 : 0));
  return node;
}

Fingerprint Box(const char* name, int count, bool nvlink, bool peers) {
  Fingerprint node = Node(count, nvlink);
  for (Gpu& gpu : node.gpus) {
    gpu.name = name;
    gpu.compute_capability = 0;  // follows from the name
  }
  for (auto& row : node.peer_access) row.assign(row.size(), peers);
  return node;
}

Placement Gpus(const Plan& plan) {
  Placement placement;
  int next = 0;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    auto& gpus = placement.replicas.emplace_back();
    for (int i = 0; i < plan.gpus() / plan.replicas; ++i) {
      gpus.push_back(next++);
    }
  }
  return placement;
}

Recipe RecipeOf(EngineId engine, const ModelShape& model,
                const std::string& mode, const Fingerprint& node) {
  const Plan plan = PlanOf(model, mode);
  return GetEngine(engine).MakeRecipe(model, plan, node,
                                      Gpus(plan).replicas.front());
}

std::string RefusalOf(EngineId engine, const ModelShape& model,
                      const std::string& mode, const Fingerprint& node) {
  const Plan plan = PlanOf(model, mode);
  return GetEngine(engine)
      .Refusal(model, plan, node, Gpus(plan).replicas.front())
      .value_or("");
}

void ExpectRefusal(EngineId engine, const ModelShape& model,
                   const std::string& mode, const std::string& why) {
  const std::string refusal = RefusalOf(engine, model, mode, Node(64));
  if (why.empty()) {
    EXPECT_EQ(refusal, "");
  } else {
    EXPECT_THAT(refusal, testing::HasSubstr(why));
  }
}

double CountOf(const Recipe& recipe, CollectiveOp op) {
  double count = 0;
  for (const CollectiveUse& use : recipe.collectives) {
    for (const CollectiveStep& step : use.steps) {
      if (step.op == op) count += use.count;
    }
  }
  return count;
}

std::vector<std::string> Lines(const Recipe& recipe) {
  std::vector<std::string> lines;
  for (const CollectiveUse& use : recipe.collectives) {
    for (const CollectiveStep& step : use.steps) {
      const char* tokens = "";
      switch (step.tokens) {
        case TokenBasis::kRank:
          tokens = "rank";
          break;
        case TokenBasis::kRankSlice:
          tokens = "slice";
          break;
        case TokenBasis::kStage:
          tokens = "stage";
          break;
        case TokenBasis::kOutput:
          tokens = "output";
          break;
      }
      lines.push_back(
          absl::StrCat(use.count, " x ", std::string(ToString(step.op)), " n",
                       use.group_size, " ", step.bytes_per_token, " ", tokens));
    }
  }
  return lines;
}

const CollectiveUse& CollectiveOf(const Recipe& recipe,
                                  const std::string& name) {
  return OfName(recipe.collectives, name);
}

const GemmUse& GemmOf(const Recipe& recipe, const std::string& name) {
  return OfName(recipe.gemms, name);
}

int ForEachLaunch(
    EngineId engine,
    absl::FunctionRef<void(const Plan&, const std::string&)> each) {
  int launched = 0;
  for (const ModelShape& model : Presets()) {
    for (const Fingerprint& node : {Node(8), Box("NVIDIA L40S", 8, false, true),
                                    Box("NVIDIA H200", 8, true, false)}) {
      for (const char* mode :
           {"TP8", "2xTP4", "8xTP1", "PP2xTP4", "2xPP4", "TP8+EP8",
            "TP8+EP2xMTP4", "TP8+EP8:deepep-ll", "DP8", "DP8+EP8",
            "DP8+EP8:deepep-ll", "2xDP4+EP4", "PP2xDP4+EP4", "DP2xTP4+EP8"}) {
        const auto plan = ParseMode(mode, model.is_moe());
        if (!plan.ok()) continue;  // a dense model has no experts
        const Placement gpus = Gpus(*plan);
        if (GetEngine(engine).Refusal(model, *plan, node, gpus.replicas[0])) {
          continue;
        }
        ++launched;
        const LaunchAdvice launch = GetEngine(engine).Launch(
            model, *plan, {.concurrency = 64}, node, gpus);
        EXPECT_FALSE(launch.commands.empty());
        each(*plan, absl::StrJoin(launch.commands, " ") +
                        absl::StrJoin(launch.environment, " "));
      }
    }
  }
  return launched;
}

}  // namespace fabricwise
