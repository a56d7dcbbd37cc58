// SPDX-License-Identifier: Apache-2.0
#include "client/render/table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

constexpr int kGap = 2;           // columns between two cells
constexpr int kNarrowestCut = 8;  // an elastic column keeps this much

int LineWidth(const std::vector<int>& widths, const std::vector<size_t>& shown,
              int indent) {
  int width = indent + kGap * (static_cast<int>(shown.size()) - 1);
  for (size_t column : shown) width += widths[column];
  return width;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::Add(std::vector<Cell> row) {
  row.resize(columns_.size());
  rows_.push_back(std::move(row));
}

std::string Table::Render(const Style& style, int indent) const {
  if (rows_.empty()) return "";
  std::vector<int> widths(columns_.size(), 0);
  std::vector<size_t> shown;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int widest = 0;
    for (const std::vector<Cell>& row : rows_) {
      widest = std::max(widest, DisplayWidth(row[c].text));
    }
    widths[c] = std::max(widest, DisplayWidth(columns_[c].name));
    if (widest > 0) shown.push_back(c);
  }
  while (style.width > 0 && LineWidth(widths, shown, indent) > style.width) {
    auto least =
        std::max_element(shown.begin(), shown.end(), [&](size_t a, size_t b) {
          return columns_[a].expendable < columns_[b].expendable;
        });
    if (least == shown.end() || columns_[*least].expendable == 0) break;
    shown.erase(least);
  }
  if (int over = LineWidth(widths, shown, indent) - style.width;
      style.width > 0 && over > 0) {
    size_t widest = columns_.size();
    for (size_t c : shown) {
      if (!columns_[c].elastic) continue;
      if (widest == columns_.size() || widths[c] > widths[widest]) widest = c;
    }
    if (widest < columns_.size()) {
      widths[widest] = std::max(widths[widest] - over, kNarrowestCut);
    }
  }

  std::string out;
  auto append_line = [&](auto&& cell_of) {
    std::string line(static_cast<size_t>(indent), ' ');
    std::string painted = line;
    size_t cells = shown.size();
    while (cells > 0 && cell_of(shown[cells - 1]).text.empty()) --cells;
    for (size_t i = 0; i < cells; ++i) {
      size_t c = shown[i];
      Cell cell = cell_of(c);
      std::string text = Fitted(style, cell.text, widths[c]);
      bool last = i + 1 == cells;
      std::string padded = last && columns_[c].align == Align::kLeft
                               ? text
                               : Padded(text, widths[c], columns_[c].align);
      absl::StrAppend(&painted, i == 0 ? "" : std::string(kGap, ' '),
                      Painted(style, cell.paint, padded));
    }
    absl::StrAppend(&out, painted, "\n");
  };
  append_line([&](size_t c) { return Cell{columns_[c].name, Paint::kDim}; });
  if (style.unicode) {
    std::string rule;
    int length = LineWidth(widths, shown, indent) - indent;
    for (int i = 0; i < length; ++i) rule += "─";
    absl::StrAppend(&out, std::string(static_cast<size_t>(indent), ' '),
                    Painted(style, Paint::kDim, rule), "\n");
  }
  for (const std::vector<Cell>& row : rows_) {
    append_line([&](size_t c) { return row[c]; });
  }
  return out;
}

std::string Bar(const Style& style, double ratio, int columns) {
  if (!std::isfinite(ratio)) return "";
  ratio = std::clamp(ratio, 0.0, 1.0);
  if (!style.unicode) {
    return std::string(static_cast<size_t>(std::lround(ratio * columns)), '#');
  }
  constexpr int kParts = 8;
  constexpr absl::string_view kPart[kParts] = {"",  "▏", "▎", "▍",
                                               "▌", "▋", "▊", "▉"};
  long parts = std::lround(ratio * columns * kParts);
  std::string bar;
  for (long i = 0; i < parts / kParts; ++i) bar += "█";
  absl::StrAppend(&bar, kPart[parts % kParts]);
  return bar;
}

}  // namespace fabricwise
