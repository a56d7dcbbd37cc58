// SPDX-License-Identifier: Apache-2.0
//
// The attention that a config.json describes. Internal to its reading.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "server/domain/model_shape.h"
#include "server/profile/config_keys.h"

namespace fabricwise::config_json {

enum class LayerKind { kFull, kSliding, kChunked, kLinear };
using LayerKinds = std::vector<LayerKind>;

// Fills the shape's attention and answers what each layer has. `family` may be
// null: not known.
absl::StatusOr<LayerKinds> ReadAttention(const Keys& keys, const Family* family,
                                         ModelShape* shape);

}  // namespace fabricwise::config_json
