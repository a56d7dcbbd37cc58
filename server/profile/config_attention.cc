// SPDX-License-Identifier: Apache-2.0
#include "server/profile/config_attention.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise::config_json {
namespace {

using nlohmann::json;

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
  if (!keys.Has("index_topk") && !keys.Has("index_n_heads")) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(shape->index_topk, keys.Int("index_topk"));
  ASSIGN_OR_RETURN(shape->index_heads, keys.Int("index_n_heads"));
  ASSIGN_OR_RETURN(shape->index_head_dim, keys.Int("index_head_dim"));
  return absl::OkStatus();
}

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

}  // namespace

absl::StatusOr<LayerKinds> ReadAttention(const Keys& keys, const Family* family,
                                         ModelShape* shape) {
  ASSIGN_OR_RETURN(shape->num_attention_heads, keys.Int("num_attention_heads"));
  if (keys.model_type() == kDeepSeekV4) {
    RETURN_IF_ERROR(ReadDeepSeekV4(keys, shape));
  } else if (keys.Has("kv_lora_rank") || keys.Has("qk_nope_head_dim")) {
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

}  // namespace fabricwise::config_json
