// SPDX-License-Identifier: Apache-2.0
//
// The number formats that a config.json describes. Internal to its reading.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "server/domain/model_shape.h"
#include "server/profile/config_attention.h"
#include "server/profile/config_keys.h"

namespace fabricwise::config_json {

// Sets the formats of all classes of weights that the model has, and of its KV
// cache; by layer, `kinds` says what attention it has, `is_moe` whether it has
// experts. The shape's sizes are valid.
absl::Status ReadFormats(const Keys& keys, const LayerKinds& kinds,
                         const std::vector<bool>& is_moe, ModelShape* shape);

}  // namespace fabricwise::config_json
