// SPDX-License-Identifier: Apache-2.0
//
// Words for a bad argument, the same everywhere: which field, what it is, what
// is allowed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

// INVALID_ARGUMENT "`field` is `value`; allowed: `allowed`".
absl::Status NotAllowed(absl::string_view field, absl::string_view value,
                        absl::string_view allowed);

// OK where low <= value <= high; else INVALID_ARGUMENT that names all four.
absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low,
                        int64_t high);

// The same for a real number; NaN is never in range.
absl::Status CheckRange(absl::string_view field, double value, double low,
                        double high);

// `text` in single quotes, fit for a message: control bytes escaped, cut after
// 64 bytes.
std::string Quoted(absl::string_view text);

}  // namespace fabricwise
