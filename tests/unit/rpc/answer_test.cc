// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/answer.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/bad_requests.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;
using ::testing::SizeIs;

v1::SweepConcurrencyRequest GoodSweep() {
  v1::SweepConcurrencyRequest request;
  *request.mutable_question() = GoodRequest();
  return request;
}

TEST(AnswerTest, AGoodQuestionIsAnsweredWithPlansReasonsAndGrounds) {
  v1::RecommendParallelismResponse response;
  const absl::Status status =
      Answer(GoodRequest(), *SampleProfile("sample"), &response);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_GE(response.plans_size(), 2);
  for (const v1::PlanAdvice& plan : response.plans()) {
    EXPECT_FALSE(plan.plan().mode().empty());
    EXPECT_GT(plan.tpot_seconds(), 0);
    double sum = 0;
    for (const v1::Term& term : plan.terms()) sum += term.seconds();
    EXPECT_NEAR(sum, plan.tpot_seconds(), plan.tpot_seconds() * 0.01);
  }
  EXPECT_GE(response.plans(0).output_tokens_per_second(),
            response.plans(1).output_tokens_per_second() * 0.98);
  EXPECT_EQ(response.grounds().profile(), "sample");
  EXPECT_EQ(response.grounds().basis(), response.plans(0).basis());
  EXPECT_EQ(response.model().hidden_size(), 2048);
  EXPECT_TRUE(response.has_confidence());
}

TEST(AnswerTest, TheBasicViewIsTheSameAnswerWithoutItsReasons) {
  const auto profile = SampleProfile("sample");
  v1::RecommendParallelismRequest request = GoodRequest();
  v1::RecommendParallelismResponse full, basic;
  ASSERT_TRUE(Answer(request, *profile, &full).ok());
  request.set_view(v1::ADVICE_VIEW_BASIC);
  ASSERT_TRUE(Answer(request, *profile, &basic).ok());
  for (v1::PlanAdvice& plan : *full.mutable_plans()) plan.clear_terms();
  full.clear_ruled_out();
  full.clear_not_answerable();
  full.clear_flip_points();
  full.clear_model();
  EXPECT_EQ(full.SerializeAsString(), basic.SerializeAsString());
}

TEST(AnswerTest, GivesNoMorePlansThanAskedForAndTheBestOnes) {
  const auto profile = SampleProfile("sample");
  v1::RecommendParallelismRequest request = GoodRequest();
  v1::RecommendParallelismResponse all, one;
  ASSERT_TRUE(Answer(request, *profile, &all).ok());
  request.set_max_plans(1);
  ASSERT_TRUE(Answer(request, *profile, &one).ok());
  ASSERT_EQ(one.plans_size(), 1);
  EXPECT_EQ(one.plans(0).plan().mode(), all.plans(0).plan().mode());
}

TEST(AnswerTest, AResponseMessageCanBeUsedAgain) {
  const auto profile = SampleProfile("sample");
  v1::RecommendParallelismResponse once, twice;
  ASSERT_TRUE(Answer(GoodRequest(), *profile, &once).ok());
  ASSERT_TRUE(Answer(GoodRequest(), *profile, &twice).ok());
  ASSERT_TRUE(Answer(GoodRequest(), *profile, &twice).ok());
  EXPECT_EQ(once.SerializeAsString(), twice.SerializeAsString());
}

TEST(AnswerTest, ModelsAreNamedInThreeWays) {
  v1::Model model;
  model.set_preset("qwen3-30b-a3b");
  const auto preset = ResolveModel(model);
  ASSERT_TRUE(preset.ok()) << preset.status();
  EXPECT_EQ(preset->hidden_size, 2048);
  EXPECT_EQ(preset->name, "Qwen3-30B-A3B");

  const auto shape = ResolveModel(GoodRequest().model());
  ASSERT_TRUE(shape.ok()) << shape.status();

  model.set_hugging_face_config(R"({"model_type": "llama",
    "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336})");
  const auto config = ResolveModel(model);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_key_value_heads, 8);
}

TEST(AnswerTest, AModelsRepositoryIsTheAskersOrElseTheShapes) {
  v1::Model model;
  model.set_preset("qwen3-30b-a3b");
  EXPECT_EQ(ResolveModel(model)->repository, "Qwen/Qwen3-30B-A3B");
  model.set_repository("/models/mine");
  EXPECT_EQ(ResolveModel(model)->repository, "/models/mine");
  model.set_repository(std::string(kMaxRepositoryBytes + 1, 'x'));
  EXPECT_EQ(ResolveModel(model).status(),
            absl::InvalidArgumentError("model.repository is 4097 bytes long; "
                                       "allowed: at most 4096"));
  model.set_repository("--trust-remote-code");
  EXPECT_EQ(ResolveModel(model).status(),
            absl::InvalidArgumentError(
                "model.repository is '--trust-remote-code'; allowed: not to "
                "begin with '-'"));
}

TEST(AnswerTest, BadRequestsAreRefusedByFieldValueAndWhatIsAllowed) {
  const auto profile = SampleProfile("sample");
  for (const BadRequest& bad : BadRequests()) {
    v1::RecommendParallelismResponse response;
    const absl::Status status = Answer(bad.request, *profile, &response);
    EXPECT_EQ(status.code(), bad.code) << bad.what << ": " << status;
    EXPECT_THAT(std::string(status.message()), bad.message) << bad.what;
  }
}

TEST(AnswerTest, WhatHasNoGroundsIsNotAnsweredAndNamesTheMeasurement) {
  v1::RecommendParallelismRequest request = GoodRequest();
  *request.mutable_model()->mutable_shape()->mutable_dense_weights() =
      v1::WeightFormat();
  ProfileData data = SampleProfileData("bare");
  data.measurements.resize(1);
  v1::RecommendParallelismResponse response;
  const absl::Status status =
      Answer(request, **Profile::Build(std::move(data)), &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(::testing::HasSubstr("profile 'bare'"),
                    ::testing::HasSubstr("not measured: ")));
}

TEST(AnswerTest, ASweepAnswersEachConcurrencyInOrder) {
  v1::SweepConcurrencyRequest request = GoodSweep();
  for (const int64_t c : {64, 1, 8}) request.add_concurrencies(c);
  v1::SweepConcurrencyResponse response;
  const absl::Status status =
      Answer(request, *SampleProfile("sample"), &response);
  ASSERT_TRUE(status.ok()) << status;
  std::vector<int64_t> answered;
  for (const v1::SweepPoint& point : response.points()) {
    answered.push_back(point.concurrency());
    EXPECT_THAT(point.plans(), SizeIs(AllOf(Ge(1), Le(3))));
    EXPECT_EQ(point.unanswered(), "");
  }
  EXPECT_THAT(answered, ElementsAre(1, 8, 64));
  for (const v1::FlipPoint& flip : response.flip_points()) {
    EXPECT_GT(flip.concurrency(), 1);
    EXPECT_LE(flip.concurrency(), 64);
  }
  EXPECT_EQ(response.grounds().profile(), "sample");
  EXPECT_EQ(response.model().hidden_size(), 2048);
}

TEST(AnswerTest, ASweepAgreesWithTheSingleQuestions) {
  const auto profile = SampleProfile("sample");
  v1::SweepConcurrencyResponse sweep;
  ASSERT_TRUE(Answer(GoodSweep(), *profile, &sweep).ok());
  ASSERT_EQ(sweep.points_size(), 10) << "1, 2, 4 ... 512";
  for (const v1::SweepPoint& point : sweep.points()) {
    v1::RecommendParallelismRequest request = GoodRequest();
    request.mutable_workload()->set_concurrency(point.concurrency());
    v1::RecommendParallelismResponse single;
    ASSERT_TRUE(Answer(request, *profile, &single).ok());
    EXPECT_EQ(point.plans(0).plan().mode(), single.plans(0).plan().mode())
        << point.concurrency();
  }
}

// Stops `asked` at each of `allowed` looks at whether to go on.
template <typename Response>
void ExpectStops(const Asked& asked, PlanSpace& space,
                 std::initializer_list<int> allowed) {
  for (const int looks : allowed) {
    int looked = 0;
    Response response;
    const absl::Status status = Answer(
        asked, space,
        [&] {
          return looked++ < looks ? absl::OkStatus()
                                  : absl::DeadlineExceededError("late");
        },
        &response);
    EXPECT_EQ(status, absl::DeadlineExceededError("late"));
    EXPECT_EQ(looked, looks + 1);
  }
}

TEST(AnswerTest, ARecommendationEndsWhereItMayNotProceed) {
  const auto profile = SampleProfile("sample", 8);
  v1::RecommendParallelismRequest request = GoodRequest();
  request.set_view(v1::ADVICE_VIEW_FULL);
  const auto asked = AskedIn(request);
  ASSERT_TRUE(asked.ok()) << asked.status();
  const auto model = ResolveModel(request.model());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto space =
      PlanSpace::Create(*model, ScopeOf(asked->question), *profile);
  ASSERT_TRUE(space.ok()) << space.status();
  ExpectStops<v1::RecommendParallelismResponse>(*asked, **space, {0, 1, 3});
  // What was left in the middle does no harm.
  v1::RecommendParallelismResponse late, alone;
  ASSERT_TRUE(Answer(
                  *asked, **space, [] { return absl::OkStatus(); }, &late)
                  .ok());
  ASSERT_TRUE(Answer(request, *profile, &alone).ok());
  EXPECT_TRUE(late.SerializeAsString() == alone.SerializeAsString());
}

TEST(AnswerTest, ASweepEndsWhereItMayNotProceed) {
  const auto profile = SampleProfile("sample");
  const v1::SweepConcurrencyRequest request = GoodSweep();
  const auto asked = AskedIn(request);
  ASSERT_TRUE(asked.ok()) << asked.status();
  const auto model = ResolveModel(request.question().model());
  ASSERT_TRUE(model.ok()) << model.status();
  const auto space =
      PlanSpace::Create(*model, ScopeOf(asked->question), *profile);
  ASSERT_TRUE(space.ok()) << space.status();
  ExpectStops<v1::SweepConcurrencyResponse>(*asked, **space, {0, 1, 9, 10});
}

TEST(AnswerTest, BadSweepsAreRefused) {
  struct Case {
    std::vector<int64_t> concurrencies;
    const char* message;
  };
  const auto profile = SampleProfile("sample");
  for (const Case& c : {
           Case{{0}, "concurrencies is 0; allowed: 1 to 1000000"},
           Case{{1, 1'000'000'000},
                "concurrencies is 1000000000; allowed: 1 to 1000000"},
           Case{{4, 2, 4},
                "concurrencies is 4 given twice; allowed: each "
                "number once"},
           Case{std::vector<int64_t>(65, 1),
                "concurrencies is 65 numbers; allowed: at most 64"},
       }) {
    v1::SweepConcurrencyRequest request = GoodSweep();
    for (const int64_t n : c.concurrencies) request.add_concurrencies(n);
    v1::SweepConcurrencyResponse response;
    const absl::Status status = Answer(request, *profile, &response);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
  v1::SweepConcurrencyResponse response;
  EXPECT_EQ(
      Answer(v1::SweepConcurrencyRequest(), *profile, &response).message(),
      "question is absent; allowed: a question with model and workload");
  for (const BadRequest& bad : BadRequests()) {
    // A sweep has its own concurrencies.
    if (absl::StrContains(bad.what, "concurrency")) continue;
    v1::SweepConcurrencyRequest request;
    *request.mutable_question() = bad.request;
    EXPECT_EQ(Answer(request, *profile, &response).code(), bad.code)
        << bad.what;
  }
}

TEST(AnswerTest, TheShippedShapesAreListedByName) {
  v1::ListModelsResponse response;
  ListModels(&response);
  ASSERT_EQ(response.models_size(), 34);
  for (int i = 0; i < response.models_size(); ++i) {
    v1::Model model;
    *model.mutable_shape() = response.models(i);
    EXPECT_TRUE(ResolveModel(model).ok()) << response.models(i).name();
    model.set_preset(response.models(i).name());
    EXPECT_TRUE(ResolveModel(model).ok()) << response.models(i).name();
  }
}

}  // namespace
}  // namespace fabricwise
