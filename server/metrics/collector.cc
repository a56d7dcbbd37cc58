// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/collector.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "prometheus/metric_family.h"
#include "server/metrics/catalogue.h"
#include "server/metrics/family.h"
#include "server/metrics/process.h"
#include "server/metrics/profile_series.h"

namespace fabricwise {
namespace {

using prometheus::MetricFamily;

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

// A value of each scenario that has an answer.
void AddScenarios(const Outlook& outlook, double ScenarioAdvice::*field,
                  Family& family) {
  for (const ScenarioAdvice& s : outlook.scenarios) {
    if (s.answered) family.Add({s.name}, s.*field);
  }
}

void AddCertificates(const std::vector<CertificateFacts>& certificates,
                     absl::Time CertificateFacts::*field, Family& family) {
  for (const CertificateFacts& each : certificates) {
    family.Add({each.option},
               absl::ToDoubleSeconds(each.*field - absl::UnixEpoch()));
  }
}

class Collector final : public prometheus::Collectable {
 public:
  explicit Collector(MetricSources sources) : sources_(std::move(sources)) {}

  std::vector<MetricFamily> Collect() const override {
    const Scrape scrape = {.in_use = sources_.profile(),
                           .methods = sources_.requests->Counts(),
                           .measuring = sources_.measuring(),
                           .outlook = sources_.outlook(),
                           .certificates = sources_.certificates(),
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
    std::shared_ptr<const Outlook> outlook;
    std::vector<CertificateFacts> certificates;
    absl::StatusOr<ProcessFacts> process;
  };

  void Fill(Metric metric, const Scrape& scrape, Family& family) const {
    static const Outlook& nothing = *new Outlook;
    const Outlook& outlook =
        scrape.outlook == nullptr ? nothing : *scrape.outlook;
    const Profile* const profile = scrape.in_use.profile.get();
    const ProcessFacts* const process =
        scrape.process.ok() ? &*scrape.process : nullptr;
    switch (metric) {
      case Metric::kBuildInfo:
        return family.Add({sources_.version}, 1);
      case Metric::kConfigReadWell:
        return family.Add(sources_.config_read_well() ? 1.0 : 0.0);
      case Metric::kCertificateNotBefore:
        return AddCertificates(scrape.certificates,
                               &CertificateFacts::not_before, family);
      case Metric::kCertificateNotAfter:
        return AddCertificates(scrape.certificates,
                               &CertificateFacts::not_after, family);
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
      case Metric::kNodeInfo:
        if (profile != nullptr) {
          const Fingerprint& node = profile->fingerprint();
          family.Add({node.fabric, node.driver_version, node.cuda_version,
                      node.nccl_version},
                     1);
        }
        return;
      case Metric::kGpuInfo:
        if (profile != nullptr) AddGpus(*profile, family);
        return;
      case Metric::kGpuMemory:
        if (profile != nullptr) AddGpuMemory(*profile, family);
        return;
      case Metric::kGpuNvlinks:
        if (profile != nullptr) AddNvlinks(*profile, family);
        return;
      case Metric::kGpuPeerAccess:
        if (profile != nullptr) AddPeerAccess(*profile, family);
        return;
      case Metric::kCurveSeconds:
        if (profile != nullptr) {
          AddCurves(*profile, CurveValue::kMedian, family);
        }
        return;
      case Metric::kCurveP99:
        if (profile != nullptr) AddCurves(*profile, CurveValue::kP99, family);
        return;
      case Metric::kCurveBusBandwidth:
        if (profile != nullptr) {
          AddCurves(*profile, CurveValue::kBusBandwidth, family);
        }
        return;
      case Metric::kCurveCliffs:
        if (profile != nullptr) AddCliffCounts(*profile, family);
        return;
      case Metric::kCurveCliffBytes:
        if (profile != nullptr) AddCliffBytes(*profile, family);
        return;
      case Metric::kCurveCliffTokens:
        if (profile != nullptr) AddCliffTokens(*profile, outlook, family);
        return;
      case Metric::kCurvesLeftOut:
        if (profile != nullptr) family.Add(CurvesLeftOut(*profile));
        return;
      case Metric::kDriftRatio:
        return AddDriftRatios(outlook, family);
      case Metric::kDrifted:
        return AddDrifted(outlook, family);
      case Metric::kReferenceRatio:
        return AddReferenceRatios(outlook, family);
      case Metric::kScenarioInfo:
        for (const ScenarioAdvice& s : outlook.scenarios) {
          family.Add({s.name, s.model, s.phase, absl::StrCat(s.concurrency)},
                     1);
        }
        return;
      case Metric::kScenarioAnswered:
        for (const ScenarioAdvice& s : outlook.scenarios) {
          family.Add({s.name}, s.answered ? 1 : 0);
        }
        return;
      case Metric::kScenarioMode:
        for (const ScenarioAdvice& s : outlook.scenarios) {
          if (s.answered) family.Add({s.name, s.engine, s.mode}, 1);
        }
        return;
      case Metric::kScenarioTpot:
        return AddScenarios(outlook, &ScenarioAdvice::tpot_seconds, family);
      case Metric::kScenarioThroughput:
        return AddScenarios(outlook, &ScenarioAdvice::output_tokens_per_second,
                            family);
      case Metric::kScenarioMargin:
        return AddScenarios(outlook, &ScenarioAdvice::margin_ratio, family);
      case Metric::kScenarioWithinLimits:
        for (const ScenarioAdvice& s : outlook.scenarios) {
          if (s.answered) family.Add({s.name}, s.within_limits ? 1 : 0);
        }
        return;
      case Metric::kScenarioFlips:
        for (const ScenarioAdvice& s : outlook.scenarios) {
          family.Add({s.name}, static_cast<double>(s.flips));
        }
        return;
      case Metric::kFingerprintChanges:
        return family.Add(scrape.measuring.fingerprint_changes);
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
