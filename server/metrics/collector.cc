// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/collector.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"
#include "prometheus/metric_type.h"
#include "server/metrics/catalogue.h"
#include "server/metrics/process.h"

namespace fabricwise {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
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

// A family in the making: its samples get the labels that the catalogue names.
class Family {
 public:
  explicit Family(const MetricSpec& spec) : spec_(spec) {
    family_.name = spec.name;
    family_.help = spec.help;
    family_.type = TypeOf(spec.kind);
  }

  void Add(std::vector<std::string> labels, double value) {
    ClientMetric& sample = Labelled(std::move(labels));
    (spec_.kind == MetricKind::kCounter ? sample.counter.value
                                        : sample.gauge.value) = value;
  }
  void Add(double value) { Add({}, value); }
  void Add(int64_t value) { Add({}, static_cast<double>(value)); }
  // The epoch stands for a time that is not known.
  void Add(absl::Time time) {
    if (time == absl::UnixEpoch()) return;
    Add(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  }

  void AddHistogram(const MethodCounts& counts) {
    ClientMetric::Histogram& h = Labelled({counts.method}).histogram;
    h.sample_sum = absl::ToDoubleSeconds(counts.total_duration);
    for (size_t i = 0; i < kDurationBoundsSeconds.size(); ++i) {
      h.sample_count += static_cast<uint64_t>(counts.by_duration[i]);
      h.bucket.push_back({h.sample_count, kDurationBoundsSeconds[i]});
    }
    // The text form adds the bucket of all, "+Inf", from the count.
    h.sample_count += static_cast<uint64_t>(counts.by_duration.back());
  }

  MetricFamily Take() { return std::move(family_); }

 private:
  ClientMetric& Labelled(std::vector<std::string> values) {
    ClientMetric& sample = family_.metric.emplace_back();
    for (size_t i = 0; i < values.size(); ++i) {
      sample.label.push_back({spec_.labels.at(i), std::move(values[i])});
    }
    return sample;
  }

  const MetricSpec& spec_;
  MetricFamily family_;
};

void AddRequests(const std::vector<MethodCounts>& methods, Family& family) {
  for (const MethodCounts& counts : methods) {
    for (size_t code = 0; code < counts.by_code.size(); ++code) {
      // OK is there from the start, so that a rate has a first value; the
      // others once they happen.
      if (counts.by_code[code] == 0 && code != 0) continue;
      family.Add({counts.method, absl::StatusCodeToString(
                                     static_cast<absl::StatusCode>(code))},
                 static_cast<double>(counts.by_code[code]));
    }
  }
}

void AddCurves(const Profile& profile, Family& family) {
  size_t left = kMaxExportedCurves;
  for (const auto& [key, curve] : profile.curves()) {
    if (left-- == 0) return;
    for (const int64_t size : kExportedSizesBytes) {
      const auto estimate = curve.At(static_cast<double>(size));
      if (!estimate) continue;
      family.Add({ToString(key), absl::StrCat(size),
                  std::string(ToString(estimate->standing))},
                 estimate->seconds);
    }
  }
}

void AddCliffs(const Profile& profile, Family& family) {
  size_t left = kMaxExportedCurves;
  for (const auto& [key, curve] : profile.curves()) {
    if (left-- == 0) return;
    family.Add({ToString(key)}, static_cast<double>(curve.Cliffs().size()));
  }
}

int64_t CurvesLeftOut(const Profile& profile) {
  const size_t count = profile.curves().size();
  return static_cast<int64_t>(count - std::min(count, kMaxExportedCurves));
}

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(MetricSources sources) : sources_(std::move(sources)) {}

  std::vector<MetricFamily> Collect() const override {
    const Scrape scrape = {.in_use = sources_.profile(),
                           .methods = sources_.requests->Counts(),
                           .measuring = sources_.measuring(),
                           .process = ReadProcessFacts()};
    std::vector<MetricFamily> families;
    for (const MetricSpec& spec : Catalogue()) {
      Family family(spec);
      Fill(spec.id, scrape, family);
      families.push_back(family.Take());
    }
    return families;
  }

 private:
  // All that a scrape shows is read once, at its start.
  struct Scrape {
    ProfileInUse in_use;
    std::vector<MethodCounts> methods;
    MeasuringFacts measuring;
    absl::StatusOr<ProcessFacts> process;
  };

  void Fill(Metric metric, const Scrape& scrape, Family& family) const {
    const Profile* const profile = scrape.in_use.profile.get();
    const ProcessFacts* const process =
        scrape.process.ok() ? &*scrape.process : nullptr;
    switch (metric) {
      case Metric::kBuildInfo:
        return family.Add({sources_.version}, 1);
      case Metric::kConfigReadWell:
        return family.Add(sources_.config_read_well() ? 1.0 : 0.0);
      case Metric::kRequests:
        return AddRequests(scrape.methods, family);
      case Metric::kRequestDuration:
        for (const MethodCounts& m : scrape.methods) family.AddHistogram(m);
        return;
      case Metric::kCachedAnswers:
        for (const MethodCounts& m : scrape.methods) {
          family.Add({m.method}, static_cast<double>(m.cached));
        }
        return;
      case Metric::kProfileLoaded:
        return family.Add(int64_t{profile != nullptr});
      case Metric::kProfileSwaps:
        return family.Add(scrape.in_use.swap_count);
      case Metric::kStoredMeasurements:
        return family.Add(sources_.stored_measurements());
      case Metric::kProfileInfo:
        if (profile == nullptr) return;
        return family.Add({profile->name(), profile->fingerprint_id(),
                           profile->fingerprint().fabric},
                          1);
      case Metric::kProfileAsOf:
        if (profile != nullptr) family.Add(profile->data().as_of);
        return;
      case Metric::kProfileOldest:
        if (profile != nullptr) family.Add(profile->oldest());
        return;
      case Metric::kProfileMeasurements:
        if (profile != nullptr) {
          family.Add(int64_t{std::ssize(profile->data().measurements)});
        }
        return;
      case Metric::kCurveSeconds:
        if (profile != nullptr) AddCurves(*profile, family);
        return;
      case Metric::kCurveCliffs:
        if (profile != nullptr) AddCliffs(*profile, family);
        return;
      case Metric::kCurvesLeftOut:
        if (profile != nullptr) family.Add(CurvesLeftOut(*profile));
        return;
      case Metric::kWorkerInstalled:
        return family.Add(int64_t{scrape.measuring.worker_installed});
      case Metric::kMeasuring:
        return family.Add(int64_t{scrape.measuring.measuring});
      case Metric::kMeasurementRuns:
        for (const auto& [labels, count] : scrape.measuring.runs) {
          family.Add({labels[0], labels[1]}, static_cast<double>(count));
        }
        return;
      case Metric::kMeasurementSkips:
        for (const auto& [reason, count] : scrape.measuring.skips) {
          family.Add({reason}, static_cast<double>(count));
        }
        return;
      case Metric::kMeasurementGpuTime:
        return family.Add(absl::ToDoubleSeconds(scrape.measuring.gpu_time));
      case Metric::kWorkerFaults:
        for (const auto& [fault, count] : scrape.measuring.faults) {
          family.Add({fault}, static_cast<double>(count));
        }
        return;
      case Metric::kProfileMatchesNode: {
        const std::string& node = scrape.measuring.node_fingerprint;
        if (profile == nullptr || node.empty()) return;
        return family.Add(int64_t{node == profile->fingerprint_id()});
      }
      case Metric::kProcessStartTime:
        return family.Add(sources_.start_time);
      case Metric::kProcessCpu:
        if (process != nullptr) {
          family.Add(absl::ToDoubleSeconds(process->cpu_time));
        }
        return;
      case Metric::kProcessResidentMemory:
        if (process != nullptr) family.Add(process->resident_bytes);
        return;
      case Metric::kProcessVirtualMemory:
        if (process != nullptr) family.Add(process->virtual_bytes);
        return;
      case Metric::kProcessOpenFiles:
        if (process != nullptr) family.Add(process->open_files);
        return;
      case Metric::kProcessMaxFiles:
        if (process != nullptr) family.Add(process->max_files);
        return;
      case Metric::kProcessThreads:
        if (process != nullptr) family.Add(process->threads);
        return;
    }
  }

  const MetricSources sources_;
};

}  // namespace

std::shared_ptr<prometheus::Collectable> MakeCollector(MetricSources sources) {
  return std::make_shared<Collector>(std::move(sources));
}

}  // namespace fabricwise
