// SPDX-License-Identifier: Apache-2.0
#include "server/store/record.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

absl::string_view Word(Origin origin) {
  switch (origin) {
    case Origin::kMeasured:
      return "measured";
    case Origin::kReference:
      return "reference";
  }
  return "";
}

absl::string_view Word(StopReason reason) {
  switch (reason) {
    case StopReason::kUnknown:
      return "unknown";
    case StopReason::kGood:
      return "good";
    case StopReason::kSettledNoisy:
      return "settled_noisy";
    case StopReason::kOutOfBudget:
      return "out_of_budget";
  }
  return "";
}

template <typename Enum>
absl::StatusOr<Enum> FromWord(const std::string& word,
                              std::initializer_list<Enum> values) {
  for (const Enum value : values) {
    if (Word(value) == word) return value;
  }
  return absl::DataLossError(absl::StrCat("unknown word \"", word, "\""));
}

absl::Status CheckFinite(double value, absl::string_view name) {
  if (std::isfinite(value)) return absl::OkStatus();
  return NotAllowed(name, absl::StrCat(value), "finite numbers");
}

// Negative stands for "not recorded" in the domain, NULL in a column.
template <typename Number>
void BindOptional(Number value, sqlite::Cursor& cursor) {
  if (value < 0) {
    cursor.BindNull();
  } else {
    cursor.Bind(value);
  }
}

double OptionalReal(const sqlite::Cursor& cursor, int column) {
  return cursor.IsNull(column) ? -1 : cursor.Real(column);
}

int64_t OptionalInteger(const sqlite::Cursor& cursor, int column) {
  return cursor.IsNull(column) ? -1 : cursor.Integer(column);
}

}  // namespace

absl::Status CheckKeepable(absl::Time time, absl::string_view name) {
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  if (time >= absl::FromUnixNanos(kFirst) &&
      time <= absl::FromUnixNanos(kLast)) {
    return absl::OkStatus();
  }
  return NotAllowed(name, absl::FormatTime(time, absl::UTCTimeZone()),
                    "years 1678 to 2261");
}

absl::Status CheckKeepable(const Measurement& measurement) {
  const Statistics& s = measurement.statistics;
  RETURN_IF_ERROR(Validate(measurement.key));
  RETURN_IF_ERROR(CheckFinite(s.median_seconds, "median_seconds"));
  RETURN_IF_ERROR(CheckFinite(s.iqr_seconds, "iqr_seconds"));
  RETURN_IF_ERROR(CheckFinite(s.p99_seconds, "p99_seconds"));
  RETURN_IF_ERROR(CheckFinite(s.sm_clock_hertz, "sm_clock_hertz"));
  return CheckKeepable(measurement.start_time, "start_time");
}

void BindMeasurement(const Measurement& measurement, sqlite::Cursor& cursor) {
  const Statistics& s = measurement.statistics;
  cursor.Bind(ToString(measurement.key))
      .Bind(Word(measurement.origin))
      .Bind(absl::ToUnixNanos(measurement.start_time))
      .Bind(s.median_seconds);
  BindOptional(s.iqr_seconds, cursor);
  BindOptional(s.p99_seconds, cursor);
  cursor.Bind(s.samples)
      .Bind(s.discarded)
      .Bind(s.discard_reason)
      .Bind(Word(s.stop_reason))
      .Bind(int64_t{s.verified});
  BindOptional(s.sm_clock_hertz, cursor);
  BindOptional(measurement.experts.rows_local, cursor);
  BindOptional(measurement.experts.experts_hit, cursor);
  cursor.Bind(measurement.source).Bind(measurement.fingerprint_id);
}

absl::StatusOr<Measurement> ReadMeasurement(const sqlite::Cursor& cursor,
                                            int column) {
  Measurement m;
  Statistics& s = m.statistics;
  absl::StatusOr<MeasurementKey> key = ParseMeasurementKey(cursor.Text(column));
  // A key that was fit to be stored and is not now: the file changed.
  if (!key.ok()) return absl::DataLossError(key.status().message());
  m.key = *std::move(key);
  ASSIGN_OR_RETURN(m.origin, FromWord(cursor.Text(column + 1),
                                      {Origin::kMeasured, Origin::kReference}));
  m.start_time = absl::FromUnixNanos(cursor.Integer(column + 2));
  s.median_seconds = cursor.Real(column + 3);
  s.iqr_seconds = OptionalReal(cursor, column + 4);
  s.p99_seconds = OptionalReal(cursor, column + 5);
  s.samples = cursor.Integer(column + 6);
  s.discarded = cursor.Integer(column + 7);
  s.discard_reason = cursor.Text(column + 8);
  ASSIGN_OR_RETURN(
      s.stop_reason,
      FromWord(cursor.Text(column + 9),
               {StopReason::kUnknown, StopReason::kGood,
                StopReason::kSettledNoisy, StopReason::kOutOfBudget}));
  s.verified = cursor.Integer(column + 10) != 0;
  s.sm_clock_hertz = OptionalReal(cursor, column + 11);
  m.experts.rows_local = OptionalInteger(cursor, column + 12);
  m.experts.experts_hit = OptionalInteger(cursor, column + 13);
  m.source = cursor.Text(column + 14);
  m.fingerprint_id = cursor.Text(column + 15);
  return m;
}

template <typename T>
std::string MatrixText(const std::vector<std::vector<T>>& matrix) {
  return absl::StrJoin(
      matrix, ";", [](std::string* out, const std::vector<T>& row) {
        absl::StrAppend(
            out, absl::StrJoin(row, ",", [](std::string* entry, T value) {
              absl::StrAppend(entry, static_cast<int>(value));
            }));
      });
}

template <typename T>
absl::StatusOr<std::vector<std::vector<T>>> ParseMatrix(
    absl::string_view text) {
  std::vector<std::vector<T>> matrix;
  if (text.empty()) return matrix;
  for (const absl::string_view row : absl::StrSplit(text, ';')) {
    std::vector<T>& values = matrix.emplace_back();
    for (const absl::string_view entry : absl::StrSplit(row, ',')) {
      int value = 0;
      if (!absl::SimpleAtoi(entry, &value)) {
        return absl::DataLossError(
            absl::StrCat("matrix \"", text, "\" holds \"", entry, "\""));
      }
      values.push_back(static_cast<T>(value));
    }
  }
  return matrix;
}

template std::string MatrixText(const std::vector<std::vector<bool>>&);
template std::string MatrixText(const std::vector<std::vector<int>>&);
template absl::StatusOr<std::vector<std::vector<bool>>> ParseMatrix(
    absl::string_view);
template absl::StatusOr<std::vector<std::vector<int>>> ParseMatrix(
    absl::string_view);

void ContentDigest::AddBytes(const void* bytes, size_t size) {
  constexpr uint64_t kPrime = 0x100000001b3;  // FNV-1a's
  const auto* byte = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < size; ++i) hash_ = (hash_ ^ byte[i]) * kPrime;
}

void ContentDigest::Add(absl::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  AddBytes(text.data(), text.size());
}

void ContentDigest::Add(int64_t value) { AddBytes(&value, sizeof(value)); }

void ContentDigest::Add(double value) { Add(std::bit_cast<int64_t>(value)); }

void ContentDigest::Add(const Measurement& measurement) {
  const Statistics& s = measurement.statistics;
  Add(ToString(measurement.key));
  Add(Word(measurement.origin));
  Add(absl::ToUnixNanos(measurement.start_time));
  for (const double value :
       {s.median_seconds, s.iqr_seconds, s.p99_seconds, s.sm_clock_hertz}) {
    Add(value);
  }
  for (const int64_t value :
       {s.samples, s.discarded, int64_t{s.verified},
        measurement.experts.rows_local, measurement.experts.experts_hit}) {
    Add(value);
  }
  Add(s.discard_reason);
  Add(Word(s.stop_reason));
  Add(measurement.source);
  Add(measurement.fingerprint_id);
}

int64_t ContentDigest::value() const { return std::bit_cast<int64_t>(hash_); }

}  // namespace fabricwise
