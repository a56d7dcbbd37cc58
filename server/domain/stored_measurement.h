// SPDX-License-Identifier: Apache-2.0
//
// Measurements as the store gives them out: numbered, newest first, by pages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace fabricwise
