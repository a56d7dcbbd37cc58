// SPDX-License-Identifier: Apache-2.0
//
// A metric family in the making: its samples get the labels that the catalogue
// names, and there are never more of them than the catalogue allows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "server/metrics/catalogue.h"
#include "server/metrics/request_metrics.h"

namespace fabricwise {

class Family {
 public:
  // `spec` outlives it.
  explicit Family(const MetricSpec& spec);

  // A counter's or gauge's sample; label values in the catalogue's order.
  void Add(std::vector<std::string> labels, double value);
  void Add(double value) { Add({}, value); }
  void Add(int64_t value) { Add({}, static_cast<double>(value)); }
  // The epoch stands for a time that is not known, which is left out.
  void Add(absl::Time time);
  void AddHistogram(const MethodCounts& counts);

  prometheus::MetricFamily Take() { return std::move(family_); }

 private:
  // Null: `series` more of them would be too many.
  prometheus::ClientMetric* Labelled(std::vector<std::string> values,
                                     int series);

  const MetricSpec& spec_;
  int series_ = 0;
  prometheus::MetricFamily family_;
};

}  // namespace fabricwise
