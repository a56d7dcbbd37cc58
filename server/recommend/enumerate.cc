// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/enumerate.h"

#include <algorithm>
#include <iterator>

namespace fabricwise {
namespace {

void AddExpertSplits(const Engine& engine, Plan plan,
                     std::vector<Plan>& plans) {
  const int stage = plan.stage_gpus();
  if (stage == 1) {
    plans.push_back(plan);
    return;
  }
  for (int experts = 1; experts <= stage; ++experts) {
    if (stage % experts != 0) continue;
    plan.expert_parallel = experts;
    plan.moe_tp = stage / experts;
    for (ExpertTransport transport : engine.Transports(plan.attention_dp)) {
      // Libraries and all-to-all bring a token to whole experts.
      const bool whole = transport != ExpertTransport::kNone &&
                         transport != ExpertTransport::kAllGatherReduceScatter;
      if (whole && plan.moe_tp > 1) continue;
      plan.transport = transport;
      plans.push_back(plan);
    }
  }
}

// Adds to `plans` what of `options` the engine offers for them.
void AddOptions(const Engine& engine, const PlanOptions& options,
                std::vector<Plan>& plans) {
  const size_t plain = plans.size();
  for (size_t i = 0; i < plain; ++i) {
    Plan plan = plans[i];
    if (plan.pipeline > 1) continue;
    const bool overlap = options.two_batch_overlap &&
                         engine.OffersTwoBatchOverlap(plan.transport);
    const bool fp8 =
        options.fp8_dispatch && engine.OffersFp8Dispatch(plan.transport);
    for (const bool with_overlap : {false, true}) {
      for (const bool with_fp8 : {false, true}) {
        if (!with_overlap && !with_fp8) continue;
        if ((with_overlap && !overlap) || (with_fp8 && !fp8)) continue;
        plan.two_batch_overlap = with_overlap;
        plan.fp8_dispatch = with_fp8;
        plans.push_back(plan);
      }
    }
  }
}

}  // namespace

std::vector<Plan> EnumeratePlans(const ModelShape& model, const Engine& engine,
                                 int gpu_count, const PlanOptions& options) {
  std::vector<Plan> plans;
  for (int r = 1; r <= gpu_count; ++r) {
    if (gpu_count % r != 0) continue;
    for (int p = 1; p <= gpu_count / r; ++p) {
      if (gpu_count / r % p != 0) continue;
      const int stage = gpu_count / r / p;
      for (int d = 1; d <= stage; ++d) {
        if (stage % d != 0) continue;
        const Plan plan{.replicas = r,
                        .pipeline = p,
                        .attention_dp = d,
                        .attention_tp = stage / d};
        if (model.is_moe()) {
          AddExpertSplits(engine, plan, plans);
        } else if (d == 1) {
          // Data-parallel ranks of a dense model are its replicas.
          plans.push_back(plan);
        }
      }
    }
  }
  if (options.two_batch_overlap || options.fp8_dispatch) {
    AddOptions(engine, options, plans);
  }
  // Complexity is small: plans are dealt out by it rather than compared.
  std::vector<Plan> sorted;
  sorted.reserve(plans.size());
  for (int complexity = 0; sorted.size() < plans.size(); ++complexity) {
    std::copy_if(
        plans.begin(), plans.end(), std::back_inserter(sorted),
        [&](const Plan& plan) { return Complexity(plan) == complexity; });
  }
  return sorted;
}

std::vector<int> GpuCounts(int gpu_count) {
  std::vector<int> counts;
  for (int count = 1; count < gpu_count; count *= 2) counts.push_back(count);
  counts.push_back(gpu_count);
  return counts;
}

int Complexity(const Plan& plan) {
  int complexity = 0;
  for (int size : {plan.replicas, plan.pipeline, plan.attention_dp,
                   plan.attention_tp, plan.expert_parallel}) {
    complexity += size > 1 ? 1 : 0;
  }
  if (plan.expert_parallel > 1 && plan.moe_tp > 1) ++complexity;
  if (plan.two_batch_overlap) ++complexity;
  if (plan.fp8_dispatch) ++complexity;
  switch (plan.transport) {
    case ExpertTransport::kNone:
    case ExpertTransport::kAllGatherReduceScatter:
      break;
    case ExpertTransport::kNcclAllToAll:
    case ExpertTransport::kDeepEpLowLatency:
    case ExpertTransport::kDeepEpHighThroughput:
    case ExpertTransport::kFlashinferNvlink:
      ++complexity;
      break;
  }
  return complexity;
}

}  // namespace fabricwise
