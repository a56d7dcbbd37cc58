// SPDX-License-Identifier: Apache-2.0
#include "server/store/record.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/store/sample.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

TEST(Matrix, ComesBackAsItWas) {
  const std::vector<std::vector<int>> links = {{0, 18, -1}, {18, 0, 4}};
  EXPECT_EQ(MatrixText(links), "0,18,-1;18,0,4");
  EXPECT_EQ(ParseMatrix<int>("0,18,-1;18,0,4").value(), links);
  const std::vector<std::vector<bool>> access = {{true, false}, {true, true}};
  EXPECT_EQ(MatrixText(access), "1,0;1,1");
  EXPECT_EQ(ParseMatrix<bool>("1,0;1,1").value(), access);
  EXPECT_TRUE(ParseMatrix<int>("").value().empty());
}

TEST(Matrix, TextThatIsNoneIsDataLoss) {
  const absl::Status status = ParseMatrix<int>("0,x;1,0").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"x\""));
}

TEST(CheckKeepable, NamesTheNumberThatIsNotFinite) {
  const double bad[] = {std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity()};
  for (const double value : bad) {
    Measurement m = AllReduce(1024, value);
    EXPECT_EQ(CheckKeepable(m).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(CheckKeepable(m).message()),
                HasSubstr("median_seconds is"));
    m = AllReduce(1024, 1e-6);
    m.statistics.iqr_seconds = value;
    EXPECT_THAT(std::string(CheckKeepable(m).message()),
                HasSubstr("iqr_seconds is"));
    m = AllReduce(1024, 1e-6);
    m.statistics.p99_seconds = value;
    EXPECT_THAT(std::string(CheckKeepable(m).message()),
                HasSubstr("p99_seconds is"));
    m = AllReduce(1024, 1e-6);
    m.statistics.sm_clock_hertz = value;
    EXPECT_THAT(std::string(CheckKeepable(m).message()),
                HasSubstr("sm_clock_hertz is"));
  }
}

TEST(CheckKeepable, RefusesTimesThatNanosecondsCannotCount) {
  Measurement m = AllReduce(1024, 1e-6);
  m.start_time = absl::InfiniteFuture();
  EXPECT_EQ(CheckKeepable(m).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(CheckKeepable(m).message()),
              HasSubstr("start_time is infinite-future"));
}

TEST(CheckKeepable, RefusesAKeyThatNoMeasurementCanHave) {
  EXPECT_EQ(CheckKeepable(AllReduce(-1, 1e-6)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ContentDigest, IsFnv1a) {
  // The published FNV-1a of "a" needs the bytes alone; ours adds the length
  // first, as eight bytes, so that ("ab", "c") and ("a", "bc") differ.
  ContentDigest ab_c, a_bc, again;
  ab_c.Add("ab");
  ab_c.Add("c");
  a_bc.Add("a");
  a_bc.Add("bc");
  again.Add("ab");
  again.Add("c");
  EXPECT_NE(ab_c.value(), a_bc.value());
  EXPECT_EQ(ab_c.value(), again.value());
}

TEST(ContentDigest, SeesEveryPartOfAMeasurement) {
  const Measurement base = FullProfile().measurements.back();
  const auto digest = [](const Measurement& m) {
    ContentDigest d;
    d.Add(m);
    return d.value();
  };
  std::vector<Measurement> others(15, base);
  others[0].key = GemmKey{.m = 1, .n = 1, .k = 1};
  others[1].origin = Origin::kMeasured;
  others[2].start_time += absl::Nanoseconds(1);
  others[3].statistics.median_seconds *= 2;
  others[4].statistics.iqr_seconds = 1;
  others[5].statistics.p99_seconds = 1;
  others[6].statistics.samples = 1;
  others[7].statistics.discarded = 1;
  others[8].statistics.discard_reason = "";
  others[9].statistics.stop_reason = StopReason::kGood;
  others[10].statistics.verified = false;
  others[11].statistics.sm_clock_hertz = 1;
  others[12].experts.rows_local = 1;
  others[13].experts.experts_hit = 1;
  others[14].source = "";
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(digest(others[i]), digest(base)) << i;
  }
}

}  // namespace
}  // namespace fabricwise
