// SPDX-License-Identifier: Apache-2.0
#include "server/profile/config_architecture.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/json_text.h"

namespace fabricwise::config_json {
namespace {

using nlohmann::json;

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
     "audio_config", "name", "language_model_only",
     // Without effect with the values that kSwitches allows.
     "is_encoder_decoder", "add_cross_attention", "is_causal"});

// Keys of layers that keep a state, by the models that have them: Mamba and its
// kin, Jamba, Bamba, Granite, Nemotron-H, RecurrentGemma, LFM2, Kimi-Linear.
constexpr auto kStateKeys = std::to_array<absl::string_view>(
    {"state_size", "conv_kernel", "time_step_rank", "ssm_cfg", "ssm_state_size",
     "mamba_d_state", "mamba_n_heads", "mamba_num_heads",
     "hybrid_override_pattern", "lru_width", "conv_L_cache",
     "linear_attn_config"});

// Flags, and which value leaves a decoder.
struct Switch {
  absl::string_view key;
  bool allowed;
  absl::string_view why;
};
constexpr auto kSwitches = std::to_array<Switch>(
    {{"is_encoder_decoder", false, "a decoder alone is understood"},
     {"add_cross_attention", false, "a decoder alone is understood"},
     {"use_bidirectional_attention", false, "a decoder is understood"},
     {"is_causal", true, "a decoder is understood"}});

absl::Status CheckSwitches(const json& config) {
  for (const Switch& known : kSwitches) {
    const json* value = Find(config, known.key);
    if (value == nullptr || *value == json(known.allowed)) continue;
    return NotAllowed(
        known.key, Shown(*value),
        absl::StrCat(known.allowed ? "true: " : "false: ", known.why));
  }
  return absl::OkStatus();
}

absl::Status CheckStateKeys(const json& config) {
  for (const absl::string_view key : kStateKeys) {
    const json* value = Find(config, key);
    if (value == nullptr) continue;
    return NotAllowed(key, Shown(*value),
                      "no such key: of layers that keep a state, "
                      "linear_attention as Qwen3-Next has it is understood, "
                      "state-space and convolution layers are not");
  }
  return absl::OkStatus();
}

// What the whole model is for.
absl::Status CheckHead(const Keys& keys, const Family* family) {
  constexpr absl::string_view kAllowed =
      "a name that ends in ForCausalLM or ForConditionalGeneration, of a model "
      "that writes text";
  const json* names = Find(keys.outer(), "architectures");
  if (names == nullptr) names = Find(keys.text(), "architectures");
  if (names == nullptr) {
    return family != nullptr ? absl::OkStatus()
                             : keys.Odd("architectures", kAllowed);
  }
  const auto writes = [](const json& name) {
    if (!name.is_string()) return false;
    const std::string& text = name.get_ref<const std::string&>();
    return absl::EndsWith(text, "ForCausalLM") ||
           absl::EndsWith(text, "ForConditionalGeneration");
  };
  if (names->is_array() && std::any_of(names->begin(), names->end(), writes)) {
    return absl::OkStatus();
  }
  return NotAllowed("architectures", Shown(*names), kAllowed);
}

absl::Status CheckPlain(const Keys& keys) {
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
  // The base class of configurations ties, most models do not.
  if (keys.Anywhere("tie_word_embeddings") == nullptr) {
    return keys.Odd("tie_word_embeddings", "true, false");
  }
  for (const absl::string_view key : {"hidden_act", "hidden_activation"}) {
    const json* value = Find(keys.text(), key);
    if (value == nullptr || *value == "silu" || *value == "swish" ||
        *value == "gelu" || *value == "gelu_pytorch_tanh") {
      continue;
    }
    return keys.Odd(key,
                    "silu, swish, gelu, gelu_pytorch_tanh: of an unknown "
                    "model_type, a gated feed-forward is understood");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckArchitecture(const Keys& keys, const Family* family) {
  for (const json* config : {&keys.text(), &keys.outer()}) {
    RETURN_IF_ERROR(CheckSwitches(*config));
    RETURN_IF_ERROR(CheckStateKeys(*config));
  }
  RETURN_IF_ERROR(CheckHead(keys, family));
  return family != nullptr ? absl::OkStatus() : CheckPlain(keys);
}

}  // namespace fabricwise::config_json
