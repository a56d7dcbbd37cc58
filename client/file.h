// SPDX-License-Identifier: Apache-2.0
//
// Files whole.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

// The content of `path`; "-" is standard input. NOT_FOUND: there is no such
// file. INVALID_ARGUMENT: it is a directory, cannot be read, or holds more than
// `most_bytes`. Each names `path`.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t most_bytes);

// Writes `path` anew, whole or not at all: the file that it names, or that it
// links to. A device or a pipe is written to as it is. INVALID_ARGUMENT naming
// `path`.
absl::Status WriteFile(const std::string& path, absl::string_view content);

}  // namespace fabricwise
