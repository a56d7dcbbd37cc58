// SPDX-License-Identifier: Apache-2.0
#include "server/profile/config_keys.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise::config_json {
namespace {

using nlohmann::json;

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

}  // namespace

const json* Keys::Anywhere(absl::string_view key) const {
  const json* value = Find(text_, key);
  return value != nullptr ? value : Find(outer_, key);
}

absl::Status Keys::Odd(absl::string_view key, absl::string_view allowed) const {
  const json* value = Find(text_, key);
  if (value != nullptr) return NotAllowed(key, Shown(*value), allowed);
  return absl::InvalidArgumentError(
      absl::StrCat(key, " is missing; needed by model_type ",
                   Quoted(model_type_), ": ", allowed));
}

absl::StatusOr<int64_t> Keys::Int(absl::string_view key, int64_t low,
                                  int64_t high) const {
  const json* value = Find(text_, key);
  if (value != nullptr && value->is_number_integer() && *value >= low &&
      *value <= high) {
    return value->get<int64_t>();
  }
  return Odd(key, absl::StrCat("an integer, ", low, " to ", high));
}

absl::StatusOr<int64_t> Keys::IntOr(absl::string_view key, int64_t unset,
                                    int64_t low, int64_t high) const {
  return Has(key) ? Int(key, low, high) : unset;
}

absl::StatusOr<int64_t> Keys::AnyOf(
    std::initializer_list<absl::string_view> keys, int64_t unset) const {
  std::optional<int64_t> found;
  for (const absl::string_view key : keys) {
    if (!Has(key)) continue;
    ASSIGN_OR_RETURN(const int64_t value, Int(key, 0));
    if (found.has_value() && *found != value) {
      return Odd(key, absl::StrCat("one value for ", absl::StrJoin(keys, ", "),
                                   "; another is ", *found));
    }
    found = value;
  }
  return found.value_or(unset);
}

absl::StatusOr<bool> Keys::BoolOr(absl::string_view key, bool unset) const {
  const json* value = Find(text_, key);
  if (value == nullptr) return unset;
  if (!value->is_boolean()) return Odd(key, "true, false");
  return value->get<bool>();
}

const Family* FindFamily(absl::string_view model_type) {
  const auto it = std::find_if(
      kFamilies.begin(), kFamilies.end(),
      [&](const Family& family) { return family.model_type == model_type; });
  return it == kFamilies.end() ? nullptr : &*it;
}

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

}  // namespace fabricwise::config_json
