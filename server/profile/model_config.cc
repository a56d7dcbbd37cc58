// SPDX-License-Identifier: Apache-2.0
#include "server/profile/model_config.h"

#include <string>
#include <vector>

#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/config_architecture.h"
#include "server/profile/config_attention.h"
#include "server/profile/config_experts.h"
#include "server/profile/config_formats.h"
#include "server/profile/config_keys.h"

namespace fabricwise {

absl::StatusOr<ModelShape> ParseHuggingFaceConfig(absl::string_view json,
                                                  absl::string_view name) {
  ASSIGN_OR_RETURN(const config_json::Keys keys, config_json::Open(json));
  const config_json::Family* family =
      config_json::FindFamily(keys.model_type());
  RETURN_IF_ERROR(config_json::CheckArchitecture(keys, family));

  ModelShape shape;
  shape.name = name.empty() ? keys.model_type() : std::string(name);
  shape.model_type = keys.model_type();
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
  ASSIGN_OR_RETURN(const config_json::LayerKinds kinds,
                   config_json::ReadAttention(keys, family, &shape));
  const config_json::Experts experts =
      family != nullptr ? family->experts : config_json::GuessExperts(keys);
  ASSIGN_OR_RETURN(const std::vector<bool> is_moe,
                   config_json::ReadFeedForward(keys, experts, &shape));
  ASSIGN_OR_RETURN(shape.num_nextn_predict_layers,
                   config_json::CountPredictLayers(keys));
  // Before the formats: their votes multiply sizes that only a valid shape
  // bounds.
  RETURN_IF_ERROR(Validate(shape));
  RETURN_IF_ERROR(config_json::ReadFormats(keys, kinds, is_moe, &shape));
  RETURN_IF_ERROR(Validate(shape));
  return shape;
}

}  // namespace fabricwise
