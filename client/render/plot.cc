// SPDX-License-Identifier: Apache-2.0
#include "client/render/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "client/render/text.h"

namespace fabricwise {
namespace {

constexpr int kPlainColumns = 72;
constexpr int kMostColumns = 100;
constexpr int kLabelGap = 2;  // columns between two labels of an axis

int PlotColumns(const Style& style) {
  return style.width > 0 ? std::min(style.width, kMostColumns) : kPlainColumns;
}

std::string Spaces(int count) {
  return std::string(static_cast<size_t>(std::max(count, 0)), ' ');
}

// Where a value lies on a logarithmic axis of `cells` cells, in cells.
struct Axis {
  double low, high;
  int cells;

  double At(double value) const {
    if (high <= low) return 0.5 * (cells - 1);
    return std::log(value / low) / std::log(high / low) * (cells - 1);
  }
  double Value(double cell) const {
    return low * std::pow(high / low, cell / std::max(cells - 1, 1));
  }
};

// Round values of the form (1, 2 or 5) * 10^n within [low, high], thinned to
// whole decades where there are many.
std::vector<double> DecimalTicks(double low, double high, int most) {
  for (const std::vector<double>& steps :
       {std::vector<double>{1, 2, 5}, std::vector<double>{1}}) {
    std::vector<double> ticks;
    for (int e = static_cast<int>(std::floor(std::log10(low)));
         e <= std::ceil(std::log10(high)); ++e) {
      for (double step : steps) {
        double tick = step * std::pow(10.0, e);
        if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push_back(tick);
      }
    }
    if (static_cast<int>(ticks.size()) <= most || steps.size() == 1) {
      return ticks;
    }
  }
  return {};
}

std::vector<double> BinaryTicks(double low, double high, int most) {
  int first = static_cast<int>(std::ceil(std::log2(low) - 1e-9));
  int last = static_cast<int>(std::floor(std::log2(high) + 1e-9));
  int stride = 1;
  while ((last - first) / stride + 1 > std::max(most, 1)) stride *= 2;
  std::vector<double> ticks;
  for (int e = first; e <= last; ++e) {
    if (e % stride == 0) ticks.push_back(std::pow(2.0, e));
  }
  return ticks;
}

// One line of labels, each centred under its cell, dropped where it would touch
// the one before it.
std::string LabelLine(const std::vector<std::pair<int, std::string>>& labels,
                      int columns) {
  std::string line;
  int used = 0;
  for (const auto& [cell, label] : labels) {
    int width = DisplayWidth(label);
    int start = std::clamp(cell - width / 2, 0, std::max(columns - width, 0));
    if (used > 0 && start < used + kLabelGap) continue;
    absl::StrAppend(&line, Spaces(start - used), label);
    used = start + width;
  }
  return line;
}

// A grid of dots, `2 * columns` by `4 * rows`, shown as Braille characters.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns),
        cells_(static_cast<size_t>(columns * rows), uint8_t{0}) {}

  void Dot(int x, int y) {
    // Unicode numbers the dots of a Braille cell down the left, down the right,
    // and the bottom pair last.
    constexpr uint8_t kBit[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    size_t cell = Index(x / 2, y / 4);
    if (cell < cells_.size()) {
      cells_[cell] = static_cast<uint8_t>(cells_[cell] | kBit[y % 4][x % 2]);
    }
  }

  std::string Cell(const Style& style, int column, int row) const {
    uint8_t bits = cells_[Index(column, row)];
    if (bits == 0) return " ";
    if (!style.unicode) return ".";
    // U+2800 plus the bits, in UTF-8.
    return {static_cast<char>(0xE2), static_cast<char>(0xA0 | (bits >> 6)),
            static_cast<char>(0x80 | (bits & 0x3F))};
  }

 private:
  size_t Index(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) +
           static_cast<size_t>(column);
  }

  int columns_;
  std::vector<uint8_t> cells_;
};

// log y of the polyline at x, linear in the logarithms.
double LogAt(const std::vector<PlotPoint>& points, double x) {
  auto next =
      std::lower_bound(points.begin(), points.end(), x,
                       [](const PlotPoint& p, double at) { return p.x < at; });
  if (next == points.begin()) return std::log(next->y);
  if (next == points.end()) return std::log(points.back().y);
  const PlotPoint &a = *(next - 1), &b = *next;
  double part = std::log(x / a.x) / std::log(b.x / a.x);
  return std::log(a.y) + part * std::log(b.y / a.y);
}

bool Plottable(const std::vector<PlotPoint>& points) {
  return !points.empty() &&
         std::is_sorted(points.begin(), points.end(),
                        [](const PlotPoint& a, const PlotPoint& b) {
                          return a.x < b.x;
                        }) &&
         std::all_of(points.begin(), points.end(), [](const PlotPoint& p) {
           return p.x > 0 && p.y > 0 && std::isfinite(p.x) &&
                  std::isfinite(p.y);
         });
}

}  // namespace

std::string RenderLogLogPlot(const Style& style, const LogLogPlot& plot) {
  if (!Plottable(plot.points)) return "";
  auto [lowest, highest] = std::minmax_element(
      plot.points.begin(), plot.points.end(),
      [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
  double low_y = lowest->y, high_y = highest->y;
  // A flat curve would fill the height with its noise: show at least a factor.
  constexpr double kLeastSpan = 4;
  if (double span = high_y / low_y; span < kLeastSpan) {
    double widen = std::sqrt(kLeastSpan / span);
    low_y /= widen;
    high_y *= widen;
  }
  Axis y_rows{low_y, high_y, plot.rows};

  int label_width = 0;
  std::vector<std::string> label(static_cast<size_t>(plot.rows));
  for (double tick : DecimalTicks(low_y, high_y, plot.rows / 2 + 1)) {
    long row = plot.rows - 1 - std::lround(y_rows.At(tick));
    if (row < 0 || row >= plot.rows) continue;
    std::string& text = label[static_cast<size_t>(row)];
    text = plot.format_y(tick);
    label_width = std::max(label_width, DisplayWidth(text));
  }
  int left = 1 + label_width + 2;  // margin, label, space and axis
  int columns = std::max(PlotColumns(style) - left - 1, 10);

  Axis x_dots{plot.points.front().x, plot.points.back().x, 2 * columns};
  Axis y_dots{low_y, high_y, 4 * plot.rows};
  Axis x_columns{x_dots.low, x_dots.high, columns};
  Canvas canvas(columns, plot.rows);
  auto dot_y = [&](double log_y) {
    long up = std::lround(y_dots.At(std::exp(log_y)));
    return static_cast<int>(
        std::clamp<long>(4L * plot.rows - 1 - up, 0, 4L * plot.rows - 1));
  };
  std::optional<int> previous;
  for (int x = 0; plot.points.size() > 1 && x < 2 * columns; ++x) {
    int y = dot_y(LogAt(plot.points, x_dots.Value(x)));
    int from = previous.value_or(y);
    for (int step = std::min(from, y); step <= std::max(from, y); ++step) {
      // A steep stretch is split between its two columns.
      bool first_half = 2 * std::abs(step - from) < std::abs(y - from);
      canvas.Dot(previous && first_half ? x - 1 : x, step);
    }
    previous = y;
  }

  std::vector<std::vector<std::string>> grid(
      static_cast<size_t>(plot.rows),
      std::vector<std::string>(static_cast<size_t>(columns)));
  for (int row = 0; row < plot.rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      grid[static_cast<size_t>(row)][static_cast<size_t>(column)] =
          canvas.Cell(style, column, row);
    }
  }
  // The measured points themselves, where they stand apart.
  constexpr int kColumnsPerPoint = 4;
  if (static_cast<int>(plot.points.size()) * kColumnsPerPoint <= columns ||
      plot.points.size() == 1) {
    for (const PlotPoint& point : plot.points) {
      auto column = static_cast<size_t>(std::lround(x_columns.At(point.x)));
      auto row = static_cast<size_t>(dot_y(std::log(point.y)) / 4);
      grid[row][column] = style.unicode ? "●" : "*";
    }
  }

  auto marked = [&](int column) {
    return std::any_of(
        plot.marks.begin(), plot.marks.end(), [&](const PlotMark& mark) {
          return column >= std::lround(x_columns.At(mark.from_x)) &&
                 column <= std::lround(x_columns.At(mark.to_x));
        });
  };
  std::string out;
  for (int row = 0; row < plot.rows; ++row) {
    const std::string& text = label[static_cast<size_t>(row)];
    absl::string_view axis =
        style.unicode ? (text.empty() ? "│" : "┤") : (text.empty() ? "|" : "+");
    absl::StrAppend(
        &out, " ",
        Painted(
            style, Paint::kDim,
            absl::StrCat(Padded(text, label_width, Align::kRight), " ", axis)));
    std::string run;
    Paint paint = Paint::kNone;
    int blanks = 0;  // held back, so that no line ends in spaces
    for (int column = 0; column < columns; ++column) {
      const std::string& cell =
          grid[static_cast<size_t>(row)][static_cast<size_t>(column)];
      if (cell == " ") {
        ++blanks;
        continue;
      }
      Paint wanted = marked(column) ? Paint::kBad : Paint::kSeries0;
      if (wanted != paint) {
        absl::StrAppend(&out, Painted(style, paint, run));
        run.clear();
        paint = wanted;
      }
      absl::StrAppend(&run, Spaces(blanks), cell);
      blanks = 0;
    }
    absl::StrAppend(&out, Painted(style, paint, run), "\n");
  }

  constexpr int kColumnsPerLabel = 10;
  std::vector<std::pair<int, std::string>> labels;
  std::vector<bool> ticked(static_cast<size_t>(columns), false);
  std::vector<double> ticks =
      BinaryTicks(x_dots.low, x_dots.high, columns / kColumnsPerLabel);
  if (ticks.empty()) ticks = {x_dots.low, x_dots.high};
  for (double tick : ticks) {
    int column = static_cast<int>(std::lround(x_columns.At(tick)));
    labels.emplace_back(column, plot.format_x(tick));
    ticked[static_cast<size_t>(column)] = true;
  }
  std::string axis = style.unicode ? "└" : "+";
  for (bool tick : ticked) {
    axis += style.unicode ? (tick ? "┬" : "─") : (tick ? "+" : "-");
  }
  std::string indent = Spaces(left - 1);
  absl::StrAppend(&out, indent, Painted(style, Paint::kDim, axis), "\n", indent,
                  " ", Painted(style, Paint::kDim, LabelLine(labels, columns)),
                  "\n");
  return out;
}

std::string Sparkline(const Style& style, const std::vector<PlotPoint>& points,
                      int columns) {
  if (!style.unicode || !Plottable(points) || points.size() < 2) return "";
  constexpr std::array<absl::string_view, 8> kLevels = {"▁", "▂", "▃", "▄",
                                                        "▅", "▆", "▇", "█"};
  auto [lowest, highest] = std::minmax_element(
      points.begin(), points.end(),
      [](const PlotPoint& a, const PlotPoint& b) { return a.y < b.y; });
  double low = std::log(lowest->y), high = std::log(highest->y);
  Axis axis{points.front().x, points.back().x, columns};
  std::string line;
  for (int column = 0; column < columns; ++column) {
    double part = high > low
                      ? (LogAt(points, axis.Value(column)) - low) / (high - low)
                      : 0;
    long level = std::lround(part * (kLevels.size() - 1));
    absl::StrAppend(&line,
                    kLevels[static_cast<size_t>(std::clamp<long>(
                        level, 0, static_cast<long>(kLevels.size()) - 1))]);
  }
  return line;
}

std::string RenderLanes(const Style& style, const std::vector<Lane>& lanes,
                        double low, double high,
                        const std::vector<double>& ticks,
                        std::string (*format)(double)) {
  if (lanes.empty() || !(low > 0) || !(high >= low)) return "";
  int name_width = 0;
  for (const Lane& lane : lanes) {
    name_width = std::max(name_width, DisplayWidth(lane.name));
  }
  int available = PlotColumns(style);
  name_width = std::min(name_width, available / 3);
  int left = 1 + name_width + 2;
  int columns = std::max(available - left - 1, 10);
  Axis axis{low, high, columns};
  std::string out;
  for (size_t i = 0; i < lanes.size(); ++i) {
    std::string strip;
    for (int column = 0; column < columns; ++column) {
      // A cell belongs to whoever holds its middle; the first and the last
      // cell to whoever holds the axis' ends.
      double value = std::clamp(axis.Value(column), low, high);
      bool on = std::any_of(
          lanes[i].on.begin(), lanes[i].on.end(), [&](const PlotMark& stretch) {
            return stretch.from_x <= value && value < stretch.to_x;
          });
      absl::StrAppend(&strip,
                      style.unicode ? (on ? "█" : "·") : (on ? "#" : "."));
    }
    // Runs of equal cells are painted as one.
    std::string painted;
    absl::string_view dot = style.unicode ? "·" : ".";
    for (absl::string_view rest = strip; !rest.empty();) {
      bool dim = rest.substr(0, dot.size()) == dot;
      size_t cell = dim ? dot.size() : (style.unicode ? 3 : 1);
      size_t length = 0;
      while (length < rest.size() &&
             (rest.substr(length, dot.size()) == dot) == dim) {
        length += cell;
      }
      absl::StrAppend(
          &painted,
          Painted(style, dim ? Paint::kDim : SeriesPaint(static_cast<int>(i)),
                  rest.substr(0, length)));
      rest.remove_prefix(length);
    }
    absl::StrAppend(&out, " ",
                    Padded(Fitted(style, lanes[i].name, name_width), name_width,
                           Align::kLeft),
                    "  ", painted, "\n");
  }
  std::vector<std::pair<int, std::string>> labels;
  for (double tick : ticks) {
    labels.emplace_back(static_cast<int>(std::lround(axis.At(tick))),
                        format(tick));
  }
  absl::StrAppend(&out, Spaces(left),
                  Painted(style, Paint::kDim, LabelLine(labels, columns)),
                  "\n");
  return out;
}

}  // namespace fabricwise
