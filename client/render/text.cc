// SPDX-License-Identifier: Apache-2.0
#include "client/render/text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fabricwise {
namespace {

// One decoded character; `length` 0 for bytes that are no UTF-8.
struct Decoded {
  char32_t code = 0;
  size_t length = 0;
};

Decoded Decode(absl::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  char32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kSmallest[length] || code > 0x10FFFF || surrogate) return {};
  return {code, length};
}

struct Range {
  char32_t first, last;
};

bool In(char32_t code, const Range* begin, const Range* end) {
  return std::any_of(begin, end, [code](const Range& range) {
    return range.first <= code && code <= range.last;
  });
}

// Marks that join the character before them, and format characters: the
// blocks that model names may hold, not all of Unicode.
constexpr Range kZeroWidth[] = {
    {0x0300, 0x036F}, {0x0591, 0x05BD}, {0x064B, 0x065F}, {0x1AB0, 0x1AFF},
    {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x202A, 0x202E}, {0x2060, 0x2069},
    {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}};

// East Asian wide and full-width blocks, and emoji.
constexpr Range kWide[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},
    {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
    {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};

int Width(char32_t code) {
  if (code < 0x300) return 1;
  if (In(code, std::begin(kZeroWidth), std::end(kZeroWidth))) return 0;
  return In(code, std::begin(kWide), std::end(kWide)) ? 2 : 1;
}

bool IsControl(char32_t code) {
  // Bidirectional overrides reorder what a reader sees, so they go too.
  return code < 0x20 || (code >= 0x7F && code < 0xA0) ||
         (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

// Bytes of the longest beginning of `text` that fits `columns`; at least one
// character, so that cutting always gets on.
size_t PrefixLength(absl::string_view text, int columns) {
  size_t length = 0;
  for (int used = 0; length < text.size();) {
    Decoded next = Decode(text.substr(length));
    used += next.length == 0 ? 1 : Width(next.code);
    if (used > columns && length > 0) break;
    length += std::max<size_t>(next.length, 1);
  }
  return length;
}

// The words of `text`; a number and the unit behind it are one.
std::vector<absl::string_view> Words(absl::string_view text) {
  constexpr absl::string_view kUnits[] = {"%", "B",   "KiB", "MiB",
                                          "s", "GiB", "us",  "ms"};
  auto is_unit = [&](absl::string_view word) {
    while (!word.empty() && absl::StrContains(",;:.)", word.back())) {
      word.remove_suffix(1);
    }
    return std::find(std::begin(kUnits), std::end(kUnits), word) !=
           std::end(kUnits);
  };
  std::vector<absl::string_view> words;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!words.empty() && is_unit(word)) {
      absl::string_view& last = words.back();
      // Both look into `text`, one space apart.
      last = absl::string_view(last.data(),
                               static_cast<size_t>(word.end() - last.data()));
    } else {
      words.push_back(word);
    }
  }
  return words;
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    Decoded next = Decode(text);
    if (next.length == 0 || IsControl(next.code)) {
      printable += '?';
    } else {
      absl::StrAppend(&printable, text.substr(0, next.length));
    }
    text.remove_prefix(std::max<size_t>(next.length, 1));
  }
  return printable;
}

int DisplayWidth(absl::string_view text) {
  int width = 0;
  while (!text.empty()) {
    Decoded next = Decode(text);
    width += next.length == 0 ? 1 : Width(next.code);
    text.remove_prefix(std::max<size_t>(next.length, 1));
  }
  return width;
}

std::string Fitted(const Style& style, absl::string_view text, int columns) {
  if (columns <= 0 || DisplayWidth(text) <= columns) return std::string(text);
  absl::string_view ellipsis = style.unicode ? "…" : "..";
  size_t kept = PrefixLength(text, columns - DisplayWidth(ellipsis));
  return absl::StrCat(text.substr(0, kept), ellipsis);
}

std::string Padded(absl::string_view text, int columns, Align align) {
  int missing = std::max(columns - DisplayWidth(text), 0);
  std::string fill(static_cast<size_t>(missing), ' ');
  return align == Align::kLeft ? absl::StrCat(text, fill)
                               : absl::StrCat(fill, text);
}

std::vector<std::string> Wrapped(absl::string_view text, int columns) {
  if (columns <= 0) return {std::string(text)};
  std::vector<std::string> lines;
  std::string line;
  auto finish_line = [&] {
    lines.push_back(std::move(line));
    line.clear();
  };
  for (absl::string_view word : Words(text)) {
    if (!line.empty() &&
        DisplayWidth(line) + 1 + DisplayWidth(word) > columns) {
      finish_line();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
    while (DisplayWidth(line) > columns) {
      std::string rest = line.substr(PrefixLength(line, columns));
      line.resize(line.size() - rest.size());
      finish_line();
      line = std::move(rest);
    }
  }
  if (!line.empty() || lines.empty()) finish_line();
  return lines;
}

std::string Paragraph(const Style& style, absl::string_view first,
                      absl::string_view text, Paint first_paint) {
  int indent = DisplayWidth(first);
  constexpr int kNarrowest = 20;
  int columns =
      style.width > 0 ? std::max(style.width - indent, kNarrowest) : 0;
  std::string paragraph;
  for (const std::string& line : Wrapped(text, columns)) {
    absl::StrAppend(&paragraph,
                    paragraph.empty()
                        ? Painted(style, first_paint, first)
                        : std::string(static_cast<size_t>(indent), ' '),
                    line, "\n");
  }
  return paragraph;
}

}  // namespace fabricwise
