// SPDX-License-Identifier: Apache-2.0
//
// Text by the columns that it takes on a terminal.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/render/style.h"

namespace fabricwise {

// `text` as it may go to a terminal: control characters and bytes that are no
// UTF-8 become "?". Text from outside (a model's name, a server's words) goes
// through this before it is shown.
std::string Printable(absl::string_view text);

// Columns of printable UTF-8: wide characters count two, combining marks none.
int DisplayWidth(absl::string_view text);

// `text`, or as much of it as fits `columns` with an ellipsis at its end.
std::string Fitted(const Style& style, absl::string_view text, int columns);

enum class Align { kLeft, kRight };

// `text` filled with spaces up to `columns`; longer text is left as it is.
std::string Padded(absl::string_view text, int columns, Align align);

// `text` cut at spaces into lines of at most `columns`, a number and its unit
// kept together, longer words cut; one line where `columns` is not positive.
std::vector<std::string> Wrapped(absl::string_view text, int columns);

// `text` as a paragraph: `first` before its first line, the same width of
// spaces before all others, wrapped to the style's width. Ends with a newline.
std::string Paragraph(const Style& style, absl::string_view first,
                      absl::string_view text, Paint first_paint = Paint::kNone);

}  // namespace fabricwise
