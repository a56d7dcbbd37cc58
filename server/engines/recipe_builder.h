// SPDX-License-Identifier: Apache-2.0
//
// The recipe of a decoder-only transformer under a plan. What all engines have
// in common is here; what they differ in is in RecipeRules.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "server/domain/model_shape.h"
#include "server/domain/plan.h"
#include "server/domain/recipe.h"

namespace fabricwise {

// Host time of a step with attention-DP ranks, in every engine: the ranks agree
// on its size by a collective of a few integers among processes over the
// loopback interface, one round trip and the wait for the last of them. Stated,
// not measured: of the order of a tenth of a millisecond.
inline constexpr double kDataParallelSyncSeconds = 100e-6;

// Bytes of a token of `hidden_size` sent as fp8 with a scale of four bytes for
// each 128 values, and its bf16 bytes for each of those with DeepEP's header
// (DeepEP csrc/kernels/internode_ll.cu), whose published curves are of fp8.
double Fp8TokenBytes(int64_t hidden_size);
double Bf16DispatchRatio(int64_t hidden_size);

// Buffers of DeepEP's low-latency kernels (DeepEP csrc/legacy/config.hpp) for
// `tokens` of a rank: two, each of what a dispatch receives (a header, and bf16
// at most) and of what a combine sends (bf16), for every expert and token; and
// the tensor that the experts are given, in fp8 or bf16.
double LowLatencyBytes(int64_t hidden_size, int64_t num_experts, int64_t tokens,
                       bool fp8);

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
  // and of its low-latency kernels a note and what ExchangeUse says of
  // dispatch.
  int64_t exchange_hidden_size = 0;
  double exchange_bytes = 0;
  absl::string_view low_latency_note;
  double low_latency_dispatch_ratio = 1;
  // Tokens kept of a sequence in a window beside those that it sees.
  int64_t window_slack_tokens = 0;
  // A token and layer of latent KV (0: by the cache's format).
  double latent_kv_bytes_per_token = 0;
  // Ranks of the stage over which dense layers and a shared expert are split
  // where each attention-DP rank runs them on its own tokens; 0: attention_tp.
  int dense_tp = 0, shared_tp = 0;
  // Attention-DP ranks gather the tokens of the whole stage for feed-forward
  // layers, all of which are split over it, and scatter what comes out; routed
  // experts only without a dispatch library. Decode steps are padded to equal
  // ranks and gathered; prompts are summed in a buffer of zeros.
  bool gather_feed_forward = false;
  // Of that, where prompts are gathered instead: bytes a token in each of the
  // layers, packed and unpacked by a kernel each; 0: they are summed.
  double prompt_gather_bytes_per_token = 0;
  // Attention-DP ranks share one output head, split over the stage.
  bool head_over_stage = false;
  // Every GPU has the whole embedding: no all-reduce after it.
  bool replicate_embedding = false;
  // Experts split both ways are summed over the group of each split in turn.
  bool two_expert_all_reduces = false;
  // Of an all-gather of expert tokens, where they are quantized before it; 0:
  // hidden states as they are.
  double gather_bytes_per_token = 0;
  // Dispatch of prompts, where that of decode steps is another; or, of ranks of
  // one GPU, all their tokens are gathered.
  std::optional<ExchangeImpl> prompt_exchange;
  bool gather_prompts = false;
  // Tensors of hidden width that a pipeline boundary carries.
  int boundary_tensors = 1;
  // All-reduce paths of a group of `attention_tp`; a note on them where what
  // the engine takes may be faster, as in CollectiveUse.
  CollectivePaths all_reduce_paths = {{CollectiveImpl::kNccl}};
  absl::string_view all_reduce_bound;
  // Those of a group of the whole stage.
  CollectivePaths stage_all_reduce_paths = {{CollectiveImpl::kNccl}};
  // Up to this size an all-reduce of a layer does the norm after it along.
  double fused_norm_max_bytes = 0;
  // Most prompt tokens of one step of an attention-DP rank.
  int64_t chunk_tokens = 8192;
  // Most sequences of one step on a rank, for the logits' workspace.
  int64_t max_sequences = 1024;
  // As in Recipe.
  bool mixed_steps = true;
  int64_t max_rank_sequences = 0;
  double usable_memory_fraction = 0.92;
  // Memory that start-up takes beside weights, activations and communicators.
  double startup_bytes = 0;
  double kv_memory_fraction = 1;  // of what is left, as in MemoryRecipe
  // What the engine keeps free for all that is neither weights nor KV; nullopt:
  // as much as that is estimated to be.
  std::optional<double> reserve_bytes;
  double host_seconds = 0;
  std::optional<TwoBatchOverlap> overlap;  // as in Recipe
};

// Appends `path` where it takes sizes that none before it does.
void AddPath(const CollectivePath& path, CollectivePaths& paths);

// `plan` must be consistent and its divisions exact (Engine::Refusal).
Recipe BuildRecipe(const ModelShape& model, const Plan& plan,
                   const RecipeRules& rules);

}  // namespace fabricwise
