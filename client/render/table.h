// SPDX-License-Identifier: Apache-2.0
//
// A table of text that fits its terminal: columns of least weight give way
// first, then the widest text column is cut. Without a width nothing is.
#pragma once

#include <string>
#include <vector>

#include "client/render/style.h"
#include "client/render/text.h"

namespace fabricwise {

struct Cell {
  std::string text;  // printable
  Paint paint = Paint::kNone;
};

struct Column {
  std::string name;
  Align align = Align::kLeft;
  // 0: always shown; else the highest goes first where there is no room.
  int expendable = 0;
  // Whether its cells may be cut where there is no room.
  bool elastic = false;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns);

  // As many cells as there are columns.
  void Add(std::vector<Cell> row);

  // Lines with two spaces between columns, each after `indent` spaces. Columns
  // whose every cell is empty are left out. Empty for a table without rows.
  std::string Render(const Style& style, int indent = 1) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// A horizontal bar of `columns` cells filled to `ratio` (0 to 1), in eighths
// of a cell where the style has Unicode.
std::string Bar(const Style& style, double ratio, int columns);

}  // namespace fabricwise
