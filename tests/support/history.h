// SPDX-License-Identifier: Apache-2.0
//
// Measurements as the history that a store makes of them.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/domain/stored_measurement.h"

namespace fabricwise {

inline std::vector<KeyHistory> HistoryOf(
    absl::Span<const Measurement> measurements) {
  std::map<std::string, KeyHistory> by_key;
  for (const Measurement& m : measurements) {
    KeyHistory& history = by_key[ToString(m.key)];
    history.key = m.key;
    history.runs.push_back(
        {m.start_time, m.statistics.median_seconds, m.statistics.iqr_seconds});
  }
  std::vector<KeyHistory> all;
  for (auto& [text, history] : by_key) {
    std::stable_sort(history.runs.begin(), history.runs.end(),
                     [](const PastRun& a, const PastRun& b) {
                       return a.start_time > b.start_time;
                     });
    all.push_back(std::move(history));
  }
  return all;
}

}  // namespace fabricwise
