// SPDX-License-Identifier: Apache-2.0
#include "server/model/overlap.h"

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(HalfOf, IsTheLargerHalfOfWhatTravels) {
  StepLoad load;
  load.rank_sequences = 7;
  load.prompt_tokens = 10;
  load.rank_tokens = 17;
  load.slice_tokens = 9;
  load.stage_tokens = 34;
  load.output_rows = 8;
  load.context_tokens = 100;
  const StepLoad half = HalfOf(load, 2);
  EXPECT_EQ(half.rank_sequences, 4);
  EXPECT_EQ(half.prompt_tokens, 5);
  EXPECT_EQ(half.rank_tokens, 9);
  EXPECT_EQ(half.slice_tokens, 5);
  EXPECT_EQ(half.stage_tokens, 18);
  EXPECT_EQ(half.output_rows, 8);
  EXPECT_EQ(half.context_tokens, 100);
}

TEST(Overlap, WaitsForTheLongerAndOneTurnOfTheShorter) {
  const Overlapped compute = Overlap(3, 10, 60);
  EXPECT_DOUBLE_EQ(compute.seconds, 20 + 3. / 60);
  EXPECT_EQ(compute.rest_shown, 1);
  EXPECT_DOUBLE_EQ(2 * 3 * compute.exchange_shown, 3. / 60);
  const Overlapped exchange = Overlap(10, 3, 60);
  EXPECT_DOUBLE_EQ(exchange.seconds, 20 + 3. / 60);
  EXPECT_EQ(exchange.exchange_shown, 1);
  EXPECT_DOUBLE_EQ(2 * 3 * exchange.rest_shown, 3. / 60);
}

TEST(Overlap, OfOneExchangeHidesHalfOfTheShorter) {
  const Overlapped one = Overlap(4, 4, 1);
  EXPECT_EQ(one.seconds, 12);
  EXPECT_EQ(one.exchange_shown, 0.5);
}

TEST(Overlap, HidesNothingWhereThereIsNothing) {
  const Overlapped none = Overlap(0, 5, 0);
  EXPECT_EQ(none.seconds, 10);
  EXPECT_EQ(none.exchange_shown, 1);
  EXPECT_EQ(none.rest_shown, 1);
}

}  // namespace
}  // namespace fabricwise
