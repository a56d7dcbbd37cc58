// SPDX-License-Identifier: Apache-2.0
//
// What the output may use: colour, Unicode, and how much width. All that the
// renderers know of the terminal.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fabricwise {

// `width` is the terminal's, in columns; 0 where the output is no terminal, so
// that nothing is cut or wrapped and a program may read it.
struct Style {
  bool color = false;
  bool unicode = false;
  int width = 0;
};

// What a piece of text is, to be shown in the terminal's own palette.
enum class Paint {
  kNone,
  kBold,
  kDim,
  kGood,
  kWarn,
  kBad,
  kSeries0,
  kSeries1,
  kSeries2,
  kSeries3,
  kSeries4,
  kSeries5,
};

// The paint of the `index`-th of several series; repeats after six.
Paint SeriesPaint(int index);

// `text` in `paint`, or as it is where the style has no colour.
std::string Painted(const Style& style, Paint paint, absl::string_view text);

// What decides the style.
struct TerminalFacts {
  bool is_terminal = false;
  int columns = 0;        // 0: not known
  std::string term;       // $TERM
  std::string locale;     // first set of $LC_ALL, $LC_CTYPE, $LANG
  bool no_color = false;  // $NO_COLOR is set and not empty
};

enum class StyleChoice {
  kAuto,    // rich on a terminal, plain elsewhere
  kAlways,  // rich everywhere
  kNever,   // plain everywhere
};

// NO_COLOR and TERM=dumb take the colour away, a locale without UTF-8 takes
// Unicode away. kAlways without a known width is 100 columns wide.
Style StyleFor(const TerminalFacts& facts, StyleChoice choice);

}  // namespace fabricwise
