// SPDX-License-Identifier: Apache-2.0
//
// A Hugging Face config.json opened: its keys, and what its model_type means by
// them. Internal to its reading.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/domain/model_shape.h"
#include "server/profile/json_text.h"

namespace fabricwise::config_json {

inline constexpr absl::string_view kDeepSeekV4 = "deepseek_v4";

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

// nullptr: not known.
const Family* FindFamily(absl::string_view model_type);

// A config and the one around it, read by key. INVALID_ARGUMENT naming key,
// value and what is allowed.
class Keys {
 public:
  Keys(nlohmann::json text, nlohmann::json outer, std::string model_type)
      : text_(std::move(text)),
        outer_(std::move(outer)),
        model_type_(std::move(model_type)) {}

  const nlohmann::json& text() const { return text_; }
  const nlohmann::json& outer() const { return outer_; }
  const std::string& model_type() const { return model_type_; }
  bool Has(absl::string_view key) const { return Find(text_, key) != nullptr; }
  // For keys that may stand in the outer config as well.
  const nlohmann::json* Anywhere(absl::string_view key) const;

  // The refusal of what is at `key`, or that nothing is.
  absl::Status Odd(absl::string_view key, absl::string_view allowed) const;

  absl::StatusOr<int64_t> Int(absl::string_view key, int64_t low = 1,
                              int64_t high = kMaxDimension) const;
  absl::StatusOr<int64_t> IntOr(absl::string_view key, int64_t unset,
                                int64_t low = 0,
                                int64_t high = kMaxDimension) const;
  // The one value of several names for it; `unset` where none is there.
  // INVALID_ARGUMENT where two disagree.
  absl::StatusOr<int64_t> AnyOf(std::initializer_list<absl::string_view> keys,
                                int64_t unset) const;
  absl::StatusOr<bool> BoolOr(absl::string_view key, bool unset) const;

 private:
  nlohmann::json text_, outer_;
  std::string model_type_;
};

// The text model of a config.json. INVALID_ARGUMENT: not JSON, or without a
// model_type.
absl::StatusOr<Keys> Open(absl::string_view text);

}  // namespace fabricwise::config_json
