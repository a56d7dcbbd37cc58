// SPDX-License-Identifier: Apache-2.0
#include "client/render/units.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fabricwise {
namespace {

constexpr int kSignificantDigits = 3;

// Whether `value` is shown as `limit` or more once it is rounded.
bool RoundsUpTo(double value, double limit) {
  return value >= limit * (1 - 0.5 * std::pow(10, -kSignificantDigits));
}

TimeUnit UnitOf(double seconds) {
  if (RoundsUpTo(seconds, 1)) return {"s", 1};
  if (RoundsUpTo(seconds, 1e-3)) return {"ms", 1e-3};
  return {"us", 1e-6};
}

std::string Plural(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace

std::string FormatCount(int64_t value) {
  std::string digits = absl::StrCat(value);
  size_t first = value < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string FormatNumber(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  double magnitude = std::abs(value);
  int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
  if (RoundsUpTo(magnitude, std::pow(10, exponent + 1))) ++exponent;
  constexpr int kMostDecimals = 9;
  int decimals =
      std::clamp(kSignificantDigits - 1 - exponent, 0, kMostDecimals);
  if (exponent < kSignificantDigits) {
    return absl::StrFormat("%.*f", decimals, value);
  }
  constexpr double kLargestGrouped = 9e15;  // exact in a double and in 64 bits
  if (magnitude > kLargestGrouped) return absl::StrFormat("%.3g", value);
  // Whole numbers up to five digits are exact; beyond, digits past the third
  // would claim a precision that no prediction has.
  constexpr int kLargestExactExponent = 4;
  double step = exponent > kLargestExactExponent
                    ? std::pow(10, exponent + 1 - kSignificantDigits)
                    : 1;
  return FormatCount(std::llround(value / step) *
                     static_cast<int64_t>(std::llround(step)));
}

TimeUnit TimeUnitFor(double seconds) {
  // A tenth of a unit still reads well and saves a change of unit.
  if (seconds < 0.1e-3) return {"us", 1e-6};
  if (seconds < 1) return {"ms", 1e-3};
  return {"s", 1};
}

std::string FormatQuantity(double value) {
  constexpr double kLargestExact = 1e5;
  if (value == std::round(value) && std::abs(value) < kLargestExact) {
    return FormatCount(std::llround(value));
  }
  return FormatNumber(value);
}

std::string FormatSeconds(double seconds) {
  TimeUnit unit = UnitOf(seconds);
  return absl::StrCat(FormatNumber(seconds / unit.seconds), " ", unit.name);
}

std::string FormatRoundSeconds(double seconds) {
  TimeUnit unit = UnitOf(seconds);
  return absl::StrFormat("%.3g %s", seconds / unit.seconds, unit.name);
}

std::string FormatBytes(double bytes) {
  constexpr absl::string_view kUnits[] = {"B",   "KiB", "MiB",
                                          "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && RoundsUpTo(std::abs(bytes), 1024)) {
    bytes /= 1024;
    ++unit;
  }
  // Sizes are mostly powers of two: "16 KiB" needs no decimals.
  std::string number = bytes == std::floor(bytes) && std::abs(bytes) < 1e4
                           ? absl::StrCat(static_cast<int64_t>(bytes))
                           : FormatNumber(bytes);
  return absl::StrCat(number, " ", kUnits[unit]);
}

std::string FormatPercent(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  double percent = ratio * 100;
  int decimals = std::abs(percent) < 9.95 && percent != 0 ? 1 : 0;
  return absl::StrFormat("%.*f %%", decimals, percent);
}

std::string FormatChange(double ratio) {
  if (!std::isfinite(ratio)) return "-";
  if (std::abs(ratio) < 0.5e-3) return "0 %";
  return absl::StrCat(ratio > 0 ? "+" : "", FormatPercent(ratio));
}

std::string FormatAge(absl::Time then, absl::Time now) {
  if (then == absl::UnixEpoch()) return "at a time not known";
  absl::Duration age = now - then;
  // Clocks of two machines differ a little; more than that is worth a word.
  constexpr absl::Duration kSkew = absl::Minutes(1);
  if (age < -kSkew) return "in the future by this clock";
  if (age < absl::Minutes(1)) return "just now";
  if (age < absl::Hours(1)) {
    return absl::StrCat(absl::ToInt64Minutes(age), " min ago");
  }
  constexpr int64_t kHoursShown = 48;
  if (age < absl::Hours(kHoursShown)) {
    return absl::StrCat(absl::ToInt64Hours(age), " h ago");
  }
  return absl::StrCat(Plural(absl::ToInt64Hours(age) / 24, "day"), " ago");
}

}  // namespace fabricwise
