// SPDX-License-Identifier: Apache-2.0
#include "server/base/argument.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

// Enough to recognise a value, too little to flood a log with it.
constexpr size_t kMaxQuotedBytes = 64;

}  // namespace

absl::Status NotAllowed(absl::string_view field, absl::string_view value,
                        absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; allowed: ", allowed));
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low,
                        int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return NotAllowed(field, absl::StrCat(value),
                    absl::StrCat(low, " to ", high));
}

absl::Status CheckRange(absl::string_view field, double value, double low,
                        double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return NotAllowed(field, absl::StrCat(value),
                    absl::StrCat(low, " to ", high));
}

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kMaxQuotedBytes;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kMaxQuotedBytes)),
                      cut ? "...'" : "'");
}

}  // namespace fabricwise
