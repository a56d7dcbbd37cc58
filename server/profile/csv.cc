// SPDX-License-Identifier: Apache-2.0
#include "server/profile/csv.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"
#include "server/domain/measurement.h"
#include "server/profile/decimal.h"

namespace fabricwise {
namespace {

std::vector<std::string> SplitFields(absl::string_view line) {
  std::vector<std::string> fields;
  for (const absl::string_view field : absl::StrSplit(line, ',')) {
    fields.emplace_back(absl::StripAsciiWhitespace(field));
  }
  return fields;
}

}  // namespace

absl::StatusOr<CsvTable> CsvTable::Parse(std::string name,
                                         std::string content) {
  CsvTable table;
  table.name_ = std::move(name);
  const auto refuse = [&](int64_t line, absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(table.name_, ":", line, ": ", what));
  };

  int64_t line_number = 0;
  absl::string_view rest = content;
  while (!rest.empty()) {
    ++line_number;
    const size_t end = rest.find('\n');
    if (end == absl::string_view::npos) {
      return refuse(line_number,
                    "the last line does not end; the file was cut off");
    }
    const absl::string_view line =
        absl::StripAsciiWhitespace(rest.substr(0, end));
    rest.remove_prefix(end + 1);
    if (line.empty()) continue;
    if (line.front() == '#') {
      table.comments_.emplace_back(absl::StripAsciiWhitespace(line.substr(1)));
    } else if (table.columns_.empty()) {
      table.columns_ = SplitFields(line);
      if (std::set<std::string>(table.columns_.begin(), table.columns_.end())
              .size() != table.columns_.size()) {
        return refuse(line_number, "a column is named twice");
      }
    } else {
      Fields fields{line_number, SplitFields(line)};
      if (fields.values.size() != table.columns_.size()) {
        return refuse(line_number,
                      absl::StrCat("has ", fields.values.size(),
                                   " fields; allowed: ", table.columns_.size(),
                                   ", one a column"));
      }
      table.rows_.push_back(std::move(fields));
    }
  }
  if (table.rows_.empty()) return refuse(line_number, "has no rows");
  return table;
}

size_t CsvTable::IndexOf(absl::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  return static_cast<size_t>(found - columns_.begin());
}

bool CsvTable::HasColumns(const std::vector<absl::string_view>& columns) const {
  return std::all_of(columns.begin(), columns.end(),
                     [this](absl::string_view column) {
                       return IndexOf(column) < columns_.size();
                     });
}

absl::string_view CsvTable::Row::Text(absl::string_view column) const {
  const size_t index = table_.IndexOf(column);
  if (index == table_.columns_.size()) return "";
  return table_.rows_[index_].values[index];
}

absl::StatusOr<int64_t> CsvTable::Row::Size(absl::string_view column) const {
  return Int(column, 1, kMaxKeySize);
}

absl::StatusOr<int64_t> CsvTable::Row::Int(absl::string_view column,
                                           int64_t low, int64_t high) const {
  int64_t value = 0;
  if (absl::SimpleAtoi(Text(column), &value) && value >= low && value <= high) {
    return value;
  }
  return Refuse(column,
                absl::StrCat("a whole number from ", low, " to ", high));
}

absl::StatusOr<double> CsvTable::Row::Seconds(absl::string_view column) const {
  const std::optional<double> seconds = SecondsFromMicros(Text(column));
  if (seconds.has_value() && *seconds > 0) return *seconds;
  return Refuse(column, "a positive, finite number of microseconds");
}

absl::StatusOr<double> CsvTable::Row::SecondsOrNone(
    absl::string_view column) const {
  if (Text(column).empty()) return -1;
  const std::optional<double> seconds = SecondsFromMicros(Text(column));
  if (seconds.has_value() && *seconds >= 0) return *seconds;
  return Refuse(column, "a finite number of microseconds, 0 or more");
}

absl::Status CsvTable::Row::Refuse(absl::string_view column,
                                   absl::string_view allowed) const {
  return Annotate(NotAllowed(column, Quoted(Text(column)), allowed));
}

absl::Status CsvTable::Row::Annotate(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(table_.name_, ":", table_.rows_[index_].line,
                                   ": ", status.message()));
}

}  // namespace fabricwise
