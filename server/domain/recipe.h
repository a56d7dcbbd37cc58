// SPDX-License-Identifier: Apache-2.0
//
// What an engine would run in one step of a plan: kernels and collectives with
// their counts and sizes, no times. Engines write recipes, the cost model
// prices them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "server/domain/measurement.h"
#include "server/domain/number_format.h"
#include "server/domain/plan.h"

namespace fabricwise {

// Which tokens a kernel or a message sees, on one GPU.
enum class TokenBasis {
  kRank,       // those of its attention data-parallel rank
  kRankSlice,  // an equal part of them for each tensor-parallel rank
  kStage,      // those of all ranks of the stage, padded to the fullest
  kOutput,     // those of its rank whose logits are needed
};

// Where in the model a use stands: on the first stage, split evenly over all
// stages, on the last stage, or once on every stage for each micro-batch.
enum class Section { kEmbedding, kLayers, kHead, kBoundary };

// All names are literals; counts are per step over the whole model.

// rows x [k,n].
struct GemmUse {
  absl::string_view name;
  WeightFormat format;
  int64_t n = 0, k = 0;
  TokenBasis rows = TokenBasis::kRank;
  double row_factor = 1;  // times as many rows as tokens of that basis
  double count = 0;
  Section section = Section::kLayers;
};

// Softmax attention of `count` layers at this GPU's heads.
struct AttentionUse {
  absl::string_view name;
  bool latent = false;
  NumberFormat kv_format = NumberFormat::kBf16;
  int64_t q_heads = 0, kv_heads = 0;  // on this GPU
  int64_t head_dim = 0;               // of a key; the latent width for latent
  int64_t qk_dim = 0, v_dim = 0;      // of one query head, for prefill
  double kv_bytes_per_token = 0;      // read per context token and layer
  int64_t window = 0;                 // most context tokens read; 0: all
  // Read for every context token, beyond the window (index keys).
  double index_bytes_per_token = 0;
  double count = 0;
};

// Bytes moved to and from GPU memory per sequence (states of linear attention).
struct StateUse {
  absl::string_view name;
  double bytes_per_sequence = 0;
  double count = 0;
};

// Routed experts of `count` layers on this GPU; tokens: kStage.
struct ExpertsUse {
  WeightFormat format;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // whole
  int64_t num_experts = 0;        // whole
  int64_t experts_per_token = 0;
  int moe_tp = 1, expert_parallel = 1;
  double count = 0;
};

struct CollectiveStep {
  CollectiveOp op = CollectiveOp::kAllReduce;
  double bytes_per_token = 0;  // of the size that its curve is over
  TokenBasis tokens = TokenBasis::kRank;
};

// How a collective's kernel moves data: what another must have in common with
// it to be near it.
enum class CollectiveKernel {
  kLibrary,    // as NCCL decides
  kOneShot,    // every rank reads all that the others have
  kTwoShot,    // every rank reduces its part, and the parts are gathered
  kMulticast,  // the switch reduces
};

// An implementation and the largest size for which the engine takes it.
struct CollectivePath {
  CollectiveImpl implementation = CollectiveImpl::kNccl;
  CollectiveKernel kernel = CollectiveKernel::kLibrary;
  double max_bytes = std::numeric_limits<double>::infinity();

  friend bool operator==(const CollectivePath&,
                         const CollectivePath&) = default;
};

// In order of preference, by ascending max_bytes; the last one has no limit.
using CollectivePaths = absl::InlinedVector<CollectivePath, 5>;

// One operation that moves the same bytes at least.
struct CollectiveStandIn {
  CollectiveStep step;
  absl::string_view note;
  bool upper_bound = false;
};

struct CollectiveUse {
  absl::string_view name;
  int group_size = 1;
  absl::InlinedVector<CollectiveStep, 2> steps;
  // For a path without a curve of its own the nearest measured one stands in,
  // marked: our own kernel that moves data in the same way; else the fastest of
  // those that the engine passes over for it, as an upper bound.
  CollectivePaths paths;
  // Of the paths, for the answer; empty: none. And whether what the engine
  // takes is faster, by how much is not known.
  absl::string_view note;
  bool upper_bound = false;
  // Where a step has no curve at all.
  std::optional<CollectiveStandIn> stand_in;
  double count = 0;  // of each step
  Section section = Section::kLayers;
  // Only in steps that are launched so (decoding in graphs, prompts eagerly);
  // nullopt: in all.
  std::optional<Launch> only;
};

// Expert dispatch and combine by a library.
struct ExchangeUse {
  absl::string_view name;
  ExchangeImpl implementation = ExchangeImpl::kDeepEpLowLatency;
  int group_size = 1;
  int64_t hidden_size = 0, num_experts = 0, experts_per_token = 0;
  TokenBasis tokens = TokenBasis::kRankSlice;  // that each GPU dispatches
  // Bytes of a token that goes out for each of those that the library's curve
  // was measured with. Beyond 1 the time by as much is an upper bound.
  double dispatch_ratio = 1;
  absl::string_view note;      // for the answer; empty: none
  double count = 0;            // of dispatch + combine pairs
  std::optional<Launch> only;  // as of a collective
};

// Memory of the fullest GPU, in bytes.
struct MemoryRecipe {
  double weights_bytes = 0;
  double kv_bytes_per_token = 0;  // of whole-context layers, per sequence
  double window_kv_bytes_per_token = 0;
  int64_t window_tokens = 0;
  double state_bytes_per_sequence = 0;
  double activation_bytes = 0;
  double communicator_bytes = 0;
  double usable_fraction = 1;  // of the GPU's memory
  double kv_fraction = 1;      // of what all else leaves of that, for KV
};

// Small kernels whose work an all-reduce does along while its message is no
// longer than max_bytes; beyond that they run by themselves.
struct FusedKernels {
  double count = 0;
  double bytes_per_token = 0;  // of the message, at kRank
  double max_bytes = 0;
};

// A step in two half batches, of which one computes while the other's expert
// tokens travel. Steps of fewer tokens of a rank are not divided.
struct TwoBatchOverlap {
  int64_t least_decode_tokens = 2;
  int64_t least_prompt_tokens = 2;  // where there are any of prompts

  friend bool operator==(const TwoBatchOverlap&,
                         const TwoBatchOverlap&) = default;
};

struct Recipe {
  Plan plan;
  int64_t num_layers = 0;
  absl::InlinedVector<GemmUse, 16> gemms;
  absl::InlinedVector<AttentionUse, 2> attention;
  absl::InlinedVector<StateUse, 1> states;
  absl::InlinedVector<ExpertsUse, 1> experts;
  absl::InlinedVector<CollectiveUse, 6> collectives;
  absl::InlinedVector<ExchangeUse, 1> exchanges;
  double small_kernels = 0;  // norms, rotary, activations, routing, ...
  FusedKernels fused;        // beside those
  // More of them in steps that are launched eagerly.
  double eager_small_kernels = 0;
  std::optional<TwoBatchOverlap> overlap;
  double host_seconds = 0;  // between steps, stated by the engine or asker
  // Most tokens of one step of a rank: of its prompts and, in mixed steps, one
  // of each sequence that decodes.
  int64_t chunk_tokens = 0;
  // Whether steps that work on prompts decode as well; else they come between
  // decode steps, as soon as there is a prompt.
  bool mixed_steps = true;
  // Most sequences that a rank decodes in one step; 0: as many as there are.
  int64_t max_rank_sequences = 0;
  MemoryRecipe memory;
};

}  // namespace fabricwise
