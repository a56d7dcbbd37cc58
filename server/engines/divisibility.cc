// SPDX-License-Identifier: Apache-2.0
#include "server/engines/divisibility.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

// vLLM model_executor/layers/quantization/fp8.py and SGLang
// srt/layers/quantization/fp8.py: block_n and block_k of every checkpoint.
constexpr int64_t kFp8Block = 128;
// vLLM .../quantization/utils/marlin_utils.py: GPTQ_MARLIN_MIN_THREAD_N.
constexpr int64_t kMarlinTile = 64;

}  // namespace

std::optional<std::string> MultipleRefusal(absl::string_view what,
                                           int64_t value, absl::string_view by,
                                           int64_t divisor) {
  if (value % divisor == 0) return std::nullopt;
  return absl::StrCat(what, " ", value, " is not a multiple of ", by, " ",
                      divisor);
}

std::optional<std::string> ShareRefusal(absl::string_view what, int64_t width,
                                        absl::string_view by, int64_t parts,
                                        absl::string_view unit_name,
                                        int64_t unit) {
  const int64_t share = width / parts;
  if (share % unit == 0) return std::nullopt;
  return absl::StrCat(what, " ", width, " / ", by, " ", parts, " = ", share,
                      " is not a multiple of ", unit_name, " ", unit);
}

std::optional<std::string> QuantizedShareRefusal(absl::string_view what,
                                                 int64_t width,
                                                 absl::string_view by,
                                                 int64_t parts,
                                                 const WeightFormat& format) {
  if (parts == 1) return std::nullopt;
  switch (format.number) {
    case NumberFormat::kFp8Block:
      return ShareRefusal(what, width, by, parts, "fp8 block", kFp8Block);
    case NumberFormat::kInt4Group:
      return ShareRefusal(what, width, by, parts, "int4 group",
                          std::max(kMarlinTile, format.group_size));
    case NumberFormat::kBf16:
    case NumberFormat::kFp8:
    case NumberFormat::kMxfp4:
    case NumberFormat::kNvfp4:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::string> CommonRefusal(const ModelShape& model,
                                         const Plan& plan) {
  const int64_t t = plan.attention_tp;
  if (auto refusal = MultipleRefusal("num_attention_heads",
                                     model.num_attention_heads, "TP", t)) {
    return refusal;
  }
  const int64_t kv = model.num_key_value_heads;
  if (model.attention_kind == AttentionKind::kGqa && kv % t != 0 &&
      t % kv != 0) {
    return absl::StrCat("num_key_value_heads ", kv, " and TP ", t,
                        " do not divide one another");
  }
  if (model.num_linear_layers > 0) {
    if (auto refusal = MultipleRefusal("linear_key_heads",
                                       model.linear_key_heads, "TP", t)) {
      return refusal;
    }
  }
  if (model.num_dense_layers > 0) {
    if (auto refusal = MultipleRefusal("intermediate_size",
                                       model.intermediate_size, "TP", t)) {
      return refusal;
    }
  }
  if (model.is_moe()) {
    if (auto refusal = MultipleRefusal("moe_intermediate_size",
                                       model.moe_intermediate_size, "MoE TP",
                                       plan.moe_tp)) {
      return refusal;
    }
    if (plan.expert_parallel > model.num_experts) {
      return absl::StrCat("EP ", plan.expert_parallel, " exceeds num_experts ",
                          model.num_experts);
    }
  }
  if (plan.pipeline > model.num_layers) {
    return absl::StrCat("PP ", plan.pipeline, " exceeds num_layers ",
                        model.num_layers);
  }
  return std::nullopt;
}

}  // namespace fabricwise
