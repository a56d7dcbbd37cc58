// SPDX-License-Identifier: Apache-2.0
//
// When a series of samples is long enough. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/domain/measurement.h"

namespace fabricwise {

struct StoppingRule {
  double target_relative_iqr = 0.03;
  int min_samples = 12;   // quartiles of fewer say little
  int max_samples = 200;  // p99 needs no more
  double budget_seconds = 1;
};

// Collects the samples of one measurement. Ends for one of three reasons: the
// spread is within its target; it stopped falling; samples or time ran out.
class SampleSeries {
 public:
  explicit SampleSeries(const StoppingRule& rule) : rule_(rule) {}

  // `seconds` of one sample; `elapsed_seconds` since the series began.
  void Add(double seconds, double elapsed_seconds);
  // A sample that must not count, and why ("throttled").
  void Discard(const std::string& reason, double elapsed_seconds);

  bool done() const { return reason_ != StopReason::kUnknown; }
  // Median, quartiles and p99 of what was kept. Not verified; no clock.
  Statistics Summary() const;

 private:
  void Decide(double elapsed_seconds);

  StoppingRule rule_;
  std::vector<double> samples_;  // ascending
  int64_t discarded_ = 0;
  std::string discard_reason_;
  StopReason reason_ = StopReason::kUnknown;
  // The relative spread when last looked at, and after how many samples.
  double last_spread_ = -1;
  size_t last_look_ = 0;
};

// What is left of `both` when `alone` is taken off: of the medians and tails
// the difference, of the spreads the root of the squares' sum; the worse of the
// two reasons to end. ABORTED where nothing is left.
absl::StatusOr<Statistics> Difference(const Statistics& both,
                                      const Statistics& alone);

// By linear interpolation between order statistics; `ascending` not empty.
double Quantile(const std::vector<double>& ascending, double share);

}  // namespace fabricwise
