// SPDX-License-Identifier: Apache-2.0
//
// From the config.json that comes with a model on Hugging Face to its shape.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

// The shape that `json`, a config.json of at most 1 MiB, describes, named
// `name` (its model_type where that is empty). Of a model with vision or
// speech, the text part.
//
// INVALID_ARGUMENT naming the key that is missing or odd, its value and what is
// allowed. A model_type that is not known is taken for a plain decoder of
// Llama's, Mixtral's or DeepSeek's kind, if every key is known to change
// nothing else.
//
// What a shape cannot say is taken so: of weights that are quantized in part,
// the format of most of them holds for the whole class (attention, dense,
// experts, shared experts); float16 and float32 count as bf16, as engines load
// them; DeepSeek-V4's shared 512-wide KV entries count as latent attention
// without their compression over tokens.
absl::StatusOr<ModelShape> ParseHuggingFaceConfig(absl::string_view json,
                                                  absl::string_view name);

}  // namespace fabricwise
