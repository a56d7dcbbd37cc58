// SPDX-License-Identifier: Apache-2.0
//
// Decimal text to numbers, strictly.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace fabricwise {

// A finite number in the usual decimal notation, nothing around it.
std::optional<double> ParseDecimal(absl::string_view text);

// `text` microseconds in seconds: the double nearest to the decimal number
// itself, so that "6.78" becomes 6.78e-06 and not a neighbour of it, and is
// written back as short as it came. nullopt: no number.
std::optional<double> SecondsFromMicros(absl::string_view text);
double SecondsFromMicros(double micros);

}  // namespace fabricwise
