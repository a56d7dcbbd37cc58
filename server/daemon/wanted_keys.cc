// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/wanted_keys.h"

#include <set>
#include <tuple>

#include "server/engines/engine.h"
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

}  // namespace

std::vector<MeasurementKey> WantedKeys(const std::vector<ModelShape>& models,
                                       const Fingerprint& node) {
  std::vector<MeasurementKey> keys;
  std::set<std::tuple<NumberFormat, int64_t, int64_t>> seen;
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
          const std::vector<int>& on = placer.At(plan).replicas.front();
          if (engine.Refusal(model, plan, node, on)) continue;
          for (const GemmUse& use :
               engine.MakeRecipe(model, plan, node, on).gemms) {
            if (!IsMeasured(use.format.number) ||
                !seen.emplace(use.format.number, use.n, use.k).second) {
              continue;
            }
            for (const int64_t rows : kRows) {
              if (keys.size() == kMostWantedKeys) return keys;
              keys.emplace_back(GemmKey{.format = use.format.number,
                                        .m = rows,
                                        .n = use.n,
                                        .k = use.k});
            }
          }
        }
      }
    }
  }
  return keys;
}

}  // namespace fabricwise
