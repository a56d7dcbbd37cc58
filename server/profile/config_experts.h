// SPDX-License-Identifier: Apache-2.0
//
// The feed-forward part that a config.json describes: which layers have
// experts, and all widths. Internal to its reading.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/domain/model_shape.h"
#include "server/profile/config_keys.h"

namespace fabricwise::config_json {

// The reading of an unknown model_type.
Experts GuessExperts(const Keys& keys);

// Fills the shape's feed-forward and answers which layers have experts.
absl::StatusOr<std::vector<bool>> ReadFeedForward(const Keys& keys,
                                                  Experts experts,
                                                  ModelShape* shape);

// Layers that predict tokens ahead (MTP).
absl::StatusOr<int64_t> CountPredictLayers(const Keys& keys);

}  // namespace fabricwise::config_json
