// SPDX-License-Identifier: Apache-2.0
//
// JSON from outside: bounded, and without the library's exceptions.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace fabricwise {

inline constexpr size_t kMaxJsonBytes = size_t{1} << 20;
inline constexpr int kMaxJsonDepth = 32;

// The object that `text` holds. INVALID_ARGUMENT, beginning with `what` ("the
// config"), where it is over `max_bytes`, nested deeper than kMaxJsonDepth,
// not JSON, not an object, or names a key twice.
absl::StatusOr<nlohmann::json> ParseJsonObject(
    absl::string_view what, absl::string_view text,
    size_t max_bytes = kMaxJsonBytes);

// A value as it may stand in a message: compact, cut after 64 bytes.
std::string Shown(const nlohmann::json& value);

// The value at `key`; null where it is absent or JSON null. `object` must
// outlive the answer.
const nlohmann::json* Find(const nlohmann::json& object, absl::string_view key);

}  // namespace fabricwise
