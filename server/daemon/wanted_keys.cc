// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/wanted_keys.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "server/engines/engine.h"
#include "server/profile/tables.h"
#include "server/profile/topology.h"
#include "server/recommend/enumerate.h"
#include "server/recommend/placement.h"

namespace fabricwise {
namespace {

// Decode steps, and the chunks of prompts.
constexpr int64_t kRows[] = {1, 16, 64, 256, 2048};

bool IsMeasured(NumberFormat format) {
  switch (format) {
    case NumberFormat::kBf16:
    case NumberFormat::kFp8:
      return true;
    case NumberFormat::kFp8Block:
    case NumberFormat::kInt4Group:
    case NumberFormat::kMxfp4:
    case NumberFormat::kNvfp4:
      return false;
  }
  return false;
}

// Decode: batches, and contexts short and long.
constexpr int64_t kBatches[] = {1, 8, 32, 128};
constexpr int64_t kContexts[] = {1024, 8192};

// Prompts: budgets of a step, and what tokens of short and long ones see.
constexpr int64_t kPromptTokens[] = {512, 8192};
constexpr int64_t kPromptSeen[] = {512, 4096};

// Collects keys until there are enough, none twice.
class Wanted {
 public:
  void Add(const GemmUse& use) {
    if (!IsMeasured(use.format.number)) return;
    for (const int64_t rows : kRows) {
      Add(GemmKey{
          .format = use.format.number, .m = rows, .n = use.n, .k = use.k});
    }
  }
  void Add(const ExpertsUse& use) {
    if (use.format.number != NumberFormat::kBf16 &&
        use.format.number != NumberFormat::kFp8Block) {
      return;
    }
    for (const int64_t tokens : kRows) {
      Add(ExpertsKey{.format = use.format,
                     .hidden_size = use.hidden_size,
                     .intermediate_size = use.intermediate_size,
                     .num_experts = use.num_experts,
                     .experts_per_token = use.experts_per_token,
                     .moe_tp = use.moe_tp,
                     .expert_parallel = use.expert_parallel,
                     .tokens = tokens});
    }
  }
  void Add(const AttentionUse& use) {
    if (use.kv_format != NumberFormat::kBf16) return;
    const auto within = [&](int64_t tokens) {
      return use.window > 0 ? std::min(use.window, tokens) : tokens;
    };
    AttentionKey key{.latent = use.latent,
                     .q_heads = use.q_heads,
                     .kv_heads = use.kv_heads,
                     .head_dim = use.head_dim};
    for (const int64_t batch : kBatches) {
      for (const int64_t context : kContexts) {
        key.batch = batch;
        key.context_tokens = within(context);
        Add(key);
      }
    }
    for (const int64_t tokens : kPromptTokens) {
      for (const int64_t seen : kPromptSeen) {
        Add(PromptKey(key, {.tokens = static_cast<double>(tokens),
                            .seen = static_cast<double>(within(seen))}));
      }
    }
  }

  bool full() const { return keys_.size() == kMostWantedKeys; }
  std::vector<MeasurementKey> Take() { return std::move(keys_); }

 private:
  void Add(const MeasurementKey& key) {
    if (!full() && seen_.insert(ToString(key)).second) keys_.push_back(key);
  }

  std::vector<MeasurementKey> keys_;
  std::set<std::string> seen_;
};

}  // namespace

std::vector<MeasurementKey> WantedKeys(const std::vector<ModelShape>& models,
                                       const Fingerprint& node) {
  Wanted wanted;
  const int gpus = static_cast<int>(node.gpus.size());
  // By what the node says of its links: products are of one shape on any.
  const Topology topology =
      Topology::Of(node, [](int, int) -> const Curve* { return nullptr; });
  Placer placer(topology);
  for (const ModelShape& model : models) {
    for (const EngineId id : AllEngines()) {
      const Engine& engine = GetEngine(id);
      for (const int count : GpuCounts(gpus)) {
        for (const Plan& plan : EnumeratePlans(model, engine, count)) {
          if (wanted.full()) return wanted.Take();
          const std::vector<int>& on = placer.At(plan).replicas.front();
          if (engine.Refusal(model, plan, node, on)) continue;
          const Recipe recipe = engine.MakeRecipe(model, plan, node, on);
          for (const ExpertsUse& use : recipe.experts) wanted.Add(use);
          for (const AttentionUse& use : recipe.attention) wanted.Add(use);
          for (const GemmUse& use : recipe.gemms) wanted.Add(use);
        }
      }
    }
  }
  return wanted.Take();
}

}  // namespace fabricwise
