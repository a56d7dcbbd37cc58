// SPDX-License-Identifier: Apache-2.0
#include "client/profile_diff.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/render/profile.h"
#include "tests/unit/client/golden.h"
#include "tests/unit/client/samples.h"

namespace fabricwise {
namespace {

Measurement Measured(const std::string& key, double seconds) {
  Measurement measurement;
  measurement.key = ParseMeasurementKey(key).value();
  measurement.statistics.median_seconds = seconds;
  measurement.start_time = SampleNow() - absl::Hours(5);
  return measurement;
}

ProfileData Data(const std::string& name) {
  ProfileData data;
  data.name = name;
  data.as_of = SampleNow() - absl::Hours(5);
  data.fingerprint.fabric = "nvlink";
  data.fingerprint.gpus.assign(2, Gpu{.name = "NVIDIA H200"});
  return data;
}

std::shared_ptr<const Profile> First() {
  ProfileData data = Data("before");
  data.measurements = {
      Measured("all_reduce/n2/nccl/graph/1024B", 10e-6),
      Measured("all_reduce/n2/nccl/graph/4096B", 20e-6),
      Measured("all_gather/n2/nccl/graph/1024B", 10e-6),
      Measured("gemm/bf16/m1n64k64", 1e-6),
      Measured("gemm/bf16/m2n64k64", 1e-6),
      Measured("memory/read/1048576B", 1e-6),
  };
  return Profile::Build(std::move(data)).value();
}

std::shared_ptr<const Profile> Second() {
  ProfileData data = Data("after");
  data.fingerprint.fabric = "shm";
  data.measurements = {
      Measured("all_reduce/n2/nccl/graph/1024B", 20e-6),
      Measured("all_reduce/n2/nccl/graph/4096B", 80e-6),
      Measured("all_gather/n2/nccl/graph/1048576B", 10e-6),
      Measured("gemm/bf16/m1n64k64", 0.9e-6),
      Measured("send_recv/n2/nccl/graph/1024B", 1e-6),
      Measured("launch/graph_node", 1e-6),
  };
  return Profile::Build(std::move(data)).value();
}

TEST(Diff, ComparesWhatBothMeasured) {
  ProfileDiff diff = Diff(*First(), *Second());
  ASSERT_EQ(diff.series.size(), 3u);
  const SeriesDiff& reduce = diff.series[0];
  EXPECT_EQ(reduce.name, "all_reduce/n2/nccl/graph");
  EXPECT_EQ(reduce.compared, 2);
  EXPECT_NEAR(reduce.typical_change, std::sqrt(2.0 * 4.0) - 1, 1e-9);
  EXPECT_NEAR(reduce.worst_change, 3, 1e-9);
  EXPECT_EQ(reduce.worst_at, "4 KiB");
  EXPECT_EQ(diff.series[1].name, "all_gather/n2/nccl/graph");
  EXPECT_EQ(diff.series[1].compared, 0);
  EXPECT_EQ(diff.series[2].name, "gemm/bf16");
  EXPECT_EQ(diff.series[2].compared, 1);
  EXPECT_NEAR(diff.series[2].worst_change, -0.1, 1e-9);
  EXPECT_EQ(diff.only_first, (std::vector<std::string>{"memory/read"}));
  EXPECT_EQ(diff.only_second,
            (std::vector<std::string>{"send_recv/n2/nccl/graph",
                                      "launch/graph_node"}));
}

TEST(Diff, OfAProfileWithItselfIsNothing) {
  ProfileDiff diff = Diff(*First(), *First());
  EXPECT_TRUE(diff.node_changes.empty());
  EXPECT_TRUE(diff.only_first.empty() && diff.only_second.empty());
  for (const SeriesDiff& series : diff.series) {
    EXPECT_GT(series.compared, 0) << series.name;
    EXPECT_EQ(series.worst_change, 0) << series.name;
  }
}

TEST(Diff, IsRenderedWithItsGrounds) {
  ExpectGolden("diff_pipe.txt",
               RenderDiff(PipeStyle(), Diff(*First(), *Second()), SampleNow()));
}

}  // namespace
}  // namespace fabricwise
