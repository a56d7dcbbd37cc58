// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "server/recommend/advice.h"
#include "server/recommend/ranking.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const ModelShape& Preset(const std::string& name) { return **FindPreset(name); }

Question Asked() {
  Question question;
  question.engines = {EngineId::kVllm};
  return question;
}

// But for which of equals is first.
TEST(Sweep, AnswersAsSingleQuestionsDo) {
  const auto profile = SyntheticProfile();
  for (const char* name : {"Qwen3-30B-A3B", "Llama-3.1-70B", "Kimi-K2.5"}) {
    Question question = Asked();
    question.max_plans = kMaxPlans;
    const std::vector<int64_t> concurrencies = {1, 7, 64, 500};
    const auto sweep = Sweep(Preset(name), question, concurrencies, *profile);
    ASSERT_TRUE(sweep.ok()) << sweep.status();
    ASSERT_THAT(sweep->points, SizeIs(concurrencies.size()));
    for (const SweepAdvice::Point& point : sweep->points) {
      question.workload.concurrency = point.concurrency;
      const auto advice = Recommend(Preset(name), question, *profile);
      ASSERT_EQ(advice.ok(), !point.plans.empty());
      if (!advice.ok()) continue;
      ASSERT_THAT(point.plans,
                  SizeIs(std::min<size_t>(3, advice->plans.size())));
      for (const PlanAdvice& plan : point.plans) {
        const auto same = std::find_if(
            advice->plans.begin(), advice->plans.end(),
            [&](const PlanAdvice& other) { return other.mode == plan.mode; });
        ASSERT_NE(same, advice->plans.end()) << plan.mode;
        EXPECT_EQ(plan.tpot_seconds, same->tpot_seconds);
        EXPECT_EQ(plan.ttft_seconds, same->ttft_seconds);
      }
      const PlanAdvice& first = point.plans[0];
      if (first.mode != advice->plans[0].mode) {
        EXPECT_GE(first.output_tokens_per_second * (1 + kTieRatio),
                  advice->plans[0].output_tokens_per_second);
      }
    }
  }
}

TEST(Sweep, SortsConcurrenciesAndAsksEachOnce) {
  const std::vector<int64_t> concurrencies = {64, 1, 8, 8, 1};
  const auto sweep = Sweep(Preset("Llama-3.1-8B"), Asked(), concurrencies,
                           *SyntheticProfile());
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  std::vector<int64_t> asked;
  for (const auto& point : sweep->points) asked.push_back(point.concurrency);
  EXPECT_EQ(asked, (std::vector<int64_t>{1, 8, 64}));
}

TEST(Sweep, IgnoresTheQuestionsOwnConcurrency) {
  const std::vector<int64_t> concurrencies = {4};
  for (int64_t own : {int64_t{0}, int64_t{-7}, kMaxConcurrency * 2}) {
    Question question = Asked();
    question.workload.concurrency = own;
    const auto sweep = Sweep(Preset("Llama-3.1-8B"), question, concurrencies,
                             *SyntheticProfile());
    ASSERT_TRUE(sweep.ok()) << sweep.status();
    EXPECT_EQ(sweep->points[0].concurrency, 4);
    EXPECT_THAT(sweep->flip_points, IsEmpty());
  }
}

TEST(Sweep, RefusesConcurrenciesThatNobodyCanHave) {
  const auto refusal = [](const std::vector<int64_t>& concurrencies) {
    const auto sweep = Sweep(Preset("Llama-3.1-8B"), Asked(), concurrencies,
                             *SyntheticProfile());
    EXPECT_EQ(sweep.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(sweep.status().message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("concurrencies is empty"));
  EXPECT_THAT(refusal({1, 0}), HasSubstr("workload.concurrency is 0"));
  EXPECT_THAT(refusal({1, kMaxConcurrency + 1}),
              HasSubstr("workload.concurrency is 1000001"));
}

TEST(Sweep, FindsFlipsWithinItsRangeOnly) {
  const auto profile = SyntheticProfile();
  const ModelShape& model = Preset("Qwen3-30B-A3B");
  const std::vector<int64_t> whole = {1, 1024}, part = {40, 600};
  const auto all = Sweep(model, Asked(), whole, *profile);
  const auto some = Sweep(model, Asked(), part, *profile);
  ASSERT_TRUE(all.ok() && some.ok());
  ASSERT_FALSE(all->flip_points.empty());
  for (const FlipPoint& flip : some->flip_points) {
    EXPECT_GT(flip.concurrency, 40);
    EXPECT_LE(flip.concurrency, 600);
  }
}

// Whatever was asked for: points close by, and ranges without a flip.
TEST(Sweep, NamesAtEachPointWhatItsFlipsLeadTo) {
  std::mt19937 random(11);
  const auto profile = SyntheticProfile();
  int flips = 0, still = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    Question question = Asked();
    if (i % 2 == 0) question.engines = {EngineId::kVllm, EngineId::kSglang};
    std::vector<int64_t> some(2 + random() % 12);
    int64_t concurrency = 1 + static_cast<int64_t>(random() % 300);
    for (int64_t& one : some) {
      one = concurrency;
      concurrency += 1 + static_cast<int64_t>(random() % (i % 3 == 0 ? 2 : 40));
    }
    const auto sweep = Sweep(Preset("Qwen3-30B-A3B"), question, some, *profile);
    ASSERT_TRUE(sweep.ok()) << sweep.status();
    flips += static_cast<int>(sweep->flip_points.size());
    still += sweep->flip_points.empty() ? 1 : 0;
    std::string mode = sweep->points.front().plans.at(0).mode;
    auto flip = sweep->flip_points.begin();
    for (const SweepAdvice::Point& point : sweep->points) {
      for (; flip != sweep->flip_points.end() &&
             flip->concurrency <= point.concurrency;
           ++flip) {
        EXPECT_EQ(flip->from_mode, mode);
        mode = flip->to_mode;
      }
      EXPECT_EQ(point.plans.at(0).mode, mode) << point.concurrency;
    }
  }
  EXPECT_GT(flips, 20);
  EXPECT_GT(still, 20);
}

TEST(Sweep, SaysWhyAPointHasNoAnswer) {
  SyntheticNode node;
  node.memory_bytes = 96'000'000'000;
  const auto profile = SyntheticProfile(node);
  const std::vector<int64_t> concurrencies = {1, 100'000};
  const auto sweep =
      Sweep(Preset("Llama-3.1-70B"), Asked(), concurrencies, *profile);
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_THAT(sweep->points[0].unanswered, IsEmpty());
  EXPECT_THAT(sweep->points[1].plans, IsEmpty());
  EXPECT_THAT(sweep->points[1].unanswered, HasSubstr("no plan can run"));

  const std::vector<int64_t> none = {100'000};
  EXPECT_EQ(
      Sweep(Preset("Llama-3.1-70B"), Asked(), none, *profile).status().code(),
      absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fabricwise
