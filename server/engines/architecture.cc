// SPDX-License-Identifier: Apache-2.0
#include "server/engines/architecture.h"

#include "absl/strings/match.h"

namespace fabricwise {

bool RunsAsDeepSeek(const ModelShape& model) {
  const std::string& type = model.model_type;
  if (type.empty()) return model.attention_kind == AttentionKind::kMla;
  return absl::StartsWith(type, "deepseek_v") ||
         absl::StartsWith(type, "kimi_k2") || type == "glm_moe_dsa";
}

bool RunsAsQwen3Moe(const ModelShape& model) {
  const std::string& type = model.model_type;
  if (!type.empty()) return type == "qwen3_moe" || type == "qwen3_vl_moe_text";
  return model.num_dense_layers == 0 && model.shared_intermediate_size == 0 &&
         model.attention_kind == AttentionKind::kGqa &&
         model.num_sliding_layers == 0;
}

}  // namespace fabricwise
