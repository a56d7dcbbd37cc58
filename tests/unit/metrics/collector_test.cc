// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/collector.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/catalogue.h"
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
          Sources(&requests_, BuildProfile({AllReduce(2, 16384, 1e-5, 500)})))
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
  EXPECT_THAT(lines, Contains(AllOf(
                         StartsWith("fabricwise_profile_info{profile=\"bench "
                                    "\\\"one\\\"\",fingerprint=\""),
                         HasSubstr("\",fabric=\"nvlink\"} 1"))));
  for (const std::string& line : {
           std::string("fabricwise_build_info{version=\"1.2.3\"} 1"),
           std::string("fabricwise_config_read_well 1"),
           std::string("fabricwise_profile_loaded 1"),
           std::string("fabricwise_profile_as_of_timestamp_seconds 2000"),
           std::string("fabricwise_profile_oldest_timestamp_seconds 500"),
           std::string("fabricwise_profile_swaps_total 3"),
           std::string("fabricwise_profile_measurements 3"),
           std::string("fabricwise_curves_left_out 0"),
           std::string("fabricwise_stored_measurements 42"),
           std::string("process_start_time_seconds 1000"),
           "fabricwise_curve_cliffs" + curve + "} 1",
       }) {
    EXPECT_THAT(lines, Contains(line));
  }
  EXPECT_THAT(lines, Contains(StartsWith("fabricwise_curve_seconds" + curve +
                                         ",size_bytes=\"65536\",basis=")));
  // 4 MiB is 32 times past the last point: out of the curve's reach.
  EXPECT_THAT(lines, Each(Not(HasSubstr("size_bytes=\"4194304\""))));
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

TEST_F(CollectorTest, BoundsTheSeriesOfAHugeProfileAndCountsTheRest) {
  std::vector<Measurement> many;
  for (int group = 2; group <= 301; ++group) {
    many.push_back(AllReduce(group, 1 << 20, 1e-5, 500));
  }
  const std::vector<std::string> lines =
      Lines(Sources(&requests_, BuildProfile(std::move(many))));
  const auto series =
      std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
        return line.rfind("fabricwise_curve_seconds{", 0) == 0;
      });
  EXPECT_LE(series, 768);
  EXPECT_GE(series, 128);
  EXPECT_THAT(lines, Contains("fabricwise_curves_left_out 172"));
}

}  // namespace
}  // namespace fabricwise
