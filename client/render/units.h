// SPDX-License-Identifier: Apache-2.0
//
// Numbers as people read them: three significant digits, a unit that suits.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fabricwise {

// "1,234,567".
std::string FormatCount(int64_t value);

// Three significant digits, never an exponent: "0.0123", "1.25", "78.0",
// "1,007", "12,300". "-" for a value that is not finite.
std::string FormatNumber(double value);

// A count or size: "48" where it is whole, else as FormatNumber.
std::string FormatQuantity(double value);

// "7.63 us", "78.0 us", "1.01 ms", "12.3 s".
std::string FormatSeconds(double seconds);

// The same for round values: "1 ms", "500 us".
std::string FormatRoundSeconds(double seconds);

// A unit of time for a whole column.
struct TimeUnit {
  absl::string_view name;  // "us", "ms", "s"
  double seconds = 1;
};

// The unit in which `seconds` (the column's smallest) reads well.
TimeUnit TimeUnitFor(double seconds);

// "512 B", "14 KiB", "1.75 MiB", "139 GiB".
std::string FormatBytes(double bytes);

// "12 %", "0.4 %"; of a ratio.
std::string FormatPercent(double ratio);
// The same with a sign: "+12 %", "-3.1 %", "0 %".
std::string FormatChange(double ratio);

// "just now", "5 min ago", "3 h ago", "2 days ago"; "at a time not known" for
// the epoch, which stands for no time.
std::string FormatAge(absl::Time then, absl::Time now);

}  // namespace fabricwise
