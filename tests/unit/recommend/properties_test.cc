// SPDX-License-Identifier: Apache-2.0
//
// What must hold of any advice, over all presets and over models that nobody
// trained.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "server/recommend/advice.h"
#include "tests/support/random_model.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

// Fails the test for anything in `advice` that is not a number or that does
// not add up.
void CheckSound(const Advice& advice, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_FALSE(advice.plans.empty());
  for (const PlanAdvice& plan : advice.plans) {
    SCOPED_TRACE(plan.mode);
    double step = 0;
    for (const Term& term : plan.terms) {
      EXPECT_TRUE(std::isfinite(term.seconds)) << term.name;
      EXPECT_GE(term.relative_sigma, 0) << term.name;
      step += term.seconds;
    }
    EXPECT_TRUE(std::isfinite(plan.tpot_seconds));
    EXPECT_TRUE(std::isfinite(plan.tpot_high_seconds));
    EXPECT_GE(plan.tpot_low_seconds.value_or(0), 0);
    EXPECT_TRUE(std::isfinite(plan.ttft_seconds.value_or(0)));
    EXPECT_TRUE(std::isfinite(plan.output_tokens_per_second));
    if (plan.tpot_seconds > 0) {
      EXPECT_NEAR(step / plan.tpot_seconds, 1, 1e-9);
    }
  }
  EXPECT_GE(advice.confidence.probability_first_is_best, 0);
  EXPECT_LE(advice.confidence.probability_first_is_best, 1 + 1e-12);
  EXPECT_TRUE(std::isfinite(advice.confidence.margin_ratio));
  for (const RuledOut& out : advice.ruled_out) {
    EXPECT_FALSE(out.reason.empty()) << out.mode;
  }
  for (const NotAnswerable& plan : advice.not_answerable) {
    EXPECT_FALSE(plan.missing_measurements.empty()) << plan.mode;
    for (const std::string& missing : plan.missing_measurements) {
      EXPECT_TRUE(ParseMeasurementKey(missing).ok()) << missing;
    }
  }
  int64_t before = 0;
  for (const FlipPoint& flip : advice.flip_points) {
    EXPECT_GT(flip.concurrency, before);
    EXPECT_NE(flip.from_mode, flip.to_mode);
    before = flip.concurrency;
  }
}

TEST(AnyPreset, GetsSoundAdviceFromEveryEngineAtAnyConcurrency) {
  const auto profile = SyntheticProfile();
  int answered = 0;
  for (const ModelShape& model : Presets()) {
    for (EngineId engine : AllEngines()) {
      for (int64_t concurrency : {1, 6, 64, 1024}) {
        for (Phase phase :
             {Phase::kSteadyState, Phase::kDecode, Phase::kPrefill}) {
          Question question;
          question.workload.concurrency = concurrency;
          question.workload.phase = phase;
          question.engines = {engine};
          const std::string what = model.name + ", " +
                                   std::string(ToString(engine)) + ", " +
                                   std::string(ToString(phase)) + " at " +
                                   std::to_string(concurrency);
          const auto advice = Recommend(model, question, *profile);
          if (advice.ok()) {
            ++answered;
            CheckSound(*advice, what);
            continue;
          }
          EXPECT_EQ(advice.status().code(),
                    absl::StatusCode::kFailedPrecondition)
              << what << ": " << advice.status();
        }
      }
    }
  }
  EXPECT_GT(answered, 700);
}

TEST(AnyModel, GetsSoundAdviceOnNodesOfAnySize) {
  std::mt19937 random(37);
  std::vector<std::shared_ptr<const Profile>> profiles;
  for (int gpus : {1, 2, 3, 5, 6, 7, 8}) {
    SyntheticNode node;
    node.gpus = gpus;
    node.nvlink = gpus % 2 == 0;
    profiles.push_back(SyntheticProfile(node));
  }
  int answered = 0;
  for (int i = 0; i < 150; ++i) {
    const ModelShape model = RandomModel(random);
    const Profile& profile = *profiles[random() % profiles.size()];
    Question question;
    question.workload.concurrency = int64_t{1} << RandomBetween(random, 0, 19);
    question.workload.input_tokens = int64_t{1} << RandomBetween(random, 0, 24);
    question.workload.output_tokens = int64_t{1}
                                      << RandomBetween(random, 0, 24);
    question.workload.routing_skew = i % 5 == 0 ? 0.8 : 0;
    question.limits.ignore_memory = i % 2 == 0;
    question.scope = i % 3 == 0 ? CostScope::kCommunication : CostScope::kStep;
    question.objective =
        i % 4 == 0 ? Objective::kLatency : Objective::kThroughput;
    const auto advice = Recommend(model, question, profile);
    if (advice.ok()) {
      ++answered;
      CheckSound(*advice, "model " + std::to_string(i));
    } else {
      EXPECT_EQ(advice.status().code(), absl::StatusCode::kFailedPrecondition)
          << advice.status();
    }
  }
  EXPECT_GT(answered, 50);
}

TEST(FlipPoints, AreWhereTheFirstPlanChanges) {
  const auto profile = SyntheticProfile();
  int checked = 0;
  for (const ModelShape& model : Presets()) {
    const std::string& name = model.name;
    for (EngineId engine : AllEngines()) {
      Question question;
      question.engines = {engine};
      question.workload.phase = Phase::kDecode;
      question.max_plans = 1;
      const auto mode_at = [&](int64_t concurrency) {
        question.workload.concurrency = concurrency;
        const auto advice = Recommend(model, question, *profile);
        return advice.ok() ? advice->plans[0].mode : "";
      };
      const auto advice = Recommend(model, question, *profile);
      if (!advice.ok()) continue;  // it does not fit
      for (const FlipPoint& flip : advice->flip_points) {
        EXPECT_EQ(mode_at(flip.concurrency - 1), flip.from_mode)
            << name << " below " << flip.concurrency;
        EXPECT_EQ(mode_at(flip.concurrency), flip.to_mode)
            << name << " at " << flip.concurrency;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 10);
}

TEST(Throughput, OfTheBestPlanGrowsWithConcurrency) {
  const auto profile = SyntheticProfile();
  for (const ModelShape& model : Presets()) {
    double before = 0;
    for (int64_t concurrency = 1; concurrency <= 1024; concurrency *= 2) {
      Question question;
      question.engines = {EngineId::kVllm};
      question.workload.concurrency = concurrency;
      question.workload.phase = Phase::kDecode;
      question.limits.ignore_memory = true;
      question.max_plans = 1;
      const auto advice = Recommend(model, question, *profile);
      ASSERT_TRUE(advice.ok()) << model.name << ": " << advice.status();
      const double now = advice->plans[0].output_tokens_per_second;
      EXPECT_GE(now, 0.99 * before) << model.name << " at " << concurrency;
      before = now;
    }
  }
}

}  // namespace
}  // namespace fabricwise
