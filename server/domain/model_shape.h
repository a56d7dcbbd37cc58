// SPDX-License-Identifier: Apache-2.0
//
// The dimensions of a language model that decide what a serving step costs.
// Field names follow the proto message ModelShape and its JSON form.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/domain/number_format.h"

namespace fabricwise {

enum class AttentionKind {
  kGqa,  // multi-head, grouped-query and multi-query attention
  kMla,  // multi-head latent attention: one latent KV entry a token
};

// All counts are of the whole model, before any sharding. Zero means that the
// model has no such part.
struct ModelShape {
  std::string name;        // for people
  std::string repository;  // on Hugging Face, or a folder; empty: not known
  // The architecture as its config.json names it ("qwen3_moe"); empty: not
  // known. Engines have rules of their own for some.
  std::string model_type;

  int64_t hidden_size = 0;
  int64_t num_layers = 0;  // == num_dense_layers + num_moe_layers
  int64_t vocab_size = 0;
  bool tie_word_embeddings = false;

  // Softmax attention. Layers that are neither sliding nor linear attend to the
  // whole context.
  AttentionKind attention_kind = AttentionKind::kGqa;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // kGqa only
  int64_t head_dim = 0;             // of q and k (kGqa only)
  int64_t v_head_dim = 0;
  int64_t num_sliding_layers = 0;
  int64_t sliding_window = 0;  // tokens seen by a sliding or chunked layer

  // Multi-head latent attention.
  int64_t q_lora_rank = 0;  // 0: q is projected directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;

  // Sparse attention through an indexer: every query reads index_topk entries
  // of KV and index_head_dim values of every token's index key.
  int64_t index_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;

  // Linear attention (gated delta net and kin): a state of fixed size.
  int64_t num_linear_layers = 0;
  int64_t linear_key_heads = 0;
  int64_t linear_value_heads = 0;
  int64_t linear_key_head_dim = 0;
  int64_t linear_value_head_dim = 0;
  int64_t linear_conv_kernel = 0;

  // Feed-forward. All three matrices (gate, up, down) have intermediate width.
  int64_t num_dense_layers = 0;
  int64_t intermediate_size = 0;  // of dense layers

  int64_t num_moe_layers = 0;
  int64_t num_experts = 0;  // routed, per MoE layer
  int64_t experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  int64_t shared_intermediate_size = 0;  // all shared experts together

  int64_t num_nextn_predict_layers = 0;  // MTP layers, off unless drafting

  WeightFormat attention_weights;
  WeightFormat dense_weights;
  WeightFormat expert_weights;
  WeightFormat shared_expert_weights;
  NumberFormat kv_cache_format = NumberFormat::kBf16;

  bool is_moe() const { return num_moe_layers > 0; }
  int64_t num_full_layers() const {
    return num_layers - num_sliding_layers - num_linear_layers;
  }

  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// Largest value of any dimension and of any width (heads x head_dim, experts x
// moe_intermediate_size): far above any model.
inline constexpr int64_t kMaxDimension = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 4096;
// Eight times those of the widest models published. Skewed routing takes time
// in proportion.
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxModelNameBytes = 256;
inline constexpr int64_t kMaxModelTypeBytes = 256;

// As long as a path may be on Linux.
inline constexpr int64_t kMaxRepositoryBytes = 4096;
inline constexpr int64_t kMinGroupSize = 16;
inline constexpr int64_t kMaxGroupSize = 1024;
// Most parameters of a valid shape, so that the bytes of all weights and of all
// layers' activations stay far inside 64 bits.
inline constexpr double kMaxParameters = 1e15;

// INVALID_ARGUMENT naming the field ("model.hidden_size"), its value and what
// is allowed. A field of a part that the model does not have must be 0:
// num_key_value_heads and head_dim of latent attention, sliding_window without
// sliding layers, intermediate_size without dense layers, and so on.
absl::Status Validate(const ModelShape& shape);

// Weights of the whole model, a valid one, as served: embedding, head, all
// layers with their routers; without MTP layers, biases and norms (under 0.1
// %), and without anything that is not text (vision towers).
double CountParameters(const ModelShape& shape);

// "gqa", "mla".
absl::string_view ToString(AttentionKind kind);
absl::StatusOr<AttentionKind> ParseAttentionKind(absl::string_view text);

}  // namespace fabricwise
