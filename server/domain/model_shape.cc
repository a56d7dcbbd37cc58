// SPDX-License-Identifier: Apache-2.0
#include "server/domain/model_shape.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

struct Field {
  absl::string_view name;
  int64_t value;
};

std::string Path(absl::string_view field) {
  return absl::StrCat("model.", field);
}

absl::Status Require(const Field& field, int64_t low = 1,
                     int64_t high = kMaxDimension) {
  return CheckRange(Path(field.name), field.value, low, high);
}

// All fields set where the model has the part, all 0 where not.
absl::Status CheckPart(bool has_part, absl::string_view part,
                       absl::Span<const Field> fields) {
  for (const Field& field : fields) {
    if (has_part) {
      RETURN_IF_ERROR(Require(field));
    } else if (field.value != 0) {
      return NotAllowed(Path(field.name), absl::StrCat(field.value),
                        absl::StrCat("0 without ", part));
    }
  }
  return absl::OkStatus();
}

// The width that several heads or experts have together.
absl::Status CheckWidth(const Field& count, const Field& width) {
  const int64_t product = count.value * width.value;  // each within 2^24
  if (product <= kMaxDimension) return absl::OkStatus();
  return NotAllowed(absl::StrCat(Path(count.name), " x ", width.name),
                    absl::StrCat(product),
                    absl::StrCat("at most ", kMaxDimension));
}

absl::Status CheckFormat(absl::string_view name, const WeightFormat& format) {
  const std::string field = absl::StrCat(Path(name), ".group_size");
  if (format.number == NumberFormat::kInt4Group) {
    return CheckRange(field, format.group_size, kMinGroupSize, kMaxGroupSize);
  }
  if (format.group_size == 0) return absl::OkStatus();
  return NotAllowed(field, absl::StrCat(format.group_size),
                    absl::StrCat("0 for ", ToString(format.number)));
}

absl::Status CheckSize(const ModelShape& s) {
  if (static_cast<int64_t>(s.name.size()) > kMaxModelNameBytes) {
    return NotAllowed("model.name", absl::StrCat(s.name.size(), " bytes long"),
                      absl::StrCat("at most ", kMaxModelNameBytes));
  }
  if (static_cast<int64_t>(s.repository.size()) > kMaxRepositoryBytes) {
    return NotAllowed("model.repository",
                      absl::StrCat(s.repository.size(), " bytes long"),
                      absl::StrCat("at most ", kMaxRepositoryBytes));
  }
  // It becomes a word of a command, where it would be an option.
  if (absl::StartsWith(s.repository, "-")) {
    return NotAllowed("model.repository", Quoted(s.repository),
                      "not to begin with '-'");
  }
  if (static_cast<int64_t>(s.model_type.size()) > kMaxModelTypeBytes) {
    return NotAllowed("model.model_type",
                      absl::StrCat(s.model_type.size(), " bytes long"),
                      absl::StrCat("at most ", kMaxModelTypeBytes));
  }
  RETURN_IF_ERROR(Require({"hidden_size", s.hidden_size}));
  RETURN_IF_ERROR(Require({"num_layers", s.num_layers}, 1, kMaxLayers));
  return Require({"vocab_size", s.vocab_size});
}

absl::Status CheckAttention(const ModelShape& s) {
  const Field heads = {"num_attention_heads", s.num_attention_heads};
  RETURN_IF_ERROR(Require(heads));
  const bool latent = s.attention_kind == AttentionKind::kMla;
  const Field kv_heads = {"num_key_value_heads", s.num_key_value_heads};
  const Field head_dim = {"head_dim", s.head_dim};
  RETURN_IF_ERROR(
      CheckPart(!latent, "grouped-query attention", {kv_heads, head_dim}));
  const Field v_head_dim = {"v_head_dim", s.v_head_dim};
  RETURN_IF_ERROR(Require(v_head_dim));
  RETURN_IF_ERROR(CheckWidth(heads, v_head_dim));

  const Field nope = {"qk_nope_head_dim", s.qk_nope_head_dim};
  const Field rope = {"qk_rope_head_dim", s.qk_rope_head_dim};
  RETURN_IF_ERROR(CheckPart(latent, "latent attention",
                            {{"kv_lora_rank", s.kv_lora_rank}, nope, rope}));
  if (latent) {
    RETURN_IF_ERROR(Require({"q_lora_rank", s.q_lora_rank}, 0));
    RETURN_IF_ERROR(CheckWidth(heads, nope));
    return CheckWidth(heads, rope);
  }
  RETURN_IF_ERROR(
      CheckPart(false, "latent attention", {{"q_lora_rank", s.q_lora_rank}}));
  RETURN_IF_ERROR(CheckWidth(heads, head_dim));
  if (s.num_attention_heads % s.num_key_value_heads == 0) {
    return absl::OkStatus();
  }
  return NotAllowed(
      Path(kv_heads.name), absl::StrCat(kv_heads.value),
      absl::StrCat("a divisor of num_attention_heads, ", heads.value));
}

absl::Status CheckAttentionLayers(const ModelShape& s) {
  RETURN_IF_ERROR(
      Require({"num_sliding_layers", s.num_sliding_layers}, 0, s.num_layers));
  RETURN_IF_ERROR(Require({"num_linear_layers", s.num_linear_layers}, 0,
                          s.num_layers - s.num_sliding_layers));
  RETURN_IF_ERROR(CheckPart(s.num_sliding_layers > 0, "sliding layers",
                            {{"sliding_window", s.sliding_window}}));

  const Field index_heads = {"index_heads", s.index_heads};
  const Field index_dim = {"index_head_dim", s.index_head_dim};
  RETURN_IF_ERROR(
      CheckPart(s.index_topk != 0, "index_topk",
                {{"index_topk", s.index_topk}, index_heads, index_dim}));
  RETURN_IF_ERROR(CheckWidth(index_heads, index_dim));

  const Field key_heads = {"linear_key_heads", s.linear_key_heads};
  const Field key_dim = {"linear_key_head_dim", s.linear_key_head_dim};
  const Field value_heads = {"linear_value_heads", s.linear_value_heads};
  const Field value_dim = {"linear_value_head_dim", s.linear_value_head_dim};
  RETURN_IF_ERROR(CheckPart(s.num_linear_layers > 0, "linear layers",
                            {key_heads,
                             value_heads,
                             key_dim,
                             value_dim,
                             {"linear_conv_kernel", s.linear_conv_kernel}}));
  RETURN_IF_ERROR(CheckWidth(key_heads, key_dim));
  return CheckWidth(value_heads, value_dim);
}

absl::Status CheckFeedForward(const ModelShape& s) {
  RETURN_IF_ERROR(
      Require({"num_dense_layers", s.num_dense_layers}, 0, s.num_layers));
  RETURN_IF_ERROR(
      Require({"num_moe_layers", s.num_moe_layers}, 0, s.num_layers));
  if (s.num_dense_layers + s.num_moe_layers != s.num_layers) {
    return NotAllowed("model.num_dense_layers + num_moe_layers",
                      absl::StrCat(s.num_dense_layers + s.num_moe_layers),
                      absl::StrCat("num_layers, ", s.num_layers));
  }
  RETURN_IF_ERROR(CheckPart(s.num_dense_layers > 0, "dense layers",
                            {{"intermediate_size", s.intermediate_size}}));
  const Field experts = {"num_experts", s.num_experts};
  const Field width = {"moe_intermediate_size", s.moe_intermediate_size};
  const Field top_k = {"experts_per_token", s.experts_per_token};
  const Field shared = {"shared_intermediate_size", s.shared_intermediate_size};
  if (s.is_moe()) RETURN_IF_ERROR(Require(experts, 1, kMaxExperts));
  RETURN_IF_ERROR(CheckPart(s.is_moe(), "MoE layers", {experts, top_k, width}));
  if (!s.is_moe()) return CheckPart(false, "MoE layers", {shared});
  RETURN_IF_ERROR(Require(top_k, 1, s.num_experts));
  RETURN_IF_ERROR(Require(shared, 0));
  return CheckWidth(experts, width);
}

absl::Status CheckFormats(const ModelShape& s) {
  RETURN_IF_ERROR(CheckFormat("attention_weights", s.attention_weights));
  RETURN_IF_ERROR(CheckFormat("dense_weights", s.dense_weights));
  RETURN_IF_ERROR(CheckFormat("expert_weights", s.expert_weights));
  RETURN_IF_ERROR(
      CheckFormat("shared_expert_weights", s.shared_expert_weights));
  switch (s.kv_cache_format) {
    case NumberFormat::kBf16:
    case NumberFormat::kFp8:
    case NumberFormat::kNvfp4:
      return absl::OkStatus();
    case NumberFormat::kFp8Block:
    case NumberFormat::kInt4Group:
    case NumberFormat::kMxfp4:
      break;
  }
  return NotAllowed("model.kv_cache_format",
                    std::string(ToString(s.kv_cache_format)),
                    "bf16, fp8, nvfp4");
}

// Products of dimensions as reals: this also runs on shapes that are refused
// for being too large.
double Area(int64_t rows, int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(columns);
}

double SoftmaxAttentionParameters(const ModelShape& s) {
  const int64_t heads = s.num_attention_heads;
  double total = Area(heads * s.v_head_dim, s.hidden_size);  // output
  if (s.attention_kind == AttentionKind::kGqa) {
    total += Area(s.hidden_size, heads * s.head_dim);
    total += Area(s.hidden_size,
                  s.num_key_value_heads * (s.head_dim + s.v_head_dim));
  } else {
    const int64_t query = heads * (s.qk_nope_head_dim + s.qk_rope_head_dim);
    total += s.q_lora_rank > 0 ? Area(s.hidden_size + query, s.q_lora_rank)
                               : Area(s.hidden_size, query);
    total += Area(s.hidden_size, s.kv_lora_rank + s.qk_rope_head_dim);
    total += Area(s.kv_lora_rank, heads * (s.qk_nope_head_dim + s.v_head_dim));
  }
  const int64_t index_input = s.q_lora_rank > 0 ? s.q_lora_rank : s.hidden_size;
  return total + Area(index_input, s.index_heads * s.index_head_dim) +
         Area(s.hidden_size, s.index_head_dim + s.index_heads);
}

// Gated delta net: q, k, v, output gate, two scalars a value head, the
// convolution over q, k and v, and the output.
double LinearAttentionParameters(const ModelShape& s) {
  const int64_t key = s.linear_key_heads * s.linear_key_head_dim;
  const int64_t value = s.linear_value_heads * s.linear_value_head_dim;
  return Area(s.hidden_size, 2 * key + 2 * value + 2 * s.linear_value_heads) +
         Area(s.linear_conv_kernel, 2 * key + value) +
         Area(value, s.hidden_size);
}

}  // namespace

absl::Status Validate(const ModelShape& shape) {
  RETURN_IF_ERROR(CheckSize(shape));
  RETURN_IF_ERROR(CheckAttention(shape));
  RETURN_IF_ERROR(CheckAttentionLayers(shape));
  RETURN_IF_ERROR(CheckFeedForward(shape));
  RETURN_IF_ERROR(
      Require({"num_nextn_predict_layers", shape.num_nextn_predict_layers}, 0,
              kMaxLayers));
  RETURN_IF_ERROR(CheckFormats(shape));
  const double parameters = CountParameters(shape);
  if (parameters <= kMaxParameters) return absl::OkStatus();
  return NotAllowed("model", absl::StrCat(parameters, " parameters in all"),
                    absl::StrCat("at most ", kMaxParameters));
}

double CountParameters(const ModelShape& s) {
  constexpr int kMatrices = 3;  // gate, up, down
  const double softmax_layers =
      static_cast<double>(s.num_layers - s.num_linear_layers);
  const double moe_layer =
      kMatrices * static_cast<double>(s.num_experts) *
          Area(s.hidden_size, s.moe_intermediate_size) +
      kMatrices * Area(s.hidden_size, s.shared_intermediate_size) +
      Area(s.hidden_size, s.num_experts);
  return Area(s.vocab_size, s.hidden_size) * (s.tie_word_embeddings ? 1 : 2) +
         softmax_layers * SoftmaxAttentionParameters(s) +
         static_cast<double>(s.num_linear_layers) *
             LinearAttentionParameters(s) +
         static_cast<double>(s.num_dense_layers) * kMatrices *
             Area(s.hidden_size, s.intermediate_size) +
         static_cast<double>(s.num_moe_layers) * moe_layer;
}

absl::string_view ToString(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kGqa:
      return "gqa";
    case AttentionKind::kMla:
      return "mla";
  }
  return "unknown";
}

absl::StatusOr<AttentionKind> ParseAttentionKind(absl::string_view text) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    if (text == ToString(kind)) return kind;
  }
  return NotAllowed("attention_kind", Quoted(text), "gqa, mla");
}

}  // namespace fabricwise
