// SPDX-License-Identifier: Apache-2.0
//
// Every plan worth asking an engine about.
#pragma once

#include <vector>

#include "server/domain/model_shape.h"
#include "server/domain/plan.h"
#include "server/domain/workload.h"
#include "server/engines/engine.h"

namespace fabricwise {

// All consistent plans of exactly `gpu_count` GPUs (every ordered
// factorisation into replicas, stages, attention-DP and TP; for a MoE model
// every split of a stage into EP and TP inside the experts, with every
// transport of the engine that it allows), and each of those without stages of
// a pipeline again with every one of `options` that the engine offers for it.
// Simplest first.
std::vector<Plan> EnumeratePlans(const ModelShape& model, const Engine& engine,
                                 int gpu_count,
                                 const PlanOptions& options = {});

// The GPU counts to consider on a node of `gpu_count`: the powers of two up to
// it, and itself; ascending.
std::vector<int> GpuCounts(int gpu_count);

// How many of a plan's sizes differ from 1, plus one for a transport that is
// not the engine's first and for each option: of equals the simpler plan is
// preferred.
int Complexity(const Plan& plan);

}  // namespace fabricwise
