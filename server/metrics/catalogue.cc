// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/catalogue.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fabricwise {
namespace {

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
       "Always 1; the label tells the daemon's version."},
      {kConfigReadWell,
       "fabricwise_config_read_well",
       kGauge,
       "",
       {},
       "1 after a start or a SIGHUP that found no mistake in the "
       "configuration, "
       "0 after a SIGHUP that did: the one before stays in effect."},
      {kRequests,
       "fabricwise_requests_total",
       kCounter,
       "",
       {"method", "code"},
       "Finished requests by RPC and gRPC status code."},
      {kRequestDuration,
       "fabricwise_request_duration_seconds",
       kHistogram,
       "seconds",
       {"method"},
       "Time in the server of a finished request, without the network."},
      {kCachedAnswers,
       "fabricwise_cached_answers_total",
       kCounter,
       "",
       {"method"},
       "Requests answered from the cache of former answers."},
      {kProfileLoaded,
       "fabricwise_profile_loaded",
       kGauge,
       "",
       {},
       "1 while a profile is loaded and advice can be given, else 0."},
      {kProfileInfo,
       "fabricwise_profile_info",
       kGauge,
       "",
       {"profile", "fingerprint", "fabric"},
       "Always 1; the labels tell the profile in use. Absent without one."},
      {kProfileAsOf,
       "fabricwise_profile_as_of_timestamp_seconds",
       kGauge,
       "seconds since 1970",
       {},
       "When the newest part of the profile in use was measured; absent where "
       "that is not known. Age: time() less this."},
      {kProfileOldest,
       "fabricwise_profile_oldest_timestamp_seconds",
       kGauge,
       "seconds since 1970",
       {},
       "When the oldest curve in use was measured; absent where that is not "
       "known. Age: time() less this."},
      {kProfileSwaps,
       "fabricwise_profile_swaps_total",
       kCounter,
       "",
       {},
       "Times that a profile was taken into use, the first one counted."},
      {kProfileMeasurements,
       "fabricwise_profile_measurements",
       kGauge,
       "",
       {},
       "Measurements in the profile in use."},
      {kCurveSeconds,
       "fabricwise_curve_seconds",
       kGauge,
       "seconds",
       {"curve", "size_bytes", "basis"},
       "Time of a collective at message sizes that serving sends, read from "
       "the curve in use. Absent where the curve does not reach."},
      {kCurveCliffs,
       "fabricwise_curve_cliffs",
       kGauge,
       "",
       {"curve"},
       "Sizes at which a doubling costs clearly more than twice."},
      {kCurvesLeftOut,
       "fabricwise_curves_left_out",
       kGauge,
       "",
       {},
       "Curves of the profile that are not exported, to bound the series."},
      {kStoredMeasurements,
       "fabricwise_stored_measurements",
       kGauge,
       "",
       {},
       "Measurements in the store, all profiles together."},
      {kWorkerInstalled,
       "fabricwise_worker_installed",
       kGauge,
       "",
       {},
       "1 where there is a worker to measure this node with, else 0."},
      {kMeasuring,
       "fabricwise_measuring",
       kGauge,
       "",
       {},
       "1 while a worker looks at the node or measures it, else 0."},
      {kMeasurementRuns,
       "fabricwise_measurement_runs_total",
       kCounter,
       "",
       {"kind", "result"},
       "Ended runs: looks at the node (probe), quick and full ones; kept, "
       "yielded to another process, cancelled, or failed."},
      {kMeasurementSkips,
       "fabricwise_measurement_skips_total",
       kCounter,
       "",
       {"reason"},
       "Times that a run was put off: the GPUs were busy, the budget was "
       "spent, "
       "or the scheduler backed off after a failure."},
      {kMeasurementGpuTime,
       "fabricwise_measurement_gpu_seconds_total",
       kCounter,
       "seconds",
       {},
       "GPU time that measuring took, over all GPUs."},
      {kWorkerFaults,
       "fabricwise_worker_faults_total",
       kCounter,
       "",
       {"fault"},
       "Workers that ended otherwise than well: not_started, hung, died, "
       "garbled (no proper frames), refused (results nobody asked for)."},
      {kProfileMatchesNode,
       "fabricwise_profile_matches_node",
       kGauge,
       "",
       {},
       "1 while the profile in use is of the node as the worker last saw it, "
       "else 0. Absent before it was seen, or without a profile."},
      {kProcessCpu,
       "process_cpu_seconds_total",
       kCounter,
       "seconds",
       {},
       "User and system processor time of the daemon."},
      {kProcessResidentMemory,
       "process_resident_memory_bytes",
       kGauge,
       "bytes",
       {},
       "Resident memory of the daemon."},
      {kProcessVirtualMemory,
       "process_virtual_memory_bytes",
       kGauge,
       "bytes",
       {},
       "Virtual memory of the daemon."},
      {kProcessOpenFiles,
       "process_open_fds",
       kGauge,
       "",
       {},
       "Open file descriptors."},
      {kProcessMaxFiles,
       "process_max_fds",
       kGauge,
       "",
       {},
       "Most file descriptors that may be open."},
      {kProcessThreads,
       "process_threads",
       kGauge,
       "",
       {},
       "Threads of the daemon."},
      {kProcessStartTime,
       "process_start_time_seconds",
       kGauge,
       "seconds since 1970",
       {},
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
      "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
  for (const MetricSpec& spec : Catalogue()) {
    const auto quote = [](std::string* out, const char* label) {
      absl::StrAppend(out, "`", label, "`");
    };
    absl::StrAppend(&text, "| `", spec.name, "` | ", Word(spec.kind), " | ",
                    spec.unit, " | ", absl::StrJoin(spec.labels, ", ", quote),
                    " | ", spec.help, " |\n");
  }
  return text;
}

}  // namespace fabricwise
