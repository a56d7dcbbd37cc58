// SPDX-License-Identifier: Apache-2.0
//
// Plots made of characters: Braille dots where the style has Unicode, else
// ASCII.
#pragma once

#include <string>
#include <vector>

#include "client/render/style.h"

namespace fabricwise {

struct PlotPoint {
  double x = 0, y = 0;  // > 0
};

// A stretch of the x axis to be seen at a glance.
struct PlotMark {
  double from_x = 0, to_x = 0;
};

struct LogLogPlot {
  std::vector<PlotPoint> points;  // ascending in x; at least one
  std::vector<PlotMark> marks;
  std::string (*format_x)(double) = nullptr;
  std::string (*format_y)(double) = nullptr;
  int rows = 12;
};

// The points joined by lines over logarithmic axes, as wide as the style says
// (at most 100 columns), axes labelled at round values (powers of two on x,
// 1-2-5 on y). Empty for no points, a point that is not positive, or points
// that do not ascend.
std::string RenderLogLogPlot(const Style& style, const LogLogPlot& plot);

// Logarithms of `points`' y as one line of block characters of `columns`
// columns; empty without Unicode.
std::string Sparkline(const Style& style, const std::vector<PlotPoint>& points,
                      int columns);

// One lane of a strip chart: where it is on, over a common axis.
struct Lane {
  std::string name;  // printable
  // Half-open stretches [from, to) of the axis.
  std::vector<PlotMark> on;
};

// Lanes over a logarithmic axis from `low` to `high` (0 < low <= high), with
// `ticks` labelled where they do not collide.
std::string RenderLanes(const Style& style, const std::vector<Lane>& lanes,
                        double low, double high,
                        const std::vector<double>& ticks,
                        std::string (*format)(double));

}  // namespace fabricwise
