// SPDX-License-Identifier: Apache-2.0
//
// Measurements as the store gives them out: numbered, newest first, by pages;
// and what runs are compared by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/domain/measurement.h"

namespace fabricwise {

struct StoredMeasurement {
  int64_t id = 0;  // ascends with the time of storing
  Measurement measurement;
};

struct MeasurementPage {
  std::vector<StoredMeasurement> measurements;  // newest first
  std::string next_page_token;                  // empty: this was the last
};

// What one run found for a key: no more of it, as there are many.
struct PastRun {
  absl::Time start_time = absl::UnixEpoch();
  double median_seconds = 0;
  double iqr_seconds = -1;  // negative: not recorded
};

struct KeyHistory {
  MeasurementKey key;
  std::vector<PastRun> runs;  // newest first, at least one
};

}  // namespace fabricwise
