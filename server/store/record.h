// SPDX-License-Identifier: Apache-2.0
//
// Domain values to and from the columns that keep them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/domain/measurement.h"
#include "server/store/sqlite.h"

namespace fabricwise {

// The columns of a measurement, in the order of BindMeasurement and
// ReadMeasurement.
inline constexpr char kMeasurementColumns[] =
    "key, origin, start_time_unix_nanos, median_seconds, iqr_seconds, "
    "p99_seconds, samples, discarded, discard_reason, stop_reason, verified, "
    "sm_clock_hertz, rows_local, experts_hit, source, fingerprint_id";
inline constexpr int kMeasurementColumnCount = 16;

// INVALID_ARGUMENT naming the part that no column can keep as it is.
absl::Status CheckKeepable(const Measurement& measurement);
absl::Status CheckKeepable(absl::Time time, absl::string_view name);

void BindMeasurement(const Measurement& measurement, sqlite::Cursor& cursor);

// From the columns that start at `column`. DATA_LOSS naming what is off.
absl::StatusOr<Measurement> ReadMeasurement(const sqlite::Cursor& cursor,
                                            int column);

// "0,18;18,0"; empty for no matrix. T is bool or int.
template <typename T>
std::string MatrixText(const std::vector<std::vector<T>>& matrix);
template <typename T>
absl::StatusOr<std::vector<std::vector<T>>> ParseMatrix(absl::string_view text);

// A digest of values in order: 64-bit FNV-1a, stable over versions. Tells equal
// content again; no protection against somebody who seeks a collision.
class ContentDigest {
 public:
  void Add(absl::string_view text);  // with its length
  void Add(int64_t value);
  void Add(double value);  // by its bits
  void Add(const Measurement& measurement);
  int64_t value() const;

 private:
  void AddBytes(const void* bytes, size_t size);
  uint64_t hash_ = 0xcbf29ce484222325;  // FNV-1a's offset basis
};

}  // namespace fabricwise
