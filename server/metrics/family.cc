// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/family.h"

#include <utility>

#include "prometheus/metric_type.h"

namespace fabricwise {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

MetricType TypeOf(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return MetricType::Counter;
    case MetricKind::kGauge:
      return MetricType::Gauge;
    case MetricKind::kHistogram:
      return MetricType::Histogram;
  }
  return MetricType::Untyped;
}

}  // namespace

Family::Family(const MetricSpec& spec) : spec_(spec) {
  family_.name = spec.name;
  family_.help = spec.help;
  family_.type = TypeOf(spec.kind);
}

void Family::Add(std::vector<std::string> labels, double value) {
  ClientMetric* const sample = Labelled(std::move(labels), 1);
  if (sample == nullptr) return;
  (spec_.kind == MetricKind::kCounter ? sample->counter.value
                                      : sample->gauge.value) = value;
}

void Family::Add(absl::Time time) {
  if (time == absl::UnixEpoch()) return;
  Add(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
}

void Family::AddHistogram(const MethodCounts& counts) {
  ClientMetric* const sample = Labelled({counts.method}, kHistogramSeries);
  if (sample == nullptr) return;
  ClientMetric::Histogram& h = sample->histogram;
  h.sample_sum = absl::ToDoubleSeconds(counts.total_duration);
  for (size_t i = 0; i < kDurationBoundsSeconds.size(); ++i) {
    h.sample_count += static_cast<uint64_t>(counts.by_duration[i]);
    h.bucket.push_back({h.sample_count, kDurationBoundsSeconds[i]});
  }
  // The text form adds the bucket of all, "+Inf", from the count.
  h.sample_count += static_cast<uint64_t>(counts.by_duration.back());
}

ClientMetric* Family::Labelled(std::vector<std::string> values, int series) {
  if (series_ + series > spec_.most_series) return nullptr;
  series_ += series;
  ClientMetric& sample = family_.metric.emplace_back();
  for (size_t i = 0; i < values.size(); ++i) {
    sample.label.push_back({spec_.labels.at(i), std::move(values[i])});
  }
  return &sample;
}

}  // namespace fabricwise
