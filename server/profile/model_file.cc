// SPDX-License-Identifier: Apache-2.0
#include "server/profile/model_file.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/json_text.h"

namespace fabricwise {
namespace {

using nlohmann::json;

struct Size {
  absl::string_view name;
  int64_t ModelShape::*field;
};

constexpr auto kSizes = std::to_array<Size>({
    {"hidden_size", &ModelShape::hidden_size},
    {"num_layers", &ModelShape::num_layers},
    {"vocab_size", &ModelShape::vocab_size},
    {"num_attention_heads", &ModelShape::num_attention_heads},
    {"num_key_value_heads", &ModelShape::num_key_value_heads},
    {"head_dim", &ModelShape::head_dim},
    {"v_head_dim", &ModelShape::v_head_dim},
    {"num_sliding_layers", &ModelShape::num_sliding_layers},
    {"sliding_window", &ModelShape::sliding_window},
    {"q_lora_rank", &ModelShape::q_lora_rank},
    {"kv_lora_rank", &ModelShape::kv_lora_rank},
    {"qk_nope_head_dim", &ModelShape::qk_nope_head_dim},
    {"qk_rope_head_dim", &ModelShape::qk_rope_head_dim},
    {"index_heads", &ModelShape::index_heads},
    {"index_head_dim", &ModelShape::index_head_dim},
    {"index_topk", &ModelShape::index_topk},
    {"num_linear_layers", &ModelShape::num_linear_layers},
    {"linear_key_heads", &ModelShape::linear_key_heads},
    {"linear_value_heads", &ModelShape::linear_value_heads},
    {"linear_key_head_dim", &ModelShape::linear_key_head_dim},
    {"linear_value_head_dim", &ModelShape::linear_value_head_dim},
    {"linear_conv_kernel", &ModelShape::linear_conv_kernel},
    {"num_dense_layers", &ModelShape::num_dense_layers},
    {"intermediate_size", &ModelShape::intermediate_size},
    {"num_moe_layers", &ModelShape::num_moe_layers},
    {"num_experts", &ModelShape::num_experts},
    {"experts_per_token", &ModelShape::experts_per_token},
    {"moe_intermediate_size", &ModelShape::moe_intermediate_size},
    {"shared_intermediate_size", &ModelShape::shared_intermediate_size},
    {"num_nextn_predict_layers", &ModelShape::num_nextn_predict_layers},
});

struct Format {
  absl::string_view name;
  WeightFormat ModelShape::*field;
};

constexpr auto kFormats = std::to_array<Format>({
    {"attention_weights", &ModelShape::attention_weights},
    {"dense_weights", &ModelShape::dense_weights},
    {"expert_weights", &ModelShape::expert_weights},
    {"shared_expert_weights", &ModelShape::shared_expert_weights},
});

absl::StatusOr<int64_t> ParseSize(absl::string_view name, const json& value) {
  // Validate() has the exact range; this one keeps unsigned values from
  // wrapping into it.
  if (value.is_number_integer() && value >= 0) return value.get<int64_t>();
  return NotAllowed(name, Shown(value),
                    absl::StrCat("an integer, 0 to ", kMaxDimension));
}

absl::StatusOr<std::string> ParseText(absl::string_view name,
                                      const json& value) {
  if (!value.is_string()) return NotAllowed(name, Shown(value), "a text");
  return value.get<std::string>();
}

absl::StatusOr<NumberFormat> ParseNumber(absl::string_view name,
                                         const json& value) {
  ASSIGN_OR_RETURN(const std::string text, ParseText(name, value));
  auto format = ParseNumberFormat(text);
  if (format.ok()) return format;
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", format.status().message()));
}

absl::StatusOr<WeightFormat> ParseFormat(absl::string_view name,
                                         const json& value) {
  if (!value.is_object()) return NotAllowed(name, Shown(value), "an object");
  WeightFormat format;
  for (const auto& [key, part] : value.items()) {
    const std::string path = absl::StrCat(name, ".", key);
    if (key == "number") {
      ASSIGN_OR_RETURN(format.number, ParseNumber(path, part));
    } else if (key == "group_size") {
      ASSIGN_OR_RETURN(format.group_size, ParseSize(path, part));
    } else {
      return NotAllowed(name, absl::StrCat("with key ", Quoted(key)),
                        "number, group_size");
    }
  }
  return format;
}

template <typename Table>
auto FindEntry(const Table& table, absl::string_view key) {
  const auto it =
      std::find_if(table.begin(), table.end(),
                   [&](const auto& entry) { return entry.name == key; });
  return it == table.end() ? nullptr : &*it;
}

absl::Status ParseField(const std::string& key, const json& value,
                        ModelShape* shape) {
  if (const Size* size = FindEntry(kSizes, key)) {
    ASSIGN_OR_RETURN(shape->*size->field, ParseSize(key, value));
  } else if (const Format* format = FindEntry(kFormats, key)) {
    ASSIGN_OR_RETURN(shape->*format->field, ParseFormat(key, value));
  } else if (key == "name") {
    ASSIGN_OR_RETURN(shape->name, ParseText(key, value));
  } else if (key == "repository") {
    ASSIGN_OR_RETURN(shape->repository, ParseText(key, value));
  } else if (key == "model_type") {
    ASSIGN_OR_RETURN(shape->model_type, ParseText(key, value));
  } else if (key == "tie_word_embeddings") {
    if (!value.is_boolean()) {
      return NotAllowed(key, Shown(value), "true, false");
    }
    shape->tie_word_embeddings = value.get<bool>();
  } else if (key == "attention_kind") {
    ASSIGN_OR_RETURN(const std::string text, ParseText(key, value));
    ASSIGN_OR_RETURN(shape->attention_kind, ParseAttentionKind(text));
  } else if (key == "kv_cache_format") {
    ASSIGN_OR_RETURN(shape->kv_cache_format, ParseNumber(key, value));
  } else {
    return NotAllowed("the model file", absl::StrCat("with key ", Quoted(key)),
                      "the fields of ModelShape");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelShape> ParseModelFile(absl::string_view text) {
  ASSIGN_OR_RETURN(const json object, ParseJsonObject("the model file", text));
  ModelShape shape;
  for (const auto& [key, value] : object.items()) {
    RETURN_IF_ERROR(ParseField(key, value, &shape));
  }
  if (shape.v_head_dim == 0) shape.v_head_dim = shape.head_dim;
  RETURN_IF_ERROR(Validate(shape));
  return shape;
}

std::string PrintModelFile(const ModelShape& shape) {
  nlohmann::ordered_json object;
  object["name"] = shape.name;
  if (!shape.repository.empty()) object["repository"] = shape.repository;
  if (!shape.model_type.empty()) object["model_type"] = shape.model_type;
  if (shape.attention_kind != AttentionKind::kGqa) {
    object["attention_kind"] = std::string(ToString(shape.attention_kind));
  }
  if (shape.tie_word_embeddings) object["tie_word_embeddings"] = true;
  for (const Size& size : kSizes) {
    const int64_t value = shape.*size.field;
    if (value != 0) object[std::string(size.name)] = value;
  }
  for (const Format& format : kFormats) {
    const WeightFormat& value = shape.*format.field;
    if (value == WeightFormat()) continue;
    auto& entry = object[std::string(format.name)];
    entry["number"] = std::string(ToString(value.number));
    if (value.group_size != 0) entry["group_size"] = value.group_size;
  }
  if (shape.kv_cache_format != NumberFormat::kBf16) {
    object["kv_cache_format"] = std::string(ToString(shape.kv_cache_format));
  }
  constexpr int kIndent = 2;
  return object.dump(kIndent, ' ', false,
                     nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace fabricwise
