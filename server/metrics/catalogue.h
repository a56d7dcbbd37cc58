// SPDX-License-Identifier: Apache-2.0
//
// Every series that the daemon exports, once: the collector fills what stands
// here, docs/metrics.md is printed from here, and tests compare against it.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace fabricwise {

enum class MetricKind { kCounter, kGauge, kHistogram };

enum class Metric {
  kBuildInfo,
  kConfigReadWell,
  kCertificateNotBefore,
  kCertificateNotAfter,
  kRequests,
  kRequestDuration,
  kCachedAnswers,
  kProfileLoaded,
  kProfileInfo,
  kProfileAsOf,
  kProfileOldest,
  kProfileSwaps,
  kProfileMeasurements,
  kNodeInfo,
  kGpuInfo,
  kGpuMemory,
  kGpuNvlinks,
  kGpuPeerAccess,
  kCurveSeconds,
  kCurveP99,
  kCurveBusBandwidth,
  kCurveCliffs,
  kCurveCliffBytes,
  kCurveCliffTokens,
  kCurvesLeftOut,
  kDriftRatio,
  kDrifted,
  kReferenceRatio,
  kScenarioInfo,
  kScenarioAnswered,
  kScenarioMode,
  kScenarioTpot,
  kScenarioThroughput,
  kScenarioMargin,
  kScenarioWithinLimits,
  kScenarioFlips,
  kStoredMeasurements,
  kWorkerInstalled,
  kMeasuring,
  kMeasurementRuns,
  kMeasurementSkips,
  kMeasurementGpuTime,
  kWorkerFaults,
  kProfileMatchesNode,
  kFingerprintChanges,
  kProcessCpu,
  kProcessResidentMemory,
  kProcessVirtualMemory,
  kProcessOpenFiles,
  kProcessMaxFiles,
  kProcessThreads,
  kProcessStartTime,
};

struct MetricSpec {
  Metric id;
  const char* name;  // unit and, for counters, _total at its end
  MetricKind kind;
  const char* unit;  // "" where a plain number
  std::vector<const char*> labels;
  // No scrape has more, whatever the profile and the configuration hold.
  int most_series;
  const char* help;
};

// In the order of export. Each Metric is there exactly once.
absl::Span<const MetricSpec> Catalogue();

// docs/metrics.md.
std::string CatalogueMarkdown();

}  // namespace fabricwise
