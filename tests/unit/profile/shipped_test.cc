// SPDX-License-Identifier: Apache-2.0
//
// The profiles in deploy/profiles.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/import.h"
#include "server/profile/profile_file.h"
#include "tests/support/read_file.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kNode[] = "../shared/data/h200x2";
// So that a profile is quick to send, to load and to look at.
constexpr size_t kMostBytes = 100'000;

std::string PathOf(const std::string& name) {
  return "deploy/profiles/" + name + ".json";
}

ProfileData Load(const std::string& name) {
  const auto data = ReadProfile(name, ReadWholeFile(PathOf(name)));
  EXPECT_TRUE(data.ok()) << data.status();
  return data.ok() ? *data : ProfileData();
}

class Shipped : public testing::TestWithParam<const char*> {};

TEST_P(Shipped, ProfileLoadsAndIsAsTheProgramWritesIt) {
  const std::string text = ReadWholeFile(PathOf(GetParam()));
  EXPECT_LT(text.size(), kMostBytes);
  const ProfileData data = Load(GetParam());
  EXPECT_EQ(data.name, GetParam());
  EXPECT_EQ(WriteProfile(data), text);
  EXPECT_FALSE(data.notes.empty());
  for (const Measurement& m : data.measurements) {
    EXPECT_EQ(m.origin, Origin::kMeasured);
    EXPECT_EQ(m.fingerprint_id, FingerprintId(data.fingerprint));
  }
  EXPECT_TRUE(Profile::Build(data).ok());
}

INSTANTIATE_TEST_SUITE_P(All, Shipped,
                         testing::Values("h200x2-p2p", "h200x2-shm",
                                         "h200x2-net", "seed-8x-rtx-pro-6000"));

class RecordedNode : public testing::TestWithParam<const char*> {};

TEST_P(RecordedNode, AnswersEveryCollectiveInGraphsAndEagerly) {
  const auto profile =
      Profile::Build(Load("h200x2-" + std::string(GetParam())));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ((*profile)->gpu_count(), 2);
  for (const CollectiveOp op :
       {CollectiveOp::kAllReduce, CollectiveOp::kAllGather,
        CollectiveOp::kReduceScatter, CollectiveOp::kAllToAll,
        CollectiveOp::kSendRecv}) {
    for (const Launch launch : {Launch::kGraph, Launch::kEager}) {
      const CurveKey key{.op = op, .group = {.size = 2}, .launch = launch};
      const Curve* curve = (*profile)->FindCurve(key);
      ASSERT_NE(curve, nullptr) << ToString(key);
      EXPECT_EQ(curve->points().front().size, 512);
      EXPECT_GE(curve->points().back().size, 64 << 20);
    }
  }
  EXPECT_TRUE((*profile)->gemm().Has(NumberFormat::kBf16));
  EXPECT_TRUE((*profile)->gemm().Has(NumberFormat::kFp8));
  EXPECT_TRUE((*profile)->experts().Has({NumberFormat::kBf16}));
  EXPECT_NE((*profile)->memory_read(), nullptr);
  EXPECT_NE((*profile)->memory_copy(), nullptr);
  EXPECT_TRUE((*profile)->graph_node().has_value());
}

TEST_P(RecordedNode, IsWhatWasRecorded) {
  if (!std::filesystem::is_directory(kNode)) {
    GTEST_SKIP() << kNode << " is not there";
  }
  const std::string folder = kNode;
  std::vector<std::string> paths = {
      folder + "/gemm.csv", folder + "/experts.csv", folder + "/memory.csv"};
  for (const auto& entry :
       std::filesystem::directory_iterator(folder + "/nccl_tests")) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, std::string(GetParam()) + "_") &&
        absl::EndsWith(name, ".json")) {
      paths.push_back(entry.path().string());
    }
  }
  std::vector<ImportFile> files;
  for (const std::string& path : paths) {
    files.push_back({path, ReadWholeFile(path)});
  }
  const auto recorded = AssembleProfile({.name = "recorded"}, files);
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  const ProfileData shipped = Load("h200x2-" + std::string(GetParam()));
  EXPECT_EQ(shipped.fingerprint.nccl_environment,
            recorded->fingerprint.nccl_environment);
  EXPECT_EQ(shipped.as_of, recorded->as_of);
  ASSERT_THAT(shipped.measurements, SizeIs(recorded->measurements.size()));
  for (size_t i = 0; i < shipped.measurements.size(); ++i) {
    EXPECT_EQ(shipped.measurements[i].key, recorded->measurements[i].key);
    EXPECT_EQ(shipped.measurements[i].statistics,
              recorded->measurements[i].statistics);
    EXPECT_EQ(shipped.measurements[i].experts,
              recorded->measurements[i].experts);
  }
}

INSTANTIATE_TEST_SUITE_P(Fabrics, RecordedNode,
                         testing::Values("p2p", "shm", "net"));

TEST(SeedNode, StatesItsCliffAndAnswersNothingElse) {
  const auto profile = Profile::Build(Load("seed-8x-rtx-pro-6000"));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ((*profile)->gpu_count(), 8);
  const Curve* exchange = (*profile)->FindCurve(
      {.op = CollectiveOp::kAllToAll, .group = {.size = 8}});
  ASSERT_NE(exchange, nullptr);
  // 14 KiB to each of eight: 19 to 25 us.
  const auto at_one = exchange->At(8 * 14336);
  EXPECT_EQ(at_one->seconds, 22e-6);
  EXPECT_NEAR(at_one->relative_sigma * at_one->seconds, 6e-6 / 1.349, 1e-9);
  EXPECT_EQ(exchange->At(8 * 229376)->seconds, 1007e-6);
  const std::vector<Cliff> cliffs = exchange->Cliffs();
  ASSERT_THAT(cliffs, SizeIs(1));
  EXPECT_EQ(cliffs[0].from_size, 8 * 14336);
  EXPECT_EQ(cliffs[0].to_size, 8 * 229376);

  const Curve* all_reduce = (*profile)->FindCurve({.group = {.size = 8}});
  ASSERT_NE(all_reduce, nullptr);
  EXPECT_EQ(all_reduce->At(14336)->seconds, 78e-6);
  EXPECT_EQ(all_reduce->At(64 * 14336), std::nullopt);  // 64 sequences
  EXPECT_TRUE((*profile)->gemm().empty());
  EXPECT_TRUE((*profile)->experts().empty());
  EXPECT_EQ((*profile)->memory_read(), nullptr);
}

}  // namespace
}  // namespace fabricwise
