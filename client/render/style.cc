// SPDX-License-Identifier: Apache-2.0
#include "client/render/style.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

constexpr int kFallbackColumns = 100;
constexpr int kSmallestColumns = 40;  // under it a table says nothing

// SGR parameters of the 16-colour palette, which every theme keeps readable.
absl::string_view Code(Paint paint) {
  switch (paint) {
    case Paint::kNone:
      return "";
    case Paint::kBold:
      return "1";
    case Paint::kDim:
      return "2";
    case Paint::kGood:
      return "32";
    case Paint::kWarn:
      return "33";
    case Paint::kBad:
      return "31";
    case Paint::kSeries0:
      return "36";
    case Paint::kSeries1:
      return "33";
    case Paint::kSeries2:
      return "35";
    case Paint::kSeries3:
      return "32";
    case Paint::kSeries4:
      return "34";
    case Paint::kSeries5:
      return "31";
  }
  return "";
}

}  // namespace

Paint SeriesPaint(int index) {
  constexpr std::array kSeries = {Paint::kSeries0, Paint::kSeries1,
                                  Paint::kSeries2, Paint::kSeries3,
                                  Paint::kSeries4, Paint::kSeries5};
  return kSeries[static_cast<size_t>(index) % kSeries.size()];
}

std::string Painted(const Style& style, Paint paint, absl::string_view text) {
  absl::string_view code = Code(paint);
  if (!style.color || code.empty() || text.empty()) return std::string(text);
  return absl::StrCat("\x1b[", code, "m", text, "\x1b[0m");
}

Style StyleFor(const TerminalFacts& facts, StyleChoice choice) {
  bool rich = choice == StyleChoice::kAlways ||
              (choice == StyleChoice::kAuto && facts.is_terminal);
  Style style;
  if (facts.is_terminal || rich) {
    style.width = facts.columns > 0 ? facts.columns : kFallbackColumns;
    if (style.width < kSmallestColumns) style.width = kSmallestColumns;
  }
  if (!rich) return style;
  style.color = !facts.no_color && facts.term != "dumb";
  std::string locale = absl::AsciiStrToLower(facts.locale);
  style.unicode =
      absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8");
  return style;
}

}  // namespace fabricwise
