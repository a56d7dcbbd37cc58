// SPDX-License-Identifier: Apache-2.0
//
// What one worker said, held against what it was asked. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabricwise/worker/v1/worker.pb.h"
#include "server/domain/measurement.h"

namespace fabricwise {

class Collector {
 public:
  explicit Collector(const std::vector<MeasurementKey>& asked);

  // The measurement of a result that arrived at `now`. A size that was not
  // asked for is taken where its curve was. INTERNAL: the key was not asked for
  // or came before, or a value is impossible; the run cannot be trusted.
  absl::StatusOr<Measurement> Add(const worker::v1::Result& result,
                                  absl::string_view fingerprint_id,
                                  absl::Time now);
  // INTERNAL as above.
  absl::Status Add(const worker::v1::Skip& skip);
  absl::Status Check(const worker::v1::Progress& progress) const;

  // Keys asked for of which the worker has spoken.
  int64_t answered_count() const { return answered_; }
  const std::vector<Measurement>& measurements() const { return measurements_; }
  // How many keys were skipped, by the worker's reason.
  const std::map<std::string, int64_t>& skipped() const { return skipped_; }

 private:
  absl::StatusOr<MeasurementKey> Known(absl::string_view verb,
                                       const std::string& key) const;
  absl::Status MarkAnswered(absl::string_view verb, const std::string& key);

  std::set<std::string> asked_;
  std::set<std::string> curves_;  // of asked_
  std::set<std::string> spoken_of_;
  int64_t answered_ = 0;
  std::vector<Measurement> measurements_;
  std::map<std::string, int64_t> skipped_;
};

}  // namespace fabricwise
