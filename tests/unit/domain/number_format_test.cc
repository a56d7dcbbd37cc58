// SPDX-License-Identifier: Apache-2.0
#include "server/domain/number_format.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(BytesPerWeightTest, CountsScales) {
  EXPECT_DOUBLE_EQ(BytesPerWeight({}), 2);
  EXPECT_DOUBLE_EQ(BytesPerWeight({NumberFormat::kFp8Block}), 1 + 4.0 / 16384);
  EXPECT_DOUBLE_EQ(BytesPerWeight({NumberFormat::kFp8}), 1);
  EXPECT_DOUBLE_EQ(BytesPerWeight({NumberFormat::kInt4Group, 32}), 0.5625);
  EXPECT_DOUBLE_EQ(BytesPerWeight({NumberFormat::kInt4Group, 128}), 0.515625);
  EXPECT_DOUBLE_EQ(BytesPerWeight({NumberFormat::kMxfp4}), 0.53125);
  EXPECT_DOUBLE_EQ(BytesPerWeight({NumberFormat::kNvfp4}), 0.5625);
}

TEST(NumberFormatTest, EveryNameParsesToItsFormat) {
  for (const NumberFormat format :
       {NumberFormat::kBf16, NumberFormat::kFp8Block, NumberFormat::kFp8,
        NumberFormat::kInt4Group, NumberFormat::kMxfp4, NumberFormat::kNvfp4}) {
    const auto parsed = ParseNumberFormat(ToString(format));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, format);
  }
}

TEST(NumberFormatTest, UnknownNameIsRefusedWithTheNamesThereAre) {
  const auto parsed = ParseNumberFormat("int8\n");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(parsed.status().message(),
            "number format is 'int8\\n'; allowed: bf16, fp8_block, fp8, "
            "int4_group, mxfp4, nvfp4");
}

}  // namespace
}  // namespace fabricwise
