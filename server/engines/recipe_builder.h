// SPDX-License-Identifier: Apache-2.0
//
// The recipe of a decoder-only transformer under a plan. What all engines have
// in common is here; what they differ in is in RecipeRules.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
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
  // The tokens of an attention-DP rank are split over its tensor-parallel ranks
  // for the experts, which then gather and scatter over the whole stage; else
  // every tensor-parallel rank has all of them, and sums are all-reduced.
  bool sequence_parallel_experts = true;
  // A gathered token brings as much for each of its experts, beside itself.
  double routing_bytes_per_expert = 0;
  // An expert library: the width that it sends (0: the model's), its buffers,
  // and a note on it.
  int64_t exchange_hidden_size = 0;
  double exchange_bytes = 0;
  absl::string_view exchange_note;
  // A token and layer of latent KV (0: by the cache's format).
  double latent_kv_bytes_per_token = 0;
  // Tensors of hidden width that a pipeline boundary carries.
  int boundary_tensors = 1;
  // All-reduce paths of a group of `attention_tp`; a note on them where what
  // the engine takes may be faster, as in CollectiveUse.
  CollectivePaths all_reduce_paths = {{CollectiveImpl::kNccl}};
  absl::string_view all_reduce_bound;
  // Up to this size an all-reduce of a layer does the norm after it along.
  double fused_norm_max_bytes = 0;
  // Most prompt tokens of one step of an attention-DP rank.
  int64_t chunk_tokens = 8192;
  // Most sequences of one step on a rank, for the logits' workspace.
  int64_t max_sequences = 1024;
  // As in Recipe.
  int64_t max_rank_sequences = 0;
  double usable_memory_fraction = 0.92;
  // Memory that start-up takes beside weights, activations and communicators.
  double startup_bytes = 0;
  double host_seconds = 0;
};

// Appends `path` where it takes sizes that none before it does.
void AddPath(const CollectivePath& path, CollectivePaths& paths);

// `plan` must be consistent and its divisions exact (Engine::Refusal).
Recipe BuildRecipe(const ModelShape& model, const Plan& plan,
                   const RecipeRules& rules);

}  // namespace fabricwise
