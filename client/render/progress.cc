// SPDX-License-Identifier: Apache-2.0
#include "client/render/progress.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "client/render/text.h"

namespace fabricwise {
namespace {

constexpr int kLeastBarColumns = 4, kMostBarColumns = 24;
constexpr int64_t kWhole = 100;

}  // namespace

std::string RenderProgress(const Style& style,
                           const v1::RunMeasurementResponse& progress) {
  const int64_t total = std::max<int64_t>(progress.total_count(), 1);
  const int64_t done = std::clamp<int64_t>(progress.done_count(), 0, total);
  const int columns =
      std::clamp(style.width / 3, kLeastBarColumns, kMostBarColumns);
  const auto filled = static_cast<int>(done * columns / total);
  std::string bar;
  for (int i = 0; i < columns; ++i) {
    bar +=
        i < filled ? (style.unicode ? "━" : "#") : (style.unicode ? "─" : "-");
  }
  const std::string facts = absl::StrCat(
      "  ", Padded(absl::StrCat(done * kWhole / total), 3, Align::kRight),
      " %  ", done, " of ", progress.total_count(), "  ",
      Printable(progress.key()));
  // The bar, its edges and the space before it.
  const int left = style.width - 1 - (columns + 3);
  return absl::StrCat(" [", Painted(style, Paint::kGood, bar), "]",
                      left > 0 ? Fitted(style, facts, left) : "");
}

std::string ClearProgress(const Style& style) {
  return absl::StrCat(
      "\r", std::string(static_cast<size_t>(std::max(style.width - 1, 0)), ' '),
      "\r");
}

}  // namespace fabricwise
