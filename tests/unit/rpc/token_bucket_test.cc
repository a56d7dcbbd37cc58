// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/token_bucket.h"

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kGo = absl::ZeroDuration();

TEST(TokenBucket, LetsAMinutesWorthGoAtOnceAndThenOneByOne) {
  TokenBucket bucket(4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bucket.Take(kStart), kGo);
  EXPECT_EQ(bucket.Take(kStart), absl::Seconds(15));
  EXPECT_EQ(bucket.Take(kStart + absl::Seconds(5)), absl::Seconds(10));
  EXPECT_EQ(bucket.Take(kStart + absl::Seconds(15)), kGo);
  EXPECT_EQ(bucket.Take(kStart + absl::Seconds(15)), absl::Seconds(15));
}

TEST(TokenBucket, SavesUpNoMoreThanAMinutesWorth) {
  TokenBucket bucket(2);
  EXPECT_EQ(bucket.Take(kStart), kGo);
  const absl::Time later = kStart + absl::Hours(24 * 365);
  EXPECT_EQ(bucket.Take(later), kGo);
  EXPECT_EQ(bucket.Take(later), kGo);
  EXPECT_NE(bucket.Take(later), kGo);
}

TEST(TokenBucket, GivesNothingForAClockThatWasSetBack) {
  TokenBucket bucket(1);
  EXPECT_EQ(bucket.Take(kStart), kGo);
  EXPECT_EQ(bucket.Take(kStart - absl::Hours(1)), absl::Minutes(1));
  EXPECT_EQ(bucket.Take(kStart - absl::Minutes(1)), absl::Minutes(1));
  EXPECT_EQ(bucket.Take(kStart + absl::Minutes(1)), kGo);
}

TEST(TokenBucket, ZeroIsNoLimit) {
  TokenBucket bucket(0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(bucket.Take(kStart), kGo);
}

TEST(TokenBucket, TakesANewRateAtOnce) {
  TokenBucket bucket(0);
  bucket.SetRate(1);
  EXPECT_EQ(bucket.Take(kStart), kGo);
  EXPECT_EQ(bucket.Take(kStart), absl::Minutes(1));
  bucket.SetRate(60);
  EXPECT_EQ(bucket.Take(kStart), absl::Seconds(1)) << "nothing is given";
  bucket.SetRate(1);
  EXPECT_EQ(bucket.Take(kStart + absl::Minutes(2)), kGo);
  EXPECT_NE(bucket.Take(kStart + absl::Minutes(2)), kGo);
}

}  // namespace
}  // namespace fabricwise
