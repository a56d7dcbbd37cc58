// SPDX-License-Identifier: Apache-2.0
#include "server/profile/decimal.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

constexpr int kMicrosExponent = -6;

}  // namespace

std::optional<double> ParseDecimal(absl::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<double> SecondsFromMicros(absl::string_view text) {
  if (!ParseDecimal(text).has_value()) return std::nullopt;
  const size_t mark = text.find_first_of("eE");
  int exponent = 0;
  if (mark != absl::string_view::npos &&
      !absl::SimpleAtoi(text.substr(mark + 1), &exponent)) {
    return std::nullopt;
  }
  return ParseDecimal(
      absl::StrCat(text.substr(0, mark), "e", exponent + kMicrosExponent));
}

double SecondsFromMicros(double micros) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(),
                                 micros, std::chars_format::scientific)
                       .ptr;
  const absl::string_view text(buffer.data(),
                               static_cast<size_t>(end - buffer.data()));
  return SecondsFromMicros(text).value_or(micros / 1e6);
}

}  // namespace fabricwise
