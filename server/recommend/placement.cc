// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/placement.h"

#include <cstddef>
#include <numeric>
#include <vector>

namespace fabricwise {

Placement Place(const Plan& plan, const Fingerprint&) {
  const int each = plan.pipeline * plan.stage_gpus();
  Placement placement;
  placement.replicas.reserve(static_cast<size_t>(plan.replicas));
  for (int replica = 0; replica < plan.replicas; ++replica) {
    std::vector<int>& gpus =
        placement.replicas.emplace_back(static_cast<size_t>(each));
    std::iota(gpus.begin(), gpus.end(), replica * each);
  }
  return placement;
}

const Placement& Placer::At(const Plan& plan) {
  for (const auto& [known, placement] : known_) {
    if (known.replicas == plan.replicas && known.pipeline == plan.pipeline &&
        known.attention_dp == plan.attention_dp &&
        known.attention_tp == plan.attention_tp) {
      return placement;
    }
  }
  return known_.emplace_back(plan, Place(plan, node_)).second;
}

}  // namespace fabricwise
