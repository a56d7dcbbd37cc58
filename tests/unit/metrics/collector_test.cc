// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/collector.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/catalogue.h"
#include "server/profile/serving.h"
#include "tests/unit/metrics/sources.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> Lines(const MetricSources& sources) {
  const auto collector = MakeCollector(sources);
  return absl::StrSplit(
      prometheus::TextSerializer().Serialize(collector->Collect()), '\n');
}

class CollectorTest : public testing::Test {
 protected:
  RequestMetrics requests_{{"RecommendParallelism", "GetStatus"}};
};

TEST_F(CollectorTest, ExportsTheWholeCatalogueAndNothingElse) {
  requests_.Record("GetStatus", absl::StatusCode::kOk, absl::Milliseconds(1),
                   false);
  const auto families =
      MakeCollector(
          Sources(&requests_, BuildProfile({AllReduce(2, 8192, 1e-5, 500),
                                            AllReduce(2, 16384, 9e-5, 500)})))
          ->Collect();
  ASSERT_EQ(families.size(), Catalogue().size());
  for (size_t i = 0; i < families.size(); ++i) {
    const MetricSpec& spec = Catalogue()[i];
    EXPECT_EQ(families[i].name, spec.name);
    EXPECT_EQ(families[i].help, spec.help);
    ASSERT_FALSE(families[i].metric.empty()) << spec.name;
    for (const auto& sample : families[i].metric) {
      std::vector<std::string> labels;
      for (const auto& label : sample.label) labels.push_back(label.name);
      EXPECT_EQ(labels, std::vector<std::string>(spec.labels.begin(),
                                                 spec.labels.end()))
          << spec.name;
    }
  }
}

TEST_F(CollectorTest, WritesRequests) {
  requests_.Record("RecommendParallelism", absl::StatusCode::kOk,
                   absl::Microseconds(400), true);
  requests_.Record("RecommendParallelism", absl::StatusCode::kInvalidArgument,
                   absl::Seconds(3), false);
  const std::vector<std::string> lines = Lines(Sources(&requests_, nullptr));
  const std::string method = "{method=\"RecommendParallelism\"";
  for (const std::string& line : {
           "fabricwise_requests_total" + method + ",code=\"OK\"} 1",
           "fabricwise_requests_total" + method +
               ",code=\"INVALID_ARGUMENT\"} 1",
           "fabricwise_cached_answers_total" + method + "} 1",
           "fabricwise_request_duration_seconds_count" + method + "} 2",
           "fabricwise_request_duration_seconds_bucket" + method +
               ",le=\"0.0003\"} 0",
           "fabricwise_request_duration_seconds_bucket" + method +
               ",le=\"0.0005\"} 1",
           "fabricwise_request_duration_seconds_bucket" + method +
               ",le=\"+Inf\"} 2",
           std::string(
               "fabricwise_requests_total{method=\"GetStatus\",code=\"OK\"} 0"),
           std::string("fabricwise_requests_total{method=\"other\",code=\"OK\"}"
                       " 0"),
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(lines,
              Contains(StartsWith("fabricwise_request_duration_seconds_sum" +
                                  method + "} 3.0004")));
}

TEST_F(CollectorTest, WritesTheProfileInUse) {
  const std::vector<std::string> lines = Lines(
      Sources(&requests_, BuildProfile({AllReduce(2, 1024, 1e-5, 500),
                                        AllReduce(2, 65536, 4e-5, 600),
                                        AllReduce(2, 131072, 16e-5, 600)})));
  const std::string curve = "{curve=\"all_reduce/n2/nccl/graph\"";
  const std::string at_64_kib =
      curve +
      ",op=\"all_reduce\",group=\"n2\",implementation=\"nccl\","
      "launch=\"graph\",fabric=\"nvlink\",size_bytes=\"65536\"";
  EXPECT_THAT(lines, Contains(AllOf(
                         StartsWith("fabricwise_profile_info{profile=\"bench "
                                    "\\\"one\\\"\",fingerprint=\""),
                         HasSubstr("\",fabric=\"nvlink\"} 1"))));
  for (const std::string& line : {
           std::string("fabricwise_build_info{version=\"1.2.3\"} 1"),
           std::string("fabricwise_config_read_well 1"),
           std::string("fabricwise_certificate_not_before_timestamp_seconds{"
                       "option=\"tls-cert\"} 3000"),
           std::string("fabricwise_certificate_not_after_timestamp_seconds{"
                       "option=\"tls-cert\"} 4000"),
           std::string("fabricwise_profile_loaded 1"),
           std::string("fabricwise_profile_as_of_timestamp_seconds 2000"),
           std::string("fabricwise_profile_oldest_timestamp_seconds 500"),
           std::string("fabricwise_profile_swaps_total 3"),
           std::string("fabricwise_profile_measurements 3"),
           std::string("fabricwise_curves_left_out 0"),
           std::string("fabricwise_stored_measurements 42"),
           std::string("process_start_time_seconds 1000"),
           "fabricwise_curve_cliffs" + curve + "} 1",
           "fabricwise_curve_seconds" + at_64_kib +
               ",basis=\"measured\"} 4e-05",
           // 64 KiB in 40 us, both ways over two GPUs.
           "fabricwise_curve_bus_bandwidth_bytes_per_second" + at_64_kib +
               "} 1638400000",
           "fabricwise_curve_cliff_bytes" + curve + ",edge=\"from\"} 65536",
           "fabricwise_curve_cliff_bytes" + curve + ",edge=\"to\"} 131072",
           // 8 KiB a token.
           "fabricwise_curve_cliff_tokens" + curve +
               ",edge=\"from\",model=\"Llama-3.1-8B\"} 8",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(lines, Contains(StartsWith("fabricwise_curve_p99_seconds" +
                                         at_64_kib + "} 8.0")));
  // 4 MiB is 32 times past the last point: out of the curve's reach.
  EXPECT_THAT(lines, Each(Not(HasSubstr("size_bytes=\"4194304\""))));
}

TEST_F(CollectorTest, WritesTheTopology) {
  const std::vector<std::string> lines =
      Lines(Sources(&requests_, BuildProfile({AllReduce(2, 1024, 1e-5, 500)})));
  for (const char* line :
       {"fabricwise_node_info{fabric=\"nvlink\",driver=\"\",cuda=\"\",nccl=\"2."
        "28.3\"} 1",
        "fabricwise_gpu_info{gpu=\"1\",name=\"NVIDIA H200\",uuid=\"GPU-1\"} 1",
        "fabricwise_gpu_memory_bytes{gpu=\"0\"} 141",
        "fabricwise_gpu_nvlinks{gpu=\"0\",peer=\"1\"} 18",
        "fabricwise_gpu_nvlinks{gpu=\"1\",peer=\"0\"} 17",
        "fabricwise_gpu_peer_access{gpu=\"0\",peer=\"1\"} 0",
        "fabricwise_gpu_peer_access{gpu=\"1\",peer=\"0\"} 1"}) {
    EXPECT_THAT(lines, Contains(line));
  }
}

TEST_F(CollectorTest, WritesTheOutlook) {
  const std::vector<std::string> lines =
      Lines(Sources(&requests_, BuildProfile({AllReduce(2, 1024, 1e-5, 500)})));
  for (const char* line :
       {"fabricwise_drift_ratio{subject=\"all_reduce/n2/nccl/"
        "graph\",sizes=\"small\"} 1.25",
        "fabricwise_drifted{subject=\"all_reduce/n2/nccl/"
        "graph\",sizes=\"small\"} 1",
        "fabricwise_curve_reference_ratio{curve=\"all_reduce/n2/nccl/graph\"} "
        "1.5",
        "fabricwise_scenario_info{scenario=\"chat\",model=\"Llama-3.1-8B\","
        "phase=\"steady\",concurrency=\"64\"} 1",
        "fabricwise_scenario_answered{scenario=\"chat\"} 1",
        "fabricwise_scenario_answered{scenario=\"batch\"} 0",
        "fabricwise_scenario_mode_info{scenario=\"chat\",engine=\"vllm\",mode="
        "\"TP2\"} 1",
        "fabricwise_scenario_tpot_seconds{scenario=\"chat\"} 0.02",
        "fabricwise_scenario_output_tokens_per_second{scenario=\"chat\"} 3200",
        "fabricwise_scenario_margin_ratio{scenario=\"chat\"} 0.125",
        "fabricwise_scenario_within_limits{scenario=\"chat\"} 1",
        "fabricwise_scenario_flips_total{scenario=\"chat\"} 2",
        "fabricwise_scenario_flips_total{scenario=\"batch\"} 0"}) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(lines, Each(Not(HasSubstr("mode_info{scenario=\"batch\""))));
  EXPECT_THAT(Lines(Sources(&requests_, nullptr)),
              Each(Not(StartsWith("fabricwise_scenario_"))));
}

TEST_F(CollectorTest, LeavesOutATimeThatIsNotKnown) {
  const std::vector<std::string> lines =
      Lines(Sources(&requests_, BuildProfile({AllReduce(2, 1024, 1e-5, 0)})));
  EXPECT_THAT(lines, Contains("fabricwise_profile_measurements 1"));
  EXPECT_THAT(
      lines,
      Each(Not(StartsWith("fabricwise_profile_oldest_timestamp_seconds "))));
}

TEST_F(CollectorTest, WritesWhatMeasuringDid) {
  const auto profile = BuildProfile({AllReduce(2, 1024, 1e-5, 500)});
  MetricSources sources = Sources(&requests_, profile);
  for (const char* line :
       {"fabricwise_worker_installed 1", "fabricwise_measuring 1",
        "fabricwise_measurement_runs_total{kind=\"quick\",result=\"kept\"} 7",
        "fabricwise_measurement_runs_total{kind=\"full\",result=\"failed\"} 0",
        "fabricwise_measurement_skips_total{reason=\"busy\"} 5",
        "fabricwise_measurement_gpu_seconds_total 2.5",
        "fabricwise_worker_faults_total{fault=\"died\"} 2",
        "fabricwise_fingerprint_changes_total 3",
        "fabricwise_profile_matches_node 0"}) {
    EXPECT_THAT(Lines(sources), Contains(line));
  }
  sources.measuring = [profile] {
    MeasuringFacts facts;
    facts.node_fingerprint = profile->fingerprint_id();
    return facts;
  };
  EXPECT_THAT(Lines(sources), Contains("fabricwise_profile_matches_node 1"));
  sources.measuring = [] { return MeasuringFacts(); };
  const std::vector<std::string> lines = Lines(sources);
  EXPECT_THAT(lines, Contains("fabricwise_worker_installed 0"));
  EXPECT_THAT(lines, Each(Not(StartsWith("fabricwise_profile_matches"))));
}

TEST_F(CollectorTest, WithoutAProfileSaysSoAndGivesNoCurve) {
  const std::vector<std::string> lines = Lines(Sources(&requests_, nullptr));
  EXPECT_THAT(lines, Contains("fabricwise_profile_loaded 0"));
  EXPECT_THAT(lines, Contains("fabricwise_profile_swaps_total 0"));
  EXPECT_THAT(lines, Each(Not(StartsWith("fabricwise_curve"))));
  EXPECT_THAT(lines, Each(Not(StartsWith("fabricwise_profile_info"))));
  EXPECT_THAT(lines, Each(Not(StartsWith("fabricwise_profile_as_of"))));
}

TEST(CollectorBounds, NoMetricHasMoreSeriesThanTheCatalogueSays) {
  // A profile, an outlook and a contract far beyond what there is.
  constexpr int kFlood = 1000;
  std::vector<std::string> methods;
  for (int i = 0; i < kFlood; ++i) methods.push_back(absl::StrCat("M", i));
  const RequestMetrics requests(methods);
  ProfileData data;
  data.name = "flood";
  data.fingerprint.gpus.resize(100, Gpu{.memory_bytes = 1});
  data.fingerprint.peer_access.assign(100, std::vector<bool>(100, true));
  data.fingerprint.nvlinks.assign(100, std::vector<int>(100, 18));
  for (int group = 2; group < 302; ++group) {
    for (const int64_t size : kServingSizesBytes) {
      // Grows with the square: all cliff.
      const auto kib = static_cast<double>(size >> 10);
      data.measurements.push_back(AllReduce(group, size, 1e-6 * kib * kib, 9));
    }
  }
  Outlook outlook;
  for (int i = 0; i < kFlood; ++i) {
    outlook.drifts.push_back({.subject = absl::StrCat("d", i)});
    outlook.reference_ratios.push_back({CurveKey{.group = {.size = i}}, 1});
    outlook.scenarios.push_back({.name = absl::StrCat("s", i),
                                 .model = absl::StrCat("m", i),
                                 .hidden_size = 4096,
                                 .answered = true});
  }
  MeasuringFacts facts;
  for (int i = 0; i < kFlood; ++i) {
    facts.runs.push_back({{absl::StrCat(i), "kept"}, 1});
    facts.skips.emplace_back(absl::StrCat(i), 1);
    facts.faults.emplace_back(absl::StrCat(i), 1);
  }
  MetricSources sources =
      Sources(&requests, Profile::Build(std::move(data)).value());
  sources.outlook = [&] { return std::make_shared<const Outlook>(outlook); };
  sources.measuring = [&] { return facts; };
  int full = 0;
  const std::vector<std::string> lines = Lines(sources);
  for (const MetricSpec& spec : Catalogue()) {
    const bool histogram = spec.kind == MetricKind::kHistogram;
    const auto series =
        std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
          const std::string name = line.substr(0, line.find_first_of("{ "));
          return name == spec.name ||
                 (histogram &&
                  absl::StartsWith(name, absl::StrCat(spec.name, "_")));
        });
    EXPECT_LE(series, spec.most_series) << spec.name;
    full += spec.most_series > 1 && series == spec.most_series;
  }
  EXPECT_GE(full, 20) << "the flood reaches the bounds";
  EXPECT_THAT(lines, Contains("fabricwise_curves_left_out 172"));
}

}  // namespace
}  // namespace fabricwise
