// SPDX-License-Identifier: Apache-2.0
#include "server/model/memory.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/support/random_model.h"

namespace fabricwise {
namespace {

constexpr int64_t kGB = 1'000'000'000;

Recipe MadeUp() {
  Recipe recipe;
  recipe.memory = {.weights_bytes = 50e9,
                   .kv_bytes_per_token = 100'000,
                   .window_kv_bytes_per_token = 10'000,
                   .window_tokens = 128,
                   .state_bytes_per_sequence = 1'000'000,
                   .activation_bytes = 2e9,
                   .communicator_bytes = 1e9,
                   .usable_fraction = 0.9};
  return recipe;
}

TEST(Memory, AddsUpItsParts) {
  const Workload workload{
      .concurrency = 16, .input_tokens = 1000, .output_tokens = 1000};
  const MemoryUse use = ComputeMemory(MadeUp(), {}, workload, 100 * kGB);
  EXPECT_EQ(use.weights_bytes, 50 * kGB);
  EXPECT_EQ(use.kv_cache_bytes,
            int64_t{16} * (100'000 * 2000 + 10'000 * 128 + 1'000'000));
  EXPECT_EQ(use.activation_bytes, 2 * kGB);
  EXPECT_EQ(use.communicator_bytes, kGB);
  EXPECT_EQ(use.total_bytes(), 53 * kGB + use.kv_cache_bytes);
  EXPECT_EQ(use.available_bytes, 90 * kGB);
  EXPECT_TRUE(use.fits);
  EXPECT_EQ(use.max_concurrency, 37 * kGB / (use.kv_cache_bytes / 16));
}

TEST(Memory, WithholdsItsShareOfWhatWeightsLeave) {
  Recipe recipe = MadeUp();
  recipe.memory.kv_fraction = 0.5;
  const Workload workload{
      .concurrency = 16, .input_tokens = 1000, .output_tokens = 1000};
  const MemoryUse use = ComputeMemory(recipe, {}, workload, 100 * kGB);
  // 37 GB are left of 90, half of which is for KV.
  EXPECT_EQ(use.available_bytes, 90 * kGB - 37 * kGB / 2);
  EXPECT_EQ(use.max_concurrency, 37 * kGB / 2 / (use.kv_cache_bytes / 16));
  EXPECT_TRUE(use.fits);
  // Where nothing is left, nothing is withheld.
  const MemoryUse small = ComputeMemory(recipe, {}, workload, 50 * kGB);
  EXPECT_EQ(small.available_bytes, 45 * kGB);
  EXPECT_FALSE(small.fits);
  EXPECT_EQ(small.max_concurrency, 0);
}

TEST(Memory, KeepsNoMoreOfAWindowThanThereIs) {
  const Workload workload{.phase = Phase::kDecode, .context_tokens = 100};
  const MemoryUse use = ComputeMemory(MadeUp(), {}, workload, 0);
  EXPECT_EQ(use.kv_cache_bytes, 100 * 110'000 + 1'000'000);
}

TEST(Memory, SharesSequencesOutOverReplicasAndRanks) {
  const Workload workload{.concurrency = 17};
  const MemoryUse one = ComputeMemory(MadeUp(), {}, {.concurrency = 1}, 0);
  // 9 on the fuller replica, 5 on its fuller rank; stages share nothing out.
  const MemoryUse use = ComputeMemory(
      MadeUp(), {.replicas = 2, .pipeline = 3, .attention_dp = 2}, workload, 0);
  EXPECT_EQ(use.kv_cache_bytes, 5 * one.kv_cache_bytes);
}

TEST(Memory, OfAnUnknownNodeAlwaysFits) {
  const MemoryUse use =
      ComputeMemory(MadeUp(), {}, {.concurrency = kMaxConcurrency}, 0);
  EXPECT_TRUE(use.fits);
  EXPECT_EQ(use.available_bytes, 0);
  EXPECT_FALSE(use.max_concurrency.has_value());
}

TEST(Memory, HasNoRoomBesideWeightsThatDoNotFit) {
  const MemoryUse use = ComputeMemory(MadeUp(), {}, {}, 40 * kGB);
  EXPECT_FALSE(use.fits);
  EXPECT_EQ(use.max_concurrency, 0);
}

// The largest concurrency fits, and one more does not.
TEST(Memory, FitsUpToItsLargestConcurrencyAndNoFurther) {
  std::mt19937 random(17);
  int limited = 0;
  for (int i = 0; i < 2000; ++i) {
    Recipe recipe = MadeUp();
    recipe.memory.weights_bytes =
        static_cast<double>(RandomBetween(random, 0, 120)) * 1e9 + 0.5;
    recipe.memory.kv_bytes_per_token =
        static_cast<double>(RandomBetween(random, 1, 1'000'000)) / 3;
    const Plan plan{
        .replicas = static_cast<int>(RandomBetween(random, 1, 4)),
        .pipeline = static_cast<int>(RandomBetween(random, 1, 4)),
        .attention_dp = static_cast<int>(RandomBetween(random, 1, 8))};
    Workload workload{.input_tokens = RandomBetween(random, 1, 100'000),
                      .output_tokens = RandomBetween(random, 1, 100'000)};
    const int64_t gpu_bytes = RandomBetween(random, 24, 192) * kGB;
    const auto at = [&](int64_t concurrency) {
      workload.concurrency = concurrency;
      return ComputeMemory(recipe, plan, workload, gpu_bytes);
    };
    const MemoryUse use = at(1);
    ASSERT_TRUE(use.max_concurrency.has_value());
    const int64_t most = *use.max_concurrency;
    EXPECT_EQ(use.fits, most >= 1);
    EXPECT_TRUE(most == 0 || at(most).fits) << most;
    EXPECT_TRUE(most == kMaxConcurrency || !at(most + 1).fits) << most;
    EXPECT_EQ(at(7).max_concurrency, most);
    limited += most > 0 && most < kMaxConcurrency ? 1 : 0;
  }
  EXPECT_GT(limited, 500);
}

TEST(Memory, OfTheLargestQuestionStaysWithinBounds) {
  Recipe recipe = MadeUp();
  recipe.memory.kv_bytes_per_token = 1e9;
  const MemoryUse use = ComputeMemory(recipe, {},
                                      {.concurrency = kMaxConcurrency,
                                       .input_tokens = kMaxTokens,
                                       .output_tokens = kMaxTokens},
                                      100 * kGB);
  EXPECT_GE(use.total_bytes(), int64_t{1} << 60);
  EXPECT_FALSE(use.fits);
  EXPECT_EQ(use.max_concurrency, 0);
}

}  // namespace
}  // namespace fabricwise
