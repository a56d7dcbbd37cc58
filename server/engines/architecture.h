// SPDX-License-Identifier: Apache-2.0
//
// Models that engines have code of their own for: by their model_type, or,
// where that is not known, by dimensions that such models have.
#pragma once

#include "server/domain/model_shape.h"

namespace fabricwise {

// Whether the engines' code for DeepSeek runs it: DeepSeek's models, Kimi-K2
// and GLM-5; of unknown ones those with latent attention.
bool RunsAsDeepSeek(const ModelShape& model);

// Whether the code for Qwen3's MoE models does; of unknown ones those with
// grouped-query attention, no window and experts in all layers, none shared.
bool RunsAsQwen3Moe(const ModelShape& model);

}  // namespace fabricwise
