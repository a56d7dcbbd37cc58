// SPDX-License-Identifier: Apache-2.0
//
// The model that --model or --config names, in this process.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

// The contract's own limit for the text of a config.json.
inline constexpr int64_t kMostConfigBytes = 1 << 20;

// One of the two is to be set. NOT_FOUND: no such preset (names the nearest) or
// file. INVALID_ARGUMENT: neither or both, a config that is not understood.
absl::StatusOr<ModelShape> FindShape(const std::string& preset,
                                     const std::string& config_path);
}  // namespace fabricwise
