// SPDX-License-Identifier: Apache-2.0
#include "server/profile/serving.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::IsEmpty;

TEST(Serving, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveOp::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveOp::kAllGather, 8), 0.875);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveOp::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveOp::kAllToAll, 2), 0.5);
  EXPECT_DOUBLE_EQ(BusFactor(CollectiveOp::kSendRecv, 2), 1);
}

TEST(Serving, ATokenIsItsActivationsAndGoesToEveryPeerInAnAllToAll) {
  EXPECT_DOUBLE_EQ(BytesPerToken(CollectiveOp::kAllReduce, 8, 7168), 14336);
  EXPECT_DOUBLE_EQ(BytesPerToken(CollectiveOp::kSendRecv, 2, 7168), 14336);
  EXPECT_DOUBLE_EQ(BytesPerToken(CollectiveOp::kAllToAll, 8, 7168), 8 * 14336);
}

TEST(Serving, ComparesTheCurvesThatBothNodesHave) {
  const auto reference = SampleProfile("reference");
  ProfileData data = SampleProfileData("slow");
  for (Measurement& m : data.measurements) {
    if (std::holds_alternative<CollectiveKey>(m.key)) {
      m.statistics.median_seconds *= 1.5;
    }
  }
  const auto slow = Profile::Build(data);
  ASSERT_TRUE(slow.ok()) << slow.status();
  const auto ratios = CompareCurves(**slow, *reference);
  ASSERT_EQ(ratios.size(), reference->curves().size());
  for (const ReferenceRatio& each : ratios) {
    EXPECT_NEAR(each.ratio, 1.5, 1e-9) << ToString(each.key);
  }
  data.measurements.clear();
  const auto empty = Profile::Build(data);
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_THAT(CompareCurves(*reference, **empty), IsEmpty());
}

TEST(Serving, CurvesKeepTheNinetyNinthPercentile) {
  ProfileData data;
  data.name = "one";
  Measurement m;
  m.key = CollectiveKey{.group = {.size = 2}, .size_bytes = 4096};
  m.statistics.median_seconds = 1e-5;
  data.measurements = {m};
  EXPECT_LT(
      (*Profile::Build(data))->curves().begin()->second.points()[0].p99_seconds,
      0);
  data.measurements[0].statistics.p99_seconds = 3e-5;
  EXPECT_EQ(
      (*Profile::Build(data))->curves().begin()->second.points()[0].p99_seconds,
      3e-5);
}

}  // namespace
}  // namespace fabricwise
