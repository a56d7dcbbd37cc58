// SPDX-License-Identifier: Apache-2.0
#include "client/render/models.h"

#include "absl/strings/str_cat.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "server/domain/number_format.h"

namespace fabricwise {
namespace {

std::string AttentionWords(const ModelShape& shape) {
  std::string words;
  switch (shape.attention_kind) {
    case AttentionKind::kGqa:
      words = absl::StrCat("gqa ", shape.num_attention_heads, "/",
                           shape.num_key_value_heads, " x ", shape.head_dim);
      break;
    case AttentionKind::kMla:
      words = absl::StrCat("mla ", shape.num_attention_heads, ", latent ",
                           shape.kv_lora_rank, "+", shape.qk_rope_head_dim);
      break;
  }
  if (shape.num_sliding_layers > 0) {
    absl::StrAppend(&words, ", ", shape.num_sliding_layers, " sliding");
  }
  if (shape.num_linear_layers > 0) {
    absl::StrAppend(&words, ", ", shape.num_linear_layers, " linear");
  }
  return words;
}

std::string ExpertWords(const ModelShape& shape) {
  if (!shape.is_moe()) return "";
  return absl::StrCat(shape.experts_per_token, " of ", shape.num_experts, " x ",
                      FormatCount(shape.moe_intermediate_size),
                      shape.shared_intermediate_size > 0 ? " + shared" : "");
}

}  // namespace

std::string RenderModels(const Style& style,
                         absl::Span<const ModelShape> models) {
  Table table({{"model", Align::kLeft, 0, true},
               {"layers", Align::kRight, 1},
               {"hidden", Align::kRight, 2},
               {"attention", Align::kLeft, 3},
               {"experts", Align::kLeft, 1},
               {"weights", Align::kLeft, 0},
               {"repository", Align::kLeft, 4}});
  for (const ModelShape& shape : models) {
    table.Add(
        {{Printable(shape.name), Paint::kBold},
         {absl::StrCat(shape.num_layers)},
         {FormatCount(shape.hidden_size)},
         {AttentionWords(shape)},
         {ExpertWords(shape)},
         {std::string(ToString(shape.is_moe() ? shape.expert_weights.number
                                              : shape.dense_weights.number))},
         {Printable(shape.repository), Paint::kDim}});
  }
  return table.Render(style);
}

}  // namespace fabricwise
