// SPDX-License-Identifier: Apache-2.0
#include "server/profile/profile.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Measurement AllReduce(int64_t size, double seconds,
                      Origin origin = Origin::kMeasured, int64_t time = 1000,
                      std::string members = "") {
  return {.key = CollectiveKey{.group = {.size = 2, .members = members},
                               .size_bytes = size},
          .statistics = {.median_seconds = seconds},
          .origin = origin,
          .start_time = absl::FromUnixSeconds(time)};
}

std::shared_ptr<const Profile> Build(std::vector<Measurement> measurements) {
  const auto profile =
      Profile::Build({.name = "test",
                      .fingerprint = {.gpus = {{"GPU"}, {"GPU"}}},
                      .as_of = absl::FromUnixSeconds(5000),
                      .measurements = std::move(measurements)});
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *profile;
}

const CurveKey kAllReduce{.group = {.size = 2}};

TEST(Profile, MakesOneCurveOfTheSizesOfAKey) {
  const auto profile = Build({AllReduce(2048, 2e-6), AllReduce(1024, 1e-6)});
  const Curve* curve = profile->FindCurve(kAllReduce);
  ASSERT_NE(curve, nullptr);
  ASSERT_THAT(curve->points(), SizeIs(2));
  EXPECT_EQ(curve->points()[0].size, 1024);
  EXPECT_EQ(curve->points()[0].seconds, 1e-6);
  EXPECT_EQ(curve->points()[0].relative_sigma, kUnrecordedSigma);
  EXPECT_EQ(curve->origin(), Origin::kMeasured);
  EXPECT_EQ(profile->gpu_count(), 2);
  EXPECT_EQ(profile->name(), "test");
  EXPECT_EQ(profile->fingerprint_id(), FingerprintId(profile->fingerprint()));
  EXPECT_THAT(profile->curves(), SizeIs(1));
}

TEST(Profile, KnowsNoCurveOfAKeyThatDiffersInAnyPart) {
  const auto profile = Build({AllReduce(1024, 1e-6)});
  CurveKey key = kAllReduce;
  key.launch = Launch::kEager;
  EXPECT_EQ(profile->FindCurve(key), nullptr);
  key = kAllReduce;
  key.group.size = 4;
  EXPECT_EQ(profile->FindCurve(key), nullptr);
  key = kAllReduce;
  key.concurrent_groups = 2;
  EXPECT_EQ(profile->FindCurve(key), nullptr);
}

TEST(Profile, AnswersNamedMembersByTheirOwnCurveElseByAnyOfThatSize) {
  const auto profile =
      Build({AllReduce(1024, 1e-6),
             AllReduce(1024, 3e-6, Origin::kMeasured, 1000, "0,1")});
  CurveKey key = kAllReduce;
  key.group.members = "0,1";
  EXPECT_EQ(profile->FindCurve(key)->points()[0].seconds, 3e-6);
  key.group.members = "2,3";
  EXPECT_EQ(profile->FindCurve(key)->points()[0].seconds, 1e-6);
  key.group = {.size = 4, .members = "0,1,2,3"};
  EXPECT_EQ(profile->FindCurve(key), nullptr);
}

TEST(Profile, TakesTheNewestOfAKeyAndTheLaterOfEqualTimes) {
  const auto profile = Build({
      AllReduce(1024, 2e-6, Origin::kMeasured, 2000),
      AllReduce(1024, 1e-6, Origin::kMeasured, 1000),
      AllReduce(2048, 4e-6, Origin::kMeasured, 3000),
      AllReduce(2048, 5e-6, Origin::kMeasured, 3000),
  });
  const Curve* curve = profile->FindCurve(kAllReduce);
  EXPECT_EQ(curve->At(1024)->seconds, 2e-6);
  EXPECT_EQ(curve->At(2048)->seconds, 5e-6);
  // The one at 1000 s is not in use.
  EXPECT_EQ(profile->oldest(), absl::FromUnixSeconds(2000));
}

TEST(Profile, PrefersThisNodeToAnotherOfItsKind) {
  const auto profile = Build({
      AllReduce(1024, 1e-6, Origin::kMeasured, 1000),
      AllReduce(1024, 9e-6, Origin::kReference, 2000),
      AllReduce(2048, 9e-6, Origin::kReference, 2000),
  });
  const Curve* curve = profile->FindCurve(kAllReduce);
  ASSERT_THAT(curve->points(), SizeIs(1));
  EXPECT_EQ(curve->At(1024)->seconds, 1e-6);
  EXPECT_EQ(curve->At(1024)->standing, Standing::kMeasured);
  const auto other = Build({
      AllReduce(2048, 9e-6, Origin::kReference),
      AllReduce(1024, 8e-6, Origin::kReference),
  });
  EXPECT_EQ(other->FindCurve(kAllReduce)->At(2048)->standing,
            Standing::kReference);
}

TEST(Profile, HasExchangesMemoryAndTheCostOfAGraphNode) {
  const ExchangeKey exchange{.group = {.size = 8},
                             .hidden_size = 7168,
                             .num_experts = 256,
                             .experts_per_token = 8,
                             .tokens_per_rank = 128};
  const auto profile = Build({
      {.key = exchange, .statistics = {.median_seconds = 77e-6}},
      {.key = MemoryKey{.op = MemoryOp::kRead, .size_bytes = 1024},
       .statistics = {.median_seconds = 1e-6}},
      {.key = MemoryKey{.op = MemoryOp::kCopy, .size_bytes = 1024},
       .statistics = {.median_seconds = 2e-6}},
      {.key = LaunchKey{},
       .statistics = {.median_seconds = 1e-6, .iqr_seconds = 0},
       .origin = Origin::kReference},
  });
  ExchangeCurveKey key{.group = {.size = 8},
                       .hidden_size = 7168,
                       .num_experts = 256,
                       .experts_per_token = 8};
  ASSERT_NE(profile->FindExchange(key), nullptr);
  EXPECT_EQ(profile->FindExchange(key)->At(128)->seconds, 77e-6);
  key.stage = ExchangeStage::kCombine;
  EXPECT_EQ(profile->FindExchange(key), nullptr);
  EXPECT_THAT(profile->exchanges(), SizeIs(1));
  EXPECT_EQ(profile->memory_read()->At(1024)->seconds, 1e-6);
  EXPECT_EQ(profile->memory_copy()->At(1024)->seconds, 2e-6);
  ASSERT_TRUE(profile->graph_node().has_value());
  EXPECT_EQ(profile->graph_node()->seconds, 1e-6);
  EXPECT_EQ(profile->graph_node()->relative_sigma, 0);
  EXPECT_EQ(profile->graph_node()->standing, Standing::kReference);
}

TEST(Profile, OfNothingKnowsNothing) {
  const auto profile = Build({});
  EXPECT_EQ(profile->FindCurve(kAllReduce), nullptr);
  EXPECT_EQ(profile->memory_read(), nullptr);
  EXPECT_EQ(profile->memory_copy(), nullptr);
  EXPECT_EQ(profile->graph_node(), std::nullopt);
  EXPECT_TRUE(profile->gemm().empty());
  EXPECT_TRUE(profile->experts().empty());
  EXPECT_TRUE(profile->attention().empty());
  EXPECT_EQ(profile->oldest(), absl::FromUnixSeconds(5000));
}

TEST(Profile, RefusesAMeasurementThatCannotBeByItsPlace) {
  const auto profile = Profile::Build(
      {.measurements = {AllReduce(1024, 1e-6), AllReduce(0, 1e-6)}});
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(profile.status().message()),
              HasSubstr("measurements[1]: all_reduce/n2/nccl/graph/0B: "
                        "size_bytes is 0"));
}

TEST(CurveKeyText, IsTheMeasurementsLessItsSize) {
  EXPECT_EQ(ToString(kAllReduce), "all_reduce/n2/nccl/graph");
  EXPECT_EQ(ToString(CurveKey{.op = CollectiveOp::kAllToAll,
                              .group = {.size = 2, .members = "0,1"},
                              .launch = Launch::kEager,
                              .concurrent_groups = 4,
                              .skew_alpha = 0.5}),
            "all_to_all/n2[0,1]/nccl/eager/x4/a0.5");
  EXPECT_EQ(ToString(ExchangeCurveKey{.group = {.size = 8},
                                      .hidden_size = 7168,
                                      .num_experts = 256,
                                      .experts_per_token = 8}),
            "exchange/deepep_low_latency/dispatch/n8/h7168e256k8");
}

}  // namespace
}  // namespace fabricwise
