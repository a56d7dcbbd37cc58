// SPDX-License-Identifier: Apache-2.0
//
// Comma-separated tables with comment lines, as the importers read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

// A table whose first line that is neither empty nor a comment ("# ...") names
// its columns. Fields are plain: no quotes, no commas inside.
class CsvTable {
 public:
  // `name` is for messages. INVALID_ARGUMENT "<name>:<line>: ..." for a row
  // with more or fewer fields than columns, a column named twice, a file with
  // no columns or no row, or one whose last line does not end: it was cut off.
  static absl::StatusOr<CsvTable> Parse(std::string name, std::string content);

  bool HasColumns(const std::vector<absl::string_view>& columns) const;
  const std::vector<std::string>& columns() const { return columns_; }
  // Comments without "# ".
  const std::vector<std::string>& comments() const { return comments_; }
  const std::string& name() const { return name_; }
  size_t size() const { return rows_.size(); }

  // One row; borrows the table. A column asked for must exist. Errors are
  // INVALID_ARGUMENT "<name>:<line>: <column> is '<text>'; allowed: ...".
  class Row {
   public:
    absl::string_view Text(absl::string_view column) const;
    // From 1 to 2^53.
    absl::StatusOr<int64_t> Size(absl::string_view column) const;
    absl::StatusOr<int64_t> Int(absl::string_view column, int64_t low,
                                int64_t high) const;
    // Microseconds in the file; seconds, positive and finite, here.
    absl::StatusOr<double> Seconds(absl::string_view column) const;
    // The same; 0 is allowed, and an absent column or an empty field is -1.
    absl::StatusOr<double> SecondsOrNone(absl::string_view column) const;
    absl::Status Refuse(absl::string_view column,
                        absl::string_view allowed) const;
    // `status` with the place of this row before its message.
    absl::Status Annotate(const absl::Status& status) const;

   private:
    friend class CsvTable;
    Row(const CsvTable& table, size_t index) : table_(table), index_(index) {}
    const CsvTable& table_;
    size_t index_;
  };
  Row row(size_t index) const { return Row(*this, index); }

 private:
  struct Fields {
    int64_t line = 0;
    std::vector<std::string> values;
  };

  CsvTable() = default;
  size_t IndexOf(absl::string_view column) const;  // columns_.size(): absent

  std::string name_;
  std::vector<std::string> comments_, columns_;
  std::vector<Fields> rows_;
};

}  // namespace fabricwise
