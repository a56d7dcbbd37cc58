// SPDX-License-Identifier: Apache-2.0
//
// The ruler itself: known delays in, their time out.
#include "gtest/gtest.h"
#include "kernels/device/pace.h"
#include "kernels/timed_loop.h"

namespace fabricwise {
namespace {

constexpr uint64_t kMicro = 1000;  // nanoseconds

// A kernel that waits for so long by the GPU's own timer.
class DelayCase final : public Case {
 public:
  DelayCase(Node& node, uint64_t nanoseconds)
      : node_(node),
        devices_({node.devices().front()}),
        nanoseconds_(nanoseconds) {}

  const std::vector<int>& devices() const override { return devices_; }
  absl::Status Enqueue(int count) override {
    CurrentDevice current(devices_.front());
    for (int i = 0; i < count; ++i) {
      RETURN_IF_CUDA_ERROR(
          LaunchDelay(nanoseconds_, node_.stream(devices_.front())));
    }
    return absl::OkStatus();
  }
  absl::Status Verify(uint64_t) override { return verdict; }
  Floor floor() const override { return {}; }

  absl::Status verdict;

 private:
  Node& node_;
  std::vector<int> devices_;
  uint64_t nanoseconds_;
};

class RulerTest : public testing::TestWithParam<Launch> {
 protected:
  void SetUp() override {
    auto node = Node::Create({});
    if (!node.ok()) GTEST_SKIP() << node.status().message();
    node_ = *std::move(node);
  }

  double Median(uint64_t nanoseconds) {
    DelayCase benchmark(*node_, nanoseconds);
    const auto statistics = TimeCase(benchmark, *node_, {.launch = GetParam()});
    EXPECT_TRUE(statistics.ok()) << statistics.status();
    return statistics.ok() ? statistics->median_seconds : 0;
  }

  std::unique_ptr<Node> node_;
};

TEST_P(RulerTest, LongerDelaysTakeLongerByWhatTheyAreLonger) {
  const double short_delay = Median(20 * kMicro);
  const double long_delay = Median(120 * kMicro);
  // The timer ticks once a microsecond or finer.
  EXPECT_NEAR(long_delay - short_delay, 100e-6, 1.5e-6);
  EXPECT_GE(short_delay, 20e-6);
  EXPECT_LE(short_delay, 30e-6);
}

TEST_P(RulerTest, AQuietDelayIsGoodAndVerified) {
  DelayCase benchmark(*node_, 100 * kMicro);
  const auto statistics = TimeCase(benchmark, *node_, {.launch = GetParam()});
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_EQ(statistics->stop_reason, StopReason::kGood);
  EXPECT_TRUE(statistics->verified);
  EXPECT_LE(statistics->iqr_seconds, 0.03 * statistics->median_seconds);
}

TEST_P(RulerTest, AWrongResultGivesNoFigure) {
  DelayCase benchmark(*node_, kMicro);
  benchmark.verdict = absl::DataLossError("wrong");
  EXPECT_EQ(TimeCase(benchmark, *node_, {.launch = GetParam()}).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_P(RulerTest, DisturbedSamplesAreCountedAndNotUsed) {
  DelayCase benchmark(*node_, 100 * kMicro);
  int sample = 0;
  LoopOptions options{.launch = GetParam()};
  options.disturbed = [&] { return ++sample <= 5 ? "heat" : ""; };
  const auto statistics = TimeCase(benchmark, *node_, options);
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_EQ(statistics->discarded, 5);
  EXPECT_EQ(statistics->discard_reason, "heat");
}

TEST_P(RulerTest, ARaisedFlagEndsTheLoop) {
  DelayCase benchmark(*node_, 100 * kMicro);
  LoopOptions options{.launch = GetParam()};
  options.stop = [] { return true; };
  EXPECT_EQ(TimeCase(benchmark, *node_, options).status().code(),
            absl::StatusCode::kCancelled);
}

INSTANTIATE_TEST_SUITE_P(Launches, RulerTest,
                         testing::Values(Launch::kGraph, Launch::kEager),
                         [](const auto& launch) {
                           return std::string(launch.param == Launch::kGraph
                                                  ? "Graph"
                                                  : "Eager");
                         });

}  // namespace
}  // namespace fabricwise
