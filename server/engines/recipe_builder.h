// SPDX-License-Identifier: Apache-2.0
//
// The recipe of a decoder-only transformer under a plan. What all engines have
// in common is here; what they differ in is in RecipeRules.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "server/domain/model_shape.h"
#include "server/domain/plan.h"
#include "server/domain/recipe.h"

namespace fabricwise {

struct RecipeRules {
  // Embedding and output head run, with their collectives; else bare layers.
  bool edges = true;
  // A shared expert is split over the tensor-parallel ranks where tokens are
  // replicated; else every rank runs it whole.
  bool shard_shared_experts = true;
  // Tensors of hidden width that a pipeline boundary carries.
  int boundary_tensors = 1;
  // All-reduce paths of a group of `attention_tp`, as in CollectiveUse.
  absl::InlinedVector<CollectivePath, 3> all_reduce_paths = {
      {CollectiveImpl::kNccl}};
  // Most prompt tokens of one step of an attention-DP rank.
  int64_t chunk_tokens = 8192;
  // Most sequences of one step on a rank, for the logits' workspace.
  int64_t max_sequences = 1024;
  double usable_memory_fraction = 0.92;
  double host_seconds = 0;
};

// `plan` must be consistent and its divisions exact (Engine::Refusal).
Recipe BuildRecipe(const ModelShape& model, const Plan& plan,
                   const RecipeRules& rules);

}  // namespace fabricwise
