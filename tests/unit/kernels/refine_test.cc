// SPDX-License-Identifier: Apache-2.0
#include "kernels/timing/refine.h"

#include <functional>
#include <iterator>
#include <map>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

constexpr int64_t kSmallest = 1024, kLargest = int64_t{1} << 24;

// Measures `time` at powers of four, then wherever the refiner wants, up to
// `most` sizes more.
std::map<int64_t, double> Refine(const std::function<double(int64_t)>& time,
                                 int most) {
  CurveRefiner refiner{RefineRule{}};
  std::map<int64_t, double> measured;
  const auto measure = [&](int64_t size) {
    measured[size] = time(size);
    refiner.Add(size, measured[size]);
  };
  for (int64_t size = kSmallest; size <= kLargest; size *= 4) measure(size);
  for (int i = 0; i < most; ++i) {
    const auto next = refiner.Next();
    if (!next.has_value()) break;
    EXPECT_FALSE(measured.contains(*next)) << *next << " was asked twice";
    measure(*next);
  }
  return measured;
}

double Line(int64_t size) { return 7e-6 + static_cast<double>(size) / 200e9; }

TEST(CurveRefinerTest, ALatencyAndARateNeedFewMoreSizes) {
  const size_t coarse = Refine(Line, 0).size();
  const std::map<int64_t, double> refined = Refine(Line, 100);
  EXPECT_LE(refined.size(), coarse + 3);
}

TEST(CurveRefinerTest, ACliffIsClosedInToAQuarter) {
  constexpr int64_t kCliff = 300'000;
  const auto time = [](int64_t size) {
    return size < kCliff ? Line(size) : 40 * Line(size);
  };
  const std::map<int64_t, double> refined = Refine(time, 100);
  const auto above = refined.lower_bound(kCliff);
  ASSERT_NE(above, refined.begin());
  ASSERT_NE(above, refined.end());
  const auto below = std::prev(above);
  EXPECT_LE(static_cast<double>(above->first),
            RefineRule{}.cliff_factor * static_cast<double>(below->first));
}

TEST(CurveRefinerTest, AProtocolThatGetsFasterIsLookedAt) {
  // As NCCL where it changes protocol: slower at 64 KiB than at 256 KiB.
  const auto time = [](int64_t size) {
    return size >= 65536 && size < 262144 ? 71e-6 : Line(size);
  };
  const size_t coarse = Refine(time, 0).size();
  EXPECT_GT(Refine(time, 100).size(), coarse + 2);
}

TEST(CurveRefinerTest, ItComesToAnEnd) {
  // Noise of 30 % at every size, the same each time.
  const auto time = [](int64_t size) {
    return Line(size) *
           (1 + 0.3 * static_cast<double>(size * 7919 % 101) / 101);
  };
  EXPECT_LT(Refine(time, 10'000).size(), 400u);
}

TEST(CurveRefinerTest, FewerThanTwoSizesTellNothing) {
  CurveRefiner refiner{RefineRule{}};
  EXPECT_FALSE(refiner.Next().has_value());
  refiner.Add(1024, 1e-6);
  EXPECT_FALSE(refiner.Next().has_value());
}

}  // namespace
}  // namespace fabricwise
