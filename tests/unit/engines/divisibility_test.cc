// SPDX-License-Identifier: Apache-2.0
#include "server/engines/divisibility.h"

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

constexpr WeightFormat kFp8Block{NumberFormat::kFp8Block};

TEST(MultipleRefusal, SaysWhatIsNoMultiple) {
  EXPECT_EQ(MultipleRefusal("num_experts", 256, "EP", 8), std::nullopt);
  EXPECT_EQ(MultipleRefusal("num_experts", 160, "EP", 3),
            "num_experts 160 is not a multiple of EP 3");
}

TEST(ShareRefusal, SaysWhatAShareComesTo) {
  EXPECT_EQ(ShareRefusal("width", 1024, "TP", 8, "tile", 64), std::nullopt);
  EXPECT_EQ(ShareRefusal("width", 1024, "TP", 8, "tile", 256),
            "width 1024 / TP 8 = 128 is not a multiple of tile 256");
}

TEST(QuantizedShareRefusal, GoesByTheUnitOfTheFormat) {
  EXPECT_EQ(
      QuantizedShareRefusal("moe_intermediate_size", 1536, "TP", 8, kFp8Block),
      "moe_intermediate_size 1536 / TP 8 = 192 is not a multiple of fp8 "
      "block 128");
  EXPECT_EQ(QuantizedShareRefusal("w", 1536, "TP", 4, kFp8Block), std::nullopt);
  // What is not divided is padded by the loader.
  EXPECT_EQ(QuantizedShareRefusal("w", 1000, "TP", 1, kFp8Block), std::nullopt);

  const auto int4 = [](int64_t group) {
    return WeightFormat{NumberFormat::kInt4Group, group};
  };
  EXPECT_EQ(QuantizedShareRefusal("w", 1536, "TP", 8, int4(128)),
            "w 1536 / TP 8 = 192 is not a multiple of int4 group 128");
  EXPECT_EQ(QuantizedShareRefusal("w", 1536, "TP", 8, int4(32)), std::nullopt);
  EXPECT_EQ(QuantizedShareRefusal("w", 2048, "TP", 64, int4(32)),
            "w 2048 / TP 64 = 32 is not a multiple of int4 group 64");
  for (const NumberFormat format :
       {NumberFormat::kBf16, NumberFormat::kFp8, NumberFormat::kMxfp4,
        NumberFormat::kNvfp4}) {
    EXPECT_EQ(QuantizedShareRefusal("w", 1000, "TP", 8, {format}),
              std::nullopt);
  }
}

}  // namespace
}  // namespace fabricwise
