// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/catalogue.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/metrics/outlook.h"
#include "server/metrics/profile_series.h"
#include "server/metrics/request_metrics.h"
#include "server/profile/serving.h"

namespace fabricwise {
namespace {

// The contract's methods and "other".
constexpr int kMostMethods = 24;
// Of the labels of runs, skips and faults.
constexpr int kMostRunKinds = 4, kMostResults = 6, kMostReasons = 12;
constexpr int kMostCertificates = 2;  // the server's, the clients' CA
constexpr int kMostCurves = static_cast<int>(kMaxExportedCurves);
constexpr int kMostCurveSizes =
    kMostCurves * static_cast<int>(std::size(kServingSizesBytes));
constexpr int kMostGpus = static_cast<int>(kMaxExportedGpus);
constexpr int kMostPairs = kMostGpus * (kMostGpus - 1);
// Two bands of each curve, and what is no collective.
constexpr int kMostDrifts = 2 * kMostCurves + 32;
constexpr int kMostScenarios = static_cast<int>(kMaxScenarios);
// A node has few cliffs, if any; where it has many, the first are told.
constexpr int kMostCliffTokens = 256;

absl::string_view Word(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      return "histogram";
  }
  return "";
}

}  // namespace

absl::Span<const MetricSpec> Catalogue() {
  using enum Metric;
  using enum MetricKind;
  static const auto& catalogue = *new std::vector<MetricSpec>{
      {kBuildInfo,
       "fabricwise_build_info",
       kGauge,
       "",
       {"version"},
       1,
       "Always 1; the label tells the daemon's version."},
      {kConfigReadWell,
       "fabricwise_config_read_well",
       kGauge,
       "",
       {},
       1,
       "1 after a start or a SIGHUP that found no mistake in the "
       "configuration, "
       "0 after a SIGHUP that did: the one before stays in effect."},
      {kCertificateNotBefore,
       "fabricwise_certificate_not_before_timestamp_seconds",
       kGauge,
       "seconds since 1970",
       {"option"},
       kMostCertificates,
       "From when on the certificates in use can serve: of tls-cert all, of "
       "tls-client-ca at least one. Absent without TLS."},
      {kCertificateNotAfter,
       "fabricwise_certificate_not_after_timestamp_seconds",
       kGauge,
       "seconds since 1970",
       {"option"},
       kMostCertificates,
       "Until when: of tls-cert the first to expire, of tls-client-ca the "
       "last. "
       "Time left: this less time()."},
      {kRequests,
       "fabricwise_requests_total",
       kCounter,
       "",
       {"method", "code"},
       kMostMethods * kStatusCodeCount,
       "Finished requests by RPC and gRPC status code."},
      {kRequestDuration,
       "fabricwise_request_duration_seconds",
       kHistogram,
       "seconds",
       {"method"},
       kMostMethods * kHistogramSeries,
       "Time in the server of a finished request, without the network."},
      {kCachedAnswers,
       "fabricwise_cached_answers_total",
       kCounter,
       "",
       {"method"},
       kMostMethods,
       "Requests answered from the cache of former answers."},
      {kProfileLoaded,
       "fabricwise_profile_loaded",
       kGauge,
       "",
       {},
       1,
       "1 while a profile is loaded and advice can be given, else 0."},
      {kProfileInfo,
       "fabricwise_profile_info",
       kGauge,
       "",
       {"profile", "fingerprint", "fabric"},
       1,
       "Always 1; the labels tell the profile in use. Absent without one."},
      {kProfileAsOf,
       "fabricwise_profile_as_of_timestamp_seconds",
       kGauge,
       "seconds since 1970",
       {},
       1,
       "When the newest part of the profile in use was measured; absent where "
       "that is not known. Age: time() less this."},
      {kProfileOldest,
       "fabricwise_profile_oldest_timestamp_seconds",
       kGauge,
       "seconds since 1970",
       {},
       1,
       "When the oldest curve in use was measured; absent where that is not "
       "known. Age: time() less this."},
      {kProfileSwaps,
       "fabricwise_profile_swaps_total",
       kCounter,
       "",
       {},
       1,
       "Times that a profile was taken into use, the first one counted."},
      {kProfileMeasurements,
       "fabricwise_profile_measurements",
       kGauge,
       "",
       {},
       1,
       "Measurements in the profile in use."},
      {kNodeInfo,
       "fabricwise_node_info",
       kGauge,
       "",
       {"fabric", "driver", "cuda", "nccl"},
       1,
       "Always 1; the labels tell the software of the profile's node. Absent "
       "without a profile; so are the topology and the curves."},
      {kGpuInfo,
       "fabricwise_gpu_info",
       kGauge,
       "",
       {"gpu", "name", "uuid"},
       kMostGpus,
       "Always 1; the labels tell a GPU of the node."},
      {kGpuMemory,
       "fabricwise_gpu_memory_bytes",
       kGauge,
       "bytes",
       {"gpu"},
       kMostGpus,
       "Memory of a GPU; absent where it is not known."},
      {kGpuNvlinks,
       "fabricwise_gpu_nvlinks",
       kGauge,
       "",
       {"gpu", "peer"},
       kMostPairs,
       "NVLinks from a GPU to a peer; absent where they are not known."},
      {kGpuPeerAccess,
       "fabricwise_gpu_peer_access",
       kGauge,
       "",
       {"gpu", "peer"},
       kMostPairs,
       "1 where a GPU may read a peer's memory, else 0; absent where it is not "
       "known."},
      {kCurveSeconds,
       "fabricwise_curve_seconds",
       kGauge,
       "seconds",
       {"curve", "op", "group", "implementation", "launch", "fabric",
        "size_bytes", "basis"},
       kMostCurveSizes,
       "Median time of a collective at message sizes that serving sends, read "
       "from the curve in use. Absent where the curve does not reach."},
      {kCurveP99,
       "fabricwise_curve_p99_seconds",
       kGauge,
       "seconds",
       {"curve", "op", "group", "implementation", "launch", "fabric",
        "size_bytes"},
       kMostCurveSizes,
       "The 99th percentile of the same, where it was recorded at this very "
       "size."},
      {kCurveBusBandwidth,
       "fabricwise_curve_bus_bandwidth_bytes_per_second",
       kGauge,
       "bytes per second",
       {"curve", "op", "group", "implementation", "launch", "fabric",
        "size_bytes"},
       kMostCurveSizes,
       "What a GPU's link carries during the same (nccl-tests' bus bandwidth), "
       "from the median."},
      {kCurveCliffs,
       "fabricwise_curve_cliffs",
       kGauge,
       "",
       {"curve"},
       kMostCurves,
       "Sizes at which a doubling costs clearly more than twice."},
      {kCurveCliffBytes,
       "fabricwise_curve_cliff_bytes",
       kGauge,
       "bytes",
       {"curve", "edge"},
       2 * kMostCurves,
       "Where the first cliff of a curve begins (from) and ends (to); absent "
       "without one."},
      {kCurveCliffTokens,
       "fabricwise_curve_cliff_tokens",
       kGauge,
       "",
       {"curve", "edge", "model"},
       kMostCliffTokens,
       "The same in tokens of the models of the pinned scenarios: of an "
       "all_to_all those of one rank, else of all."},
      {kCurvesLeftOut,
       "fabricwise_curves_left_out",
       kGauge,
       "",
       {},
       1,
       "Curves of the profile that are not exported, to bound the series."},
      {kDriftRatio,
       "fabricwise_drift_ratio",
       kGauge,
       "",
       {"subject", "sizes"},
       kMostDrifts,
       "Times of the last run over the median of the runs before it, of a "
       "curve's small (up to 64 KiB) or large sizes, or of all products of a "
       "format and the like. 1: as ever; over 1: slower. Absent before there "
       "are three runs to compare with."},
      {kDrifted,
       "fabricwise_drifted",
       kGauge,
       "",
       {"subject", "sizes"},
       kMostDrifts,
       "1 where that ratio is further from 1 than noise explains, and by 5 % "
       "at least; else 0."},
      {kReferenceRatio,
       "fabricwise_curve_reference_ratio",
       kGauge,
       "",
       {"curve"},
       kMostCurves,
       "Times of a curve over those of the reference profile, median over the "
       "serving sizes; over 1: slower. Absent without a reference that has the "
       "curve."},
      {kScenarioInfo,
       "fabricwise_scenario_info",
       kGauge,
       "",
       {"scenario", "model", "phase", "concurrency"},
       kMostScenarios,
       "Always 1; the labels tell a pinned scenario."},
      {kScenarioAnswered,
       "fabricwise_scenario_answered",
       kGauge,
       "",
       {"scenario"},
       kMostScenarios,
       "1 where the profile in use answers the scenario, else 0; the series "
       "below are absent then."},
      {kScenarioMode,
       "fabricwise_scenario_mode_info",
       kGauge,
       "",
       {"scenario", "engine", "mode"},
       kMostScenarios,
       "Always 1; the labels tell the mode recommended now. It stays until "
       "another is better by 5 %."},
      {kScenarioTpot,
       "fabricwise_scenario_tpot_seconds",
       kGauge,
       "seconds",
       {"scenario"},
       kMostScenarios,
       "Predicted time per output token of that mode."},
      {kScenarioThroughput,
       "fabricwise_scenario_output_tokens_per_second",
       kGauge,
       "tokens per second",
       {"scenario"},
       kMostScenarios,
       "Predicted throughput of that mode."},
      {kScenarioMargin,
       "fabricwise_scenario_margin_ratio",
       kGauge,
       "",
       {"scenario"},
       kMostScenarios,
       "By how much of the first mode's cost the second costs more; negative "
       "where the first is kept although the second costs less, 0 where there "
       "is no second."},
      {kScenarioWithinLimits,
       "fabricwise_scenario_within_limits",
       kGauge,
       "",
       {"scenario"},
       kMostScenarios,
       "1 where that mode is within the scenario's ttft-ms and tpot-ms, or it "
       "has none; 0: no mode is."},
      {kScenarioFlips,
       "fabricwise_scenario_flips_total",
       kCounter,
       "",
       {"scenario"},
       kMostScenarios,
       "Times that the recommended mode changed."},
      {kStoredMeasurements,
       "fabricwise_stored_measurements",
       kGauge,
       "",
       {},
       1,
       "Measurements in the store, all profiles together."},
      {kWorkerInstalled,
       "fabricwise_worker_installed",
       kGauge,
       "",
       {},
       1,
       "1 where there is a worker to measure this node with, else 0."},
      {kMeasuring,
       "fabricwise_measuring",
       kGauge,
       "",
       {},
       1,
       "1 while a worker looks at the node or measures it, else 0."},
      {kMeasurementRuns,
       "fabricwise_measurement_runs_total",
       kCounter,
       "",
       {"kind", "result"},
       kMostRunKinds * kMostResults,
       "Ended runs: looks at the node (probe), quick and full ones; kept, "
       "yielded to another process, cancelled, or failed."},
      {kMeasurementSkips,
       "fabricwise_measurement_skips_total",
       kCounter,
       "",
       {"reason"},
       kMostReasons,
       "Times that a run was put off: the GPUs were busy, the budget was "
       "spent, "
       "or the scheduler backed off after a failure."},
      {kMeasurementGpuTime,
       "fabricwise_measurement_gpu_seconds_total",
       kCounter,
       "seconds",
       {},
       1,
       "GPU time that measuring took, over all GPUs."},
      {kWorkerFaults,
       "fabricwise_worker_faults_total",
       kCounter,
       "",
       {"fault"},
       kMostReasons,
       "Workers that ended otherwise than well: not_started, hung, died, "
       "garbled (no proper frames), refused (results nobody asked for)."},
      {kProfileMatchesNode,
       "fabricwise_profile_matches_node",
       kGauge,
       "",
       {},
       1,
       "1 while the profile in use is of the node as the worker last saw it, "
       "else 0. Absent before it was seen, or without a profile."},
      {kFingerprintChanges,
       "fabricwise_fingerprint_changes_total",
       kCounter,
       "",
       {},
       1,
       "Times that a look found the node changed: GPUs, driver, NCCL and its "
       "environment, links."},
      {kProcessCpu,
       "process_cpu_seconds_total",
       kCounter,
       "seconds",
       {},
       1,
       "User and system processor time of the daemon."},
      {kProcessResidentMemory,
       "process_resident_memory_bytes",
       kGauge,
       "bytes",
       {},
       1,
       "Resident memory of the daemon."},
      {kProcessVirtualMemory,
       "process_virtual_memory_bytes",
       kGauge,
       "bytes",
       {},
       1,
       "Virtual memory of the daemon."},
      {kProcessOpenFiles,
       "process_open_fds",
       kGauge,
       "",
       {},
       1,
       "Open file descriptors."},
      {kProcessMaxFiles,
       "process_max_fds",
       kGauge,
       "",
       {},
       1,
       "Most file descriptors that may be open."},
      {kProcessThreads,
       "process_threads",
       kGauge,
       "",
       {},
       1,
       "Threads of the daemon."},
      {kProcessStartTime,
       "process_start_time_seconds",
       kGauge,
       "seconds since 1970",
       {},
       1,
       "When the daemon started."},
  };
  return catalogue;
}

std::string CatalogueMarkdown() {
  std::string text =
      "# Metrics\n\n"
      "What `fabricwised` serves at `/metrics` (default `127.0.0.1:7411`). "
      "This file is\nprinted by `fabricwised --print-metrics`. The library "
      "that "
      "serves it adds three of its own\nabout scrapes, `exposer_*`.\n\n"
      "The column \"most\" says how many series a scrape has at most, "
      "whatever "
      "the profile and the\nconfiguration hold; ";
  int most_series = 0;
  for (const MetricSpec& spec : Catalogue()) most_series += spec.most_series;
  absl::StrAppend(&text, most_series,
                  " in all, where a node of two GPUs has some hundreds.\n\n"
                  "| name | type | unit | labels | most | meaning |\n"
                  "|---|---|---|---|---|---|\n");
  for (const MetricSpec& spec : Catalogue()) {
    const auto quote = [](std::string* out, const char* label) {
      absl::StrAppend(out, "`", label, "`");
    };
    absl::StrAppend(&text, "| `", spec.name, "` | ", Word(spec.kind), " | ",
                    spec.unit, " | ", absl::StrJoin(spec.labels, ", ", quote),
                    " | ", spec.most_series, " | ", spec.help, " |\n");
  }
  return text;
}

}  // namespace fabricwise
