// SPDX-License-Identifier: Apache-2.0
#include "server/profile/config_experts.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise::config_json {
namespace {

using nlohmann::json;

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

}  // namespace

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
                    absl::StrCat("an integer, 1 to ", kMaxExperts));
  } else if (experts == Experts::kQwen && !keys.Has("num_experts") &&
             keys.Has("moe_intermediate_size")) {
    // Said to be 0, its layers are dense; what is not said is not.
    return keys.Odd("num_experts",
                    absl::StrCat("an integer, 0 to ", kMaxExperts));
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

}  // namespace fabricwise::config_json
