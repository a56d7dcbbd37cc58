// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace fabricwise {

// The content of a plain file. Errors name the path. NOT_FOUND: there is none.
// PERMISSION_DENIED: this user may not read it. INVALID_ARGUMENT: it is not a
// plain file, or longer than `most_bytes`. UNAVAILABLE: reading failed.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     size_t most_bytes);

}  // namespace fabricwise
