// SPDX-License-Identifier: Apache-2.0
#include "server/profile/config_formats.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/quantization.h"

namespace fabricwise::config_json {
namespace {

using nlohmann::json;

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

}  // namespace

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

}  // namespace fabricwise::config_json
