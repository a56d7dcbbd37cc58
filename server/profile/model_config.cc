// SPDX-License-Identifier: Apache-2.0
#include "server/profile/model_config.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/json_text.h"
#include "server/profile/quantization.h"

namespace fabricwise {
namespace {

using nlohmann::json;

constexpr absl::string_view kDeepSeekV4 = "deepseek_v4";

// Which layers see a window only, where `layer_types` does not say.
enum class Sliding {
  kNever,
  kAlways,   // all, where sliding_window is set
  kFlag,     // from max_window_layers on, where use_sliding_window is set
  kPattern,  // all but each sliding_window_pattern-th
  kChunked,  // those with rotary positions, in chunks of attention_chunk_size
};

// Where MoE layers are and what the keys mean.
enum class Experts {
  kNone,
  kMixtral,   // every layer; an expert is intermediate_size wide
  kDeepSeek,  // after first_k_dense_replace layers; n_shared_experts
  kQwen,      // by decoder_sparse_step; shared_expert_intermediate_size
  kLlama4,    // by interleave_moe_layer_step; a shared expert of equal width
  kAllMoe,    // every layer; n_shared_experts
};

struct Family {
  absl::string_view model_type;
  Experts experts = Experts::kNone;
  Sliding sliding = Sliding::kNever;
  // Keys that the family's config.json may leave out (JSON), as the
  // configuration classes of the transformers library have them.
  absl::string_view defaults = "{}";
};

constexpr absl::string_view kGemma2Defaults =
    R"({"tie_word_embeddings": true, "sliding_window_pattern": 2,
        "head_dim": 256})";
constexpr absl::string_view kGemma3Defaults =
    R"({"tie_word_embeddings": true, "sliding_window_pattern": 6,
        "sliding_window": 4096, "vocab_size": 262208, "head_dim": 256,
        "num_attention_heads": 8, "num_key_value_heads": 4})";
constexpr absl::string_view kLlama4Defaults =
    R"({"no_rope_layer_interval": 4, "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192})";
constexpr absl::string_view kGptOssDefaults =
    R"({"sliding_window_pattern": 2, "sliding_window": 128})";
constexpr absl::string_view kQwenDefaults = R"({"max_window_layers": 28})";
constexpr absl::string_view kQwenHybridDefaults =
    R"({"full_attention_interval": 4})";

constexpr std::array kFamilies = {
    Family{"llama"},
    Family{"glm4"},
    Family{"mistral", Experts::kNone, Sliding::kAlways},
    Family{"phi3", Experts::kNone, Sliding::kAlways},
    Family{"mixtral", Experts::kMixtral, Sliding::kAlways},
    Family{"minimax_m2", Experts::kMixtral},
    Family{"gpt_oss", Experts::kMixtral, Sliding::kPattern, kGptOssDefaults},
    Family{"gemma2", Experts::kNone, Sliding::kPattern, kGemma2Defaults},
    Family{"gemma3", Experts::kNone, Sliding::kPattern, kGemma3Defaults},
    Family{"gemma3_text", Experts::kNone, Sliding::kPattern, kGemma3Defaults},
    Family{"qwen2", Experts::kNone, Sliding::kFlag, kQwenDefaults},
    Family{"qwen3", Experts::kNone, Sliding::kFlag, kQwenDefaults},
    Family{"qwen3_vl_text", Experts::kNone, Sliding::kFlag, kQwenDefaults},
    Family{"qwen2_moe", Experts::kQwen, Sliding::kFlag, kQwenDefaults},
    Family{"qwen3_moe", Experts::kQwen, Sliding::kFlag, kQwenDefaults},
    Family{"qwen3_vl_moe_text", Experts::kQwen, Sliding::kFlag, kQwenDefaults},
    Family{"qwen3_next", Experts::kQwen, Sliding::kNever, kQwenHybridDefaults},
    Family{"qwen3_5", Experts::kNone, Sliding::kNever, kQwenHybridDefaults},
    Family{"qwen3_5_text", Experts::kNone, Sliding::kNever,
           kQwenHybridDefaults},
    Family{"qwen3_5_moe", Experts::kQwen, Sliding::kNever, kQwenHybridDefaults},
    Family{"qwen3_5_moe_text", Experts::kQwen, Sliding::kNever,
           kQwenHybridDefaults},
    Family{"deepseek_v2", Experts::kDeepSeek},
    Family{"deepseek_v3", Experts::kDeepSeek},
    Family{"deepseek_v32", Experts::kDeepSeek},
    Family{kDeepSeekV4, Experts::kAllMoe},
    Family{"kimi_k2", Experts::kDeepSeek},
    Family{"kimi_k25", Experts::kDeepSeek},
    Family{"glm4_moe", Experts::kDeepSeek},
    Family{"glm4_moe_lite", Experts::kDeepSeek},
    Family{"glm_moe_dsa", Experts::kDeepSeek},
    Family{"llama4", Experts::kLlama4, Sliding::kChunked, kLlama4Defaults},
    Family{"llama4_text", Experts::kLlama4, Sliding::kChunked, kLlama4Defaults},
};

// Keys that the plain reading of an unknown model_type understands, and keys
// that change no size. Any other key may mean an architecture that it would get
// wrong.
constexpr auto kPlainKeys = std::to_array<absl::string_view>(
    {// Understood.
     "model_type", "hidden_size", "num_hidden_layers", "vocab_size",
     "num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim",
     "tie_word_embeddings", "intermediate_size", "moe_intermediate_size",
     "num_experts", "num_local_experts", "n_routed_experts",
     "num_experts_per_tok", "experts_per_token", "n_shared_experts",
     "shared_expert_intermediate_size", "shared_intermediate_size",
     "first_k_dense_replace", "moe_layer_freq", "mlp_only_layers",
     "decoder_sparse_step", "mlp_layer_types", "q_lora_rank", "kv_lora_rank",
     "qk_nope_head_dim", "qk_rope_head_dim", "index_topk", "index_n_heads",
     "index_head_dim", "layer_types", "sliding_window", "attention_chunk_size",
     "num_nextn_predict_layers", "quantization_config", "compression_config",
     "torch_dtype", "dtype", "text_config",
     // Without effect on sizes.
     "architectures", "attention_bias", "attention_dropout", "attn_pdrop",
     "auto_map", "aux_loss_alpha", "bos_token_id", "embd_pdrop",
     "embedding_multiplier", "ep_size", "eos_token_id",
     "final_logit_softcapping", "attn_logit_softcapping", "hidden_act",
     "hidden_activation", "hidden_dropout", "initializer_range",
     "logits_scaling", "attention_multiplier", "residual_multiplier",
     "max_position_embeddings", "max_window_layers", "mlp_bias",
     "moe_router_dtype", "n_group", "norm_topk_prob",
     "original_max_position_embeddings", "output_router_logits", "pad_token_id",
     "partial_rotary_factor", "pretraining_tp", "qk_head_dim",
     "query_pre_attn_scalar", "resid_pdrop", "rms_norm_eps", "rope_interleave",
     "rope_local_base_freq", "rope_parameters", "rope_scaling", "rope_theta",
     "routed_scaling_factor", "router_aux_loss_coef", "router_jitter_noise",
     "scoring_func", "seq_aux", "topk_group", "topk_method",
     "transformers_version", "unk_token_id", "use_bidirectional_attention",
     "use_cache", "use_mla", "use_qk_norm", "image_token_id", "vision_config",
     "audio_config", "name", "language_model_only"});

// A config and the one around it, read by key.
class Keys {
 public:
  Keys(json text, json outer, std::string model_type)
      : text_(std::move(text)),
        outer_(std::move(outer)),
        model_type_(std::move(model_type)) {}

  const json& text() const { return text_; }
  const json& outer() const { return outer_; }
  const std::string& model_type() const { return model_type_; }
  bool Has(absl::string_view key) const { return Find(text_, key) != nullptr; }
  // For keys that may stand in the outer config as well.
  const json* Anywhere(absl::string_view key) const {
    const json* value = Find(text_, key);
    return value != nullptr ? value : Find(outer_, key);
  }

  absl::Status Odd(absl::string_view key, absl::string_view allowed) const {
    const json* value = Find(text_, key);
    if (value != nullptr) return NotAllowed(key, Shown(*value), allowed);
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is missing; needed by model_type ",
                     Quoted(model_type_), ": ", allowed));
  }

  absl::StatusOr<int64_t> Int(absl::string_view key, int64_t low = 1,
                              int64_t high = kMaxDimension) const {
    const json* value = Find(text_, key);
    if (value != nullptr && value->is_number_integer() && *value >= low &&
        *value <= high) {
      return value->get<int64_t>();
    }
    return Odd(key, absl::StrCat("an integer, ", low, " to ", high));
  }

  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t unset,
                                int64_t low = 0,
                                int64_t high = kMaxDimension) const {
    return Has(key) ? Int(key, low, high) : unset;
  }

  // The one value of several names for it; `unset` where none is there.
  // INVALID_ARGUMENT where two disagree.
  absl::StatusOr<int64_t> AnyOf(std::initializer_list<absl::string_view> keys,
                                int64_t unset) const {
    std::optional<int64_t> found;
    for (const absl::string_view key : keys) {
      if (!Has(key)) continue;
      ASSIGN_OR_RETURN(const int64_t value, Int(key, 0));
      if (found.has_value() && *found != value) {
        return Odd(key,
                   absl::StrCat("one value for ", absl::StrJoin(keys, ", "),
                                "; another is ", *found));
      }
      found = value;
    }
    return found.value_or(unset);
  }

  absl::StatusOr<bool> BoolOr(absl::string_view key, bool unset) const {
    const json* value = Find(text_, key);
    if (value == nullptr) return unset;
    if (!value->is_boolean()) return Odd(key, "true, false");
    return value->get<bool>();
  }

 private:
  json text_, outer_;
  std::string model_type_;
};

const Family* FindFamily(absl::string_view model_type) {
  const auto it = std::find_if(
      kFamilies.begin(), kFamilies.end(),
      [&](const Family& family) { return family.model_type == model_type; });
  return it == kFamilies.end() ? nullptr : &*it;
}

// -- Opening ------------------------------------------------------------------

absl::StatusOr<Keys> Open(absl::string_view text) {
  ASSIGN_OR_RETURN(json outer, ParseJsonObject("config", text));
  json inner = outer;
  if (const json* nested = Find(outer, "text_config")) {
    if (!nested->is_object()) {
      return NotAllowed("text_config", Shown(*nested), "an object");
    }
    inner = *nested;
  }
  const json* model_type = Find(inner, "model_type");
  if (model_type == nullptr) model_type = Find(outer, "model_type");
  if (model_type == nullptr) {
    return NotAllowed("model_type", "missing", "a text");
  }
  if (!model_type->is_string()) {
    return NotAllowed("model_type", Shown(*model_type), "a text");
  }
  std::string type = model_type->get<std::string>();
  if (const Family* family = FindFamily(type)) {
    ASSIGN_OR_RETURN(const json defaults,
                     ParseJsonObject("defaults", family->defaults));
    for (const auto& [key, value] : defaults.items()) {
      // A key that is there as null says "none", and stays so.
      if (!inner.contains(key) && !outer.contains(key)) inner[key] = value;
    }
  }
  return Keys(std::move(inner), std::move(outer), std::move(type));
}

absl::Status CheckUnknownType(const Keys& keys) {
  for (const auto& [key, value] : keys.text().items()) {
    const bool plain = std::find(kPlainKeys.begin(), kPlainKeys.end(), key) !=
                       kPlainKeys.end();
    if (plain || value.is_null() || absl::StartsWith(key, "_")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model_type ", Quoted(keys.model_type()),
                     " is not known, and its key ", Quoted(key),
                     " is not understood; allowed: a known model_type, or "
                     "keys of a plain Llama, Mixtral or DeepSeek decoder"));
  }
  return absl::OkStatus();
}

// -- Attention ----------------------------------------------------------------

absl::Status ReadGroupedQuery(const Keys& keys, ModelShape* shape) {
  ASSIGN_OR_RETURN(
      shape->num_key_value_heads,
      keys.IntOr("num_key_value_heads", shape->num_attention_heads, 1));
  if (shape->num_attention_heads % shape->num_key_value_heads != 0) {
    return keys.Odd("num_key_value_heads",
                    absl::StrCat("a divisor of num_attention_heads, ",
                                 shape->num_attention_heads));
  }
  if (!keys.Has("head_dim") &&
      shape->hidden_size % shape->num_attention_heads != 0) {
    return keys.Odd(
        "head_dim",
        absl::StrCat("an integer, as hidden_size ", shape->hidden_size,
                     " is no multiple of num_attention_heads ",
                     shape->num_attention_heads));
  }
  ASSIGN_OR_RETURN(
      shape->head_dim,
      keys.IntOr("head_dim", shape->hidden_size / shape->num_attention_heads,
                 1));
  ASSIGN_OR_RETURN(shape->v_head_dim,
                   keys.IntOr("v_head_dim", shape->head_dim, 1));
  return absl::OkStatus();
}

absl::Status ReadLatent(const Keys& keys, ModelShape* shape) {
  shape->attention_kind = AttentionKind::kMla;
  ASSIGN_OR_RETURN(shape->q_lora_rank, keys.IntOr("q_lora_rank", 0));
  ASSIGN_OR_RETURN(shape->kv_lora_rank, keys.Int("kv_lora_rank"));
  ASSIGN_OR_RETURN(shape->qk_nope_head_dim, keys.Int("qk_nope_head_dim"));
  ASSIGN_OR_RETURN(shape->qk_rope_head_dim, keys.Int("qk_rope_head_dim"));
  ASSIGN_OR_RETURN(shape->v_head_dim, keys.Int("v_head_dim"));
  return absl::OkStatus();
}

// One entry of head_dim values a token is both key and value of all heads: what
// latent attention reads, with a latent part of all but the rotary values.
absl::Status ReadDeepSeekV4(const Keys& keys, ModelShape* shape) {
  shape->attention_kind = AttentionKind::kMla;
  RETURN_IF_ERROR(keys.Int("num_key_value_heads", 1, 1).status());
  ASSIGN_OR_RETURN(const int64_t width, keys.Int("head_dim", 2));
  ASSIGN_OR_RETURN(shape->q_lora_rank, keys.IntOr("q_lora_rank", 0));
  ASSIGN_OR_RETURN(shape->qk_rope_head_dim,
                   keys.Int("qk_rope_head_dim", 1, width - 1));
  shape->v_head_dim = width;
  shape->kv_lora_rank = shape->qk_nope_head_dim =
      width - shape->qk_rope_head_dim;
  return absl::OkStatus();
}

absl::Status ReadIndexer(const Keys& keys, ModelShape* shape) {
  if (!keys.Has("index_topk")) return absl::OkStatus();
  ASSIGN_OR_RETURN(shape->index_topk, keys.Int("index_topk"));
  ASSIGN_OR_RETURN(shape->index_heads, keys.Int("index_n_heads"));
  ASSIGN_OR_RETURN(shape->index_head_dim, keys.Int("index_head_dim"));
  return absl::OkStatus();
}

enum class LayerKind { kFull, kSliding, kChunked, kLinear };
using LayerKinds = std::vector<LayerKind>;

absl::StatusOr<LayerKinds> ReadLayerTypes(const Keys& keys, size_t layers) {
  const json& types = *Find(keys.text(), "layer_types");
  if (!types.is_array() || types.size() != layers) {
    return keys.Odd("layer_types", absl::StrCat("a list of num_hidden_layers, ",
                                                layers, ", names"));
  }
  LayerKinds kinds;
  for (const json& type : types) {
    if (type == "full_attention" || type == "attention") {
      kinds.push_back(LayerKind::kFull);
    } else if (type == "sliding_attention") {
      kinds.push_back(LayerKind::kSliding);
    } else if (type == "chunked_attention") {
      kinds.push_back(LayerKind::kChunked);
    } else if (type == "linear_attention") {
      kinds.push_back(LayerKind::kLinear);
    } else {
      return NotAllowed("layer_types", Shown(type),
                        "full_attention, sliding_attention, "
                        "chunked_attention, linear_attention");
    }
  }
  return kinds;
}

// All layers `kind`, but each period-th, whose period `key` gives, full.
absl::StatusOr<LayerKinds> AllButEach(const Keys& keys, absl::string_view key,
                                      LayerKind kind, size_t layers) {
  ASSIGN_OR_RETURN(const int64_t period, keys.Int(key, 1, kMaxLayers));
  LayerKinds kinds(layers, kind);
  const auto step = static_cast<size_t>(period);
  for (size_t i = step; i <= layers; i += step) {
    kinds[i - 1] = LayerKind::kFull;
  }
  return kinds;
}

// Llama 4: layers without rotary positions see everything.
absl::StatusOr<LayerKinds> ReadChunked(const Keys& keys, size_t layers) {
  const json* rotary = Find(keys.text(), "no_rope_layers");
  if (rotary == nullptr || (rotary->is_array() && rotary->empty())) {
    return AllButEach(keys, "no_rope_layer_interval", LayerKind::kChunked,
                      layers);
  }
  if (!rotary->is_array() || rotary->size() != layers) {
    return keys.Odd("no_rope_layers",
                    absl::StrCat("a list of num_hidden_layers, ", layers,
                                 ", zeros and ones"));
  }
  LayerKinds kinds;
  for (const json& has_rotary : *rotary) {  // despite the key's name
    if (has_rotary != 0 && has_rotary != 1) {
      return NotAllowed("no_rope_layers", Shown(has_rotary), "0, 1");
    }
    kinds.push_back(has_rotary == 1 ? LayerKind::kChunked : LayerKind::kFull);
  }
  return kinds;
}

absl::StatusOr<LayerKinds> ReadLayerKinds(const Keys& keys,
                                          const Family* family, size_t layers) {
  const LayerKinds all_full(layers, LayerKind::kFull);
  if (keys.model_type() == kDeepSeekV4) return all_full;
  if (keys.Has("layer_types")) return ReadLayerTypes(keys, layers);
  if (keys.Has("full_attention_interval")) {
    return AllButEach(keys, "full_attention_interval", LayerKind::kLinear,
                      layers);
  }
  if (family == nullptr) {
    for (const absl::string_view key :
         {"sliding_window", "attention_chunk_size"}) {
      if (keys.Has(key)) {
        return keys.Odd(key, absl::StrCat("null, or with layer_types, for "
                                          "the unknown model_type ",
                                          Quoted(keys.model_type())));
      }
    }
    return all_full;
  }
  switch (family->sliding) {
    case Sliding::kNever:
      return all_full;
    case Sliding::kAlways:
      if (!keys.Has("sliding_window")) return all_full;
      return LayerKinds(layers, LayerKind::kSliding);
    case Sliding::kFlag: {
      ASSIGN_OR_RETURN(const bool used,
                       keys.BoolOr("use_sliding_window", false));
      if (!used) return all_full;
      ASSIGN_OR_RETURN(const int64_t first, keys.Int("max_window_layers", 0));
      LayerKinds kinds = all_full;
      for (auto i = static_cast<size_t>(first); i < layers; ++i) {
        kinds[i] = LayerKind::kSliding;
      }
      return kinds;
    }
    case Sliding::kPattern:
      if (!keys.Has("sliding_window")) return all_full;
      return AllButEach(keys, "sliding_window_pattern", LayerKind::kSliding,
                        layers);
    case Sliding::kChunked:
      if (!keys.Has("attention_chunk_size")) return all_full;
      return ReadChunked(keys, layers);
  }
  return all_full;
}

absl::Status ReadLinear(const Keys& keys, ModelShape* shape) {
  ASSIGN_OR_RETURN(shape->linear_key_heads, keys.Int("linear_num_key_heads"));
  ASSIGN_OR_RETURN(shape->linear_value_heads,
                   keys.Int("linear_num_value_heads"));
  ASSIGN_OR_RETURN(shape->linear_key_head_dim, keys.Int("linear_key_head_dim"));
  ASSIGN_OR_RETURN(shape->linear_value_head_dim,
                   keys.Int("linear_value_head_dim"));
  ASSIGN_OR_RETURN(shape->linear_conv_kernel,
                   keys.Int("linear_conv_kernel_dim"));
  return absl::OkStatus();
}

// Fills the shape's attention and answers what each layer has.
absl::StatusOr<LayerKinds> ReadAttention(const Keys& keys, const Family* family,
                                         ModelShape* shape) {
  ASSIGN_OR_RETURN(shape->num_attention_heads, keys.Int("num_attention_heads"));
  if (keys.model_type() == kDeepSeekV4) {
    RETURN_IF_ERROR(ReadDeepSeekV4(keys, shape));
  } else if (keys.Has("kv_lora_rank")) {
    RETURN_IF_ERROR(ReadLatent(keys, shape));
  } else {
    RETURN_IF_ERROR(ReadGroupedQuery(keys, shape));
  }
  RETURN_IF_ERROR(ReadIndexer(keys, shape));

  if (const json* marks = Find(keys.text(), "attn_type_list")) {
    // MiniMax's mark for softmax attention is 1.
    if (!marks->is_array() ||
        !std::all_of(marks->begin(), marks->end(),
                     [](const json& mark) { return mark == 1; })) {
      return keys.Odd("attn_type_list", "a list of ones");
    }
  }
  ASSIGN_OR_RETURN(
      LayerKinds kinds,
      ReadLayerKinds(keys, family, static_cast<size_t>(shape->num_layers)));
  const auto count = [&](LayerKind kind) {
    return int64_t{std::count(kinds.begin(), kinds.end(), kind)};
  };
  const int64_t sliding = count(LayerKind::kSliding);
  const int64_t chunked = count(LayerKind::kChunked);
  if (sliding > 0 && chunked > 0) {
    return keys.Odd("layer_types",
                    "sliding_attention or chunked_attention, not both");
  }
  shape->num_linear_layers = count(LayerKind::kLinear);
  if (shape->num_linear_layers > 0) RETURN_IF_ERROR(ReadLinear(keys, shape));
  shape->num_sliding_layers = sliding + chunked;
  if (shape->num_sliding_layers > 0) {
    ASSIGN_OR_RETURN(
        shape->sliding_window,
        keys.Int(chunked > 0 ? "attention_chunk_size" : "sliding_window"));
  }
  return kinds;
}

// -- Feed-forward -------------------------------------------------------------

// Takes layers whose numbers the list at `key` does not hold (or, negated, does
// hold) out of `is_moe`.
absl::Status ApplyLayerList(const Keys& keys, absl::string_view key,
                            bool listed_are_moe, std::vector<bool>* is_moe) {
  const json* list = Find(keys.text(), key);
  if (list == nullptr) return absl::OkStatus();
  const auto layers = static_cast<int64_t>(is_moe->size());
  const std::string allowed =
      absl::StrCat("a list of layers, 0 to ", layers - 1);
  if (!list->is_array()) return keys.Odd(key, allowed);
  std::vector<bool> listed(is_moe->size(), false);
  for (const json& layer : *list) {
    if (!layer.is_number_integer() || layer < 0 || layer >= layers) {
      return NotAllowed(key, Shown(layer), allowed);
    }
    listed[layer.get<size_t>()] = true;
  }
  for (size_t i = 0; i < is_moe->size(); ++i) {
    if (listed[i] != listed_are_moe) (*is_moe)[i] = false;
  }
  return absl::OkStatus();
}

// A list with one entry a layer that is `moe` or `dense`.
absl::Status ApplyMarks(const Keys& keys, absl::string_view key,
                        const json& moe, const json& dense,
                        std::vector<bool>* is_moe) {
  const json& list = *Find(keys.text(), key);
  if (!list.is_array() || list.size() != is_moe->size()) {
    return keys.Odd(key, absl::StrCat("a list of num_hidden_layers, ",
                                      is_moe->size(), ", entries"));
  }
  for (size_t i = 0; i < is_moe->size(); ++i) {
    if (list[i] != moe && list[i] != dense) {
      return NotAllowed(key, Shown(list[i]),
                        absl::StrCat(Shown(moe), ", ", Shown(dense)));
    }
    if (list[i] == dense) (*is_moe)[i] = false;
  }
  return absl::OkStatus();
}

// Leaves each `period`-th layer MoE: the first of each period, or the last.
absl::Status ApplyPeriod(const Keys& keys, absl::string_view key, bool last,
                         std::vector<bool>* is_moe) {
  if (!keys.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t period, keys.Int(key, 1, kMaxLayers));
  for (size_t i = 0; i < is_moe->size(); ++i) {
    const auto layer = static_cast<int64_t>(i) + (last ? 1 : 0);
    if (layer % period != 0) (*is_moe)[i] = false;
  }
  return absl::OkStatus();
}

// Which layers have experts, by every key that says so.
absl::StatusOr<std::vector<bool>> FindMoeLayers(const Keys& keys,
                                                Experts experts,
                                                int64_t layers) {
  std::vector<bool> is_moe(static_cast<size_t>(layers), true);
  if (experts == Experts::kDeepSeek && !keys.Has("mlp_layer_types")) {
    RETURN_IF_ERROR(keys.Int("first_k_dense_replace", 0).status());
  }
  ASSIGN_OR_RETURN(const int64_t dense_first,
                   keys.IntOr("first_k_dense_replace", 0));
  for (int64_t i = 0; i < std::min(dense_first, layers); ++i) {
    is_moe[static_cast<size_t>(i)] = false;
  }
  if (const json* freq = Find(keys.text(), "moe_layer_freq");
      freq != nullptr && freq->is_array()) {
    RETURN_IF_ERROR(ApplyMarks(keys, "moe_layer_freq", 1, 0, &is_moe));
  } else {
    RETURN_IF_ERROR(ApplyPeriod(keys, "moe_layer_freq", false, &is_moe));
  }
  RETURN_IF_ERROR(ApplyPeriod(keys, "decoder_sparse_step", true, &is_moe));
  RETURN_IF_ERROR(ApplyLayerList(keys, "mlp_only_layers", false, &is_moe));
  if (keys.Has("mlp_layer_types")) {
    RETURN_IF_ERROR(
        ApplyMarks(keys, "mlp_layer_types", "sparse", "dense", &is_moe));
  }
  if (experts == Experts::kLlama4) {
    if (keys.Has("moe_layers")) {
      RETURN_IF_ERROR(ApplyLayerList(keys, "moe_layers", true, &is_moe));
    } else {
      RETURN_IF_ERROR(
          ApplyPeriod(keys, "interleave_moe_layer_step", true, &is_moe));
    }
  }
  return is_moe;
}

// The reading of an unknown model_type.
Experts GuessExperts(const Keys& keys) {
  const auto has = [&](absl::string_view key) { return keys.Has(key); };
  constexpr absl::string_view kOfExperts[] = {
      "num_experts",         "num_local_experts", "n_routed_experts",
      "num_experts_per_tok", "experts_per_token", "moe_intermediate_size"};
  if (std::none_of(std::begin(kOfExperts), std::end(kOfExperts), has)) {
    return Experts::kNone;
  }
  if (!keys.Has("moe_intermediate_size")) return Experts::kMixtral;
  for (const absl::string_view key :
       {"decoder_sparse_step", "mlp_only_layers", "mlp_layer_types"}) {
    if (keys.Has(key)) return Experts::kQwen;
  }
  return Experts::kDeepSeek;
}

absl::StatusOr<int64_t> SharedWidth(const Keys& keys, Experts experts,
                                    int64_t expert_width) {
  if (experts == Experts::kLlama4) return expert_width;
  ASSIGN_OR_RETURN(
      const int64_t stated,
      keys.AnyOf(
          {"shared_expert_intermediate_size", "shared_intermediate_size"}, 0));
  if (stated > 0) return stated;
  ASSIGN_OR_RETURN(const int64_t shared, keys.IntOr("n_shared_experts", 0));
  const int64_t width = shared * expert_width;  // each within 2^24
  if (width > kMaxDimension) {
    return keys.Odd("n_shared_experts",
                    absl::StrCat("at most ", kMaxDimension / expert_width,
                                 " of width ", expert_width));
  }
  return width;
}

// Fills the shape's feed-forward and answers which layers have experts.
absl::StatusOr<std::vector<bool>> ReadFeedForward(const Keys& keys,
                                                  Experts experts,
                                                  ModelShape* shape) {
  ASSIGN_OR_RETURN(
      const int64_t num_experts,
      keys.AnyOf({"num_experts", "num_local_experts", "n_routed_experts"}, 0));
  std::vector<bool> is_moe(static_cast<size_t>(shape->num_layers), false);
  if (num_experts > 0) {
    ASSIGN_OR_RETURN(is_moe, FindMoeLayers(keys, experts, shape->num_layers));
  } else if (experts == Experts::kMixtral || experts == Experts::kDeepSeek ||
             experts == Experts::kAllMoe || experts == Experts::kLlama4) {
    return keys.Odd(experts == Experts::kMixtral || experts == Experts::kLlama4
                        ? "num_local_experts"
                        : "n_routed_experts",
                    absl::StrCat("an integer, 1 to ", kMaxDimension));
  }
  shape->num_moe_layers = std::count(is_moe.begin(), is_moe.end(), true);
  shape->num_dense_layers = shape->num_layers - shape->num_moe_layers;
  if (shape->num_dense_layers > 0) {
    ASSIGN_OR_RETURN(
        shape->intermediate_size,
        keys.Int(experts == Experts::kLlama4 ? "intermediate_size_mlp"
                                             : "intermediate_size"));
  }
  if (shape->num_moe_layers == 0) return is_moe;

  shape->num_experts = num_experts;
  ASSIGN_OR_RETURN(shape->experts_per_token,
                   keys.AnyOf({"num_experts_per_tok", "experts_per_token"}, 0));
  if (shape->experts_per_token < 1 || shape->experts_per_token > num_experts) {
    return keys.Odd(
        keys.Has("num_experts_per_tok") || !keys.Has("experts_per_token")
            ? "num_experts_per_tok"
            : "experts_per_token",
        absl::StrCat("an integer, 1 to ", num_experts,
                     ", the number of experts"));
  }
  const bool wide = experts == Experts::kMixtral || experts == Experts::kLlama4;
  ASSIGN_OR_RETURN(
      shape->moe_intermediate_size,
      keys.Int(wide ? "intermediate_size" : "moe_intermediate_size"));
  ASSIGN_OR_RETURN(shape->shared_intermediate_size,
                   SharedWidth(keys, experts, shape->moe_intermediate_size));
  return is_moe;
}

absl::StatusOr<int64_t> CountPredictLayers(const Keys& keys) {
  if (keys.Has("num_mtp_modules")) {  // MiniMax
    ASSIGN_OR_RETURN(const bool used, keys.BoolOr("use_mtp", true));
    ASSIGN_OR_RETURN(const int64_t modules,
                     keys.Int("num_mtp_modules", 0, kMaxLayers));
    ASSIGN_OR_RETURN(const int64_t layers,
                     keys.IntOr("mtp_transformer_layers", 1, 0, kMaxLayers));
    return used ? std::min(modules * layers, kMaxLayers) : 0;
  }
  for (const absl::string_view key :
       {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    if (keys.Has(key)) return keys.Int(key, 0, kMaxLayers);
  }
  return 0;
}

// -- Formats ------------------------------------------------------------------

// One weight matrix of a layer: its module's names, separated by `|`, under the
// layer, and how many weights it has.
struct Matrix {
  absl::string_view names;
  double weights;
};

// Finds one format for a class of matrices over several layers.
class FormatVote {
 public:
  FormatVote(const Keys& keys, Quantization* quantization)
      : nested_(Find(keys.outer(), "text_config") != nullptr),
        quantization_(quantization) {}

  absl::Status Add(size_t layer, absl::string_view block,
                   std::initializer_list<Matrix> matrices) {
    for (const Matrix& matrix : matrices) {
      if (matrix.weights == 0) continue;
      const std::vector<std::string> names = Names(layer, block, matrix.names);
      ASSIGN_OR_RETURN(const WeightFormat format,
                       quantization_->FormatOf(names));
      const auto it =
          std::find_if(votes_.begin(), votes_.end(),
                       [&](const auto& vote) { return vote.first == format; });
      if (it == votes_.end()) {
        votes_.emplace_back(format, matrix.weights);
      } else {
        it->second += matrix.weights;
      }
    }
    return absl::OkStatus();
  }

  // The format of most weights; bf16 where there are none.
  WeightFormat Winner() const {
    const auto it = std::max_element(
        votes_.begin(), votes_.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    return it == votes_.end() ? WeightFormat() : it->first;
  }

 private:
  // Under the spellings that checkpoints of nested models use as well.
  std::vector<std::string> Names(size_t layer, absl::string_view block,
                                 absl::string_view names) const {
    std::vector<std::string> paths;
    if (quantization_->IsUniform()) return paths;
    for (const absl::string_view name : absl::StrSplit(names, '|')) {
      const std::string path =
          absl::StrCat("layers.", layer, ".", block, ".", name);
      paths.push_back(absl::StrCat("model.", path));
      if (!nested_) continue;
      paths.push_back(absl::StrCat("language_model.model.", path));
      paths.push_back(absl::StrCat("model.language_model.", path));
    }
    return paths;
  }

  bool nested_;
  Quantization* quantization_;
  std::vector<std::pair<WeightFormat, double>> votes_;
};

double Area(int64_t rows, int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(columns);
}

absl::Status VoteAttention(const Keys& keys, const ModelShape& s,
                           const LayerKinds& kinds, FormatVote* vote) {
  const bool v4 = keys.model_type() == kDeepSeekV4;
  const int64_t h = s.hidden_size, heads = s.num_attention_heads;
  const double out = Area(heads * s.v_head_dim, h);
  const int64_t query = heads * (s.qk_nope_head_dim + s.qk_rope_head_dim);
  const int64_t linear_key = s.linear_key_heads * s.linear_key_head_dim;
  const int64_t linear_value = s.linear_value_heads * s.linear_value_head_dim;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == LayerKind::kLinear) {
      RETURN_IF_ERROR(vote->Add(
          i, "linear_attn",
          {{"in_proj_qkvz|in_proj_qkv", Area(h, 2 * linear_key + linear_value)},
           {"in_proj_qkvz|in_proj_z", Area(h, linear_value)},
           {"out_proj", Area(linear_value, h)}}));
    } else if (v4) {
      RETURN_IF_ERROR(vote->Add(
          i, "attn",
          {{"wq_a|fused_wqa_wkv", Area(h, s.q_lora_rank)},
           {"wq_b", Area(s.q_lora_rank > 0 ? s.q_lora_rank : h, query)},
           {"wkv|fused_wqa_wkv", Area(h, s.v_head_dim)},
           {"wo_a|wo_b", out}}));
    } else if (s.attention_kind == AttentionKind::kGqa) {
      RETURN_IF_ERROR(vote->Add(
          i, "self_attn",
          {{"q_proj|qkv_proj", Area(h, heads * s.head_dim)},
           {"k_proj|qkv_proj", Area(h, s.num_key_value_heads * s.head_dim)},
           {"v_proj|qkv_proj", Area(h, s.num_key_value_heads * s.v_head_dim)},
           {"o_proj", out}}));
    } else {
      RETURN_IF_ERROR(vote->Add(
          i, "self_attn",
          {{"q_a_proj|fused_qkv_a_proj", Area(h, s.q_lora_rank)},
           {s.q_lora_rank > 0 ? "q_b_proj" : "q_proj",
            Area(s.q_lora_rank > 0 ? s.q_lora_rank : h, query)},
           {"kv_a_proj_with_mqa|fused_qkv_a_proj",
            Area(h, s.kv_lora_rank + s.qk_rope_head_dim)},
           {"kv_b_proj",
            Area(s.kv_lora_rank, heads * (s.qk_nope_head_dim + s.v_head_dim))},
           {"o_proj", out}}));
    }
  }
  return absl::OkStatus();
}

// Sets the formats of all classes that the model has.
absl::Status ReadFormats(const Keys& keys, const LayerKinds& kinds,
                         const std::vector<bool>& is_moe, ModelShape* shape) {
  for (const absl::string_view key : {"torch_dtype", "dtype"}) {
    const json* type = keys.Anywhere(key);
    if (type == nullptr || *type == "bfloat16" || *type == "float16" ||
        *type == "float32") {
      continue;
    }
    return NotAllowed(key, Shown(*type), "bfloat16, float16, float32");
  }
  // DeepSeek-V4's own key for experts in another format than its fp8
  // checkpoint's rest.
  std::optional<WeightFormat> own_experts;
  if (const json* type = Find(keys.text(), "expert_dtype")) {
    if (*type == "fp4") {
      own_experts = {NumberFormat::kMxfp4};
    } else if (*type != "fp8") {
      return keys.Odd("expert_dtype", "fp4, fp8");
    }
  }
  const json* config = keys.Anywhere("quantization_config");
  if (config == nullptr) config = keys.Anywhere("compression_config");
  if (config == nullptr) {
    shape->expert_weights = own_experts.value_or(WeightFormat());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Quantization quantization, Quantization::Parse(*config));
  shape->kv_cache_format = quantization.kv_cache_format();

  FormatVote attention(keys, &quantization), dense(keys, &quantization),
      experts(keys, &quantization), shared(keys, &quantization);
  RETURN_IF_ERROR(VoteAttention(keys, *shape, kinds, &attention));
  shape->attention_weights = attention.Winner();

  const bool llama4 = absl::StartsWith(keys.model_type(), "llama4");
  const bool block_sparse =
      keys.model_type() == "mixtral" || keys.model_type() == "minimax_m2";
  const absl::string_view block = keys.model_type() == kDeepSeekV4 ? "ffn"
                                  : llama4       ? "feed_forward"
                                  : block_sparse ? "block_sparse_moe"
                                                 : "mlp";
  for (size_t i = 0; i < is_moe.size(); ++i) {
    if (!is_moe[i]) {
      RETURN_IF_ERROR(dense.Add(i, block,
                                {{"gate_proj|gate_up_proj", 1},
                                 {"up_proj|gate_up_proj", 1},
                                 {"down_proj", 1}}));
      continue;
    }
    RETURN_IF_ERROR(experts.Add(i, block,
                                {{"experts.0.gate_proj|experts.0.w1", 1},
                                 {"experts.0.up_proj|experts.0.w3", 1},
                                 {"experts.0.down_proj|experts.0.w2", 1}}));
    if (shape->shared_intermediate_size == 0) continue;
    RETURN_IF_ERROR(
        shared.Add(i, block,
                   {{"shared_experts.gate_proj|shared_expert.gate_proj", 1},
                    {"shared_experts.up_proj|shared_expert.up_proj", 1},
                    {"shared_experts.down_proj|shared_expert.down_proj", 1}}));
  }
  shape->dense_weights = dense.Winner();
  shape->expert_weights = experts.Winner();
  shape->shared_expert_weights = shared.Winner();
  // A later quantization writes its own list and leaves that key as it was.
  if (own_experts.has_value() && *Find(*config, "quant_method") == "fp8") {
    shape->expert_weights = *own_experts;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelShape> ParseHuggingFaceConfig(absl::string_view json,
                                                  std::string name) {
  ASSIGN_OR_RETURN(const Keys keys, Open(json));
  const Family* family = FindFamily(keys.model_type());
  if (family == nullptr) RETURN_IF_ERROR(CheckUnknownType(keys));

  ModelShape shape;
  shape.name = name.empty() ? keys.model_type() : std::move(name);
  ASSIGN_OR_RETURN(shape.hidden_size, keys.Int("hidden_size"));
  ASSIGN_OR_RETURN(shape.num_layers,
                   keys.Int("num_hidden_layers", 1, kMaxLayers));
  ASSIGN_OR_RETURN(shape.vocab_size, keys.Int("vocab_size"));
  if (const nlohmann::json* tied = keys.Anywhere("tie_word_embeddings")) {
    if (!tied->is_boolean()) {
      return NotAllowed("tie_word_embeddings", Shown(*tied), "true, false");
    }
    shape.tie_word_embeddings = tied->get<bool>();
  }
  ASSIGN_OR_RETURN(const LayerKinds kinds, ReadAttention(keys, family, &shape));
  const Experts experts =
      family != nullptr ? family->experts : GuessExperts(keys);
  ASSIGN_OR_RETURN(const std::vector<bool> is_moe,
                   ReadFeedForward(keys, experts, &shape));
  ASSIGN_OR_RETURN(shape.num_nextn_predict_layers, CountPredictLayers(keys));
  // Before the formats: their votes multiply sizes that only a valid shape
  // bounds.
  RETURN_IF_ERROR(Validate(shape));
  RETURN_IF_ERROR(ReadFormats(keys, kinds, is_moe, &shape));
  RETURN_IF_ERROR(Validate(shape));
  return shape;
}

}  // namespace fabricwise
