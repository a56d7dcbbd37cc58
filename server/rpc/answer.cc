// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/answer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/domain/workload.h"
#include "server/profile/model_config.h"
#include "server/profile/preset.h"
#include "server/recommend/advice.h"
#include "server/rpc/convert.h"

namespace fabricwise {
namespace {

// What advisor.proto allows and promises.
constexpr int kMaxConcurrencies = 64;
constexpr int64_t kDefaultSweepEnd = 512;

absl::StatusOr<std::vector<int64_t>> Concurrencies(
    const v1::SweepConcurrencyRequest& request) {
  std::vector<int64_t> concurrencies(request.concurrencies().begin(),
                                     request.concurrencies().end());
  if (concurrencies.empty()) {
    for (int64_t c = 1; c <= kDefaultSweepEnd; c *= 2) {
      concurrencies.push_back(c);
    }
    return concurrencies;
  }
  if (concurrencies.size() > kMaxConcurrencies) {
    return NotAllowed("concurrencies",
                      absl::StrCat(concurrencies.size(), " numbers"),
                      absl::StrCat("at most ", kMaxConcurrencies));
  }
  for (const int64_t c : concurrencies) {
    RETURN_IF_ERROR(
        CheckRange("concurrencies", c, int64_t{1}, kMaxConcurrency));
  }
  std::sort(concurrencies.begin(), concurrencies.end());
  const auto twice =
      std::adjacent_find(concurrencies.begin(), concurrencies.end());
  if (twice != concurrencies.end()) {
    return NotAllowed("concurrencies", absl::StrCat(*twice, " given twice"),
                      "each number once");
  }
  return concurrencies;
}

absl::StatusOr<ModelShape> ResolveShape(const v1::Model& model) {
  switch (model.source_case()) {
    case v1::Model::kShape: {
      ASSIGN_OR_RETURN(ModelShape shape, FromProto(model.shape()));
      RETURN_IF_ERROR(Validate(shape));
      return shape;
    }
    case v1::Model::kPreset: {
      ASSIGN_OR_RETURN(const ModelShape* shape, FindPreset(model.preset()));
      return *shape;
    }
    case v1::Model::kHuggingFaceConfig: {
      auto shape =
          ParseHuggingFaceConfig(model.hugging_face_config(), "config.json");
      if (shape.ok()) return shape;
      return absl::Status(shape.status().code(),
                          absl::StrCat("model.hugging_face_config: ",
                                       shape.status().message()));
    }
    case v1::Model::SOURCE_NOT_SET:
      break;
  }
  return NotAllowed("model", "absent",
                    "one of shape, preset, hugging_face_config");
}

}  // namespace

absl::StatusOr<ModelShape> ResolveModel(const v1::Model& model) {
  ASSIGN_OR_RETURN(ModelShape shape, ResolveShape(model));
  if (model.repository().empty()) return shape;
  shape.repository = model.repository();
  RETURN_IF_ERROR(Validate(shape));
  return shape;
}

absl::StatusOr<Asked> AskedIn(const v1::RecommendParallelismRequest& request) {
  Asked asked;
  ASSIGN_OR_RETURN(asked.view, ViewFromProto(request.view()));
  ASSIGN_OR_RETURN(asked.question, QuestionFromProto(request));
  asked.question.explain = asked.view == v1::ADVICE_VIEW_FULL;
  RETURN_IF_ERROR(Validate(asked.question));
  return asked;
}

absl::StatusOr<Asked> AskedIn(const v1::SweepConcurrencyRequest& request) {
  if (!request.has_question()) {
    return NotAllowed("question", "absent",
                      "a question with model and workload");
  }
  Asked asked;
  ASSIGN_OR_RETURN(asked.view, ViewFromProto(request.question().view()));
  ASSIGN_OR_RETURN(asked.concurrencies, Concurrencies(request));
  ASSIGN_OR_RETURN(asked.question, QuestionFromProto(request.question()));
  asked.question.workload.concurrency = asked.concurrencies.front();
  RETURN_IF_ERROR(Validate(asked.question));
  return asked;
}

absl::Status Answer(const Asked& asked, PlanSpace& space,
                    absl::FunctionRef<absl::Status()> proceed,
                    v1::RecommendParallelismResponse* response) {
  ASSIGN_OR_RETURN(const Advice advice,
                   Recommend(space, asked.question, proceed));

  response->Clear();
  response->mutable_plans()->Reserve(static_cast<int>(advice.plans.size()));
  for (const PlanAdvice& plan : advice.plans) {
    ToProto(plan, asked.view, response->add_plans());
  }
  if (asked.view == v1::ADVICE_VIEW_FULL) {
    for (const RuledOut& ruled_out : advice.ruled_out) {
      ToProto(ruled_out, response->add_ruled_out());
    }
    for (const NotAnswerable& not_answerable : advice.not_answerable) {
      ToProto(not_answerable, response->add_not_answerable());
    }
    ToProto(space.model(), response->mutable_model());
  }
  for (const FlipPoint& flip : advice.flip_points) {
    ToProto(flip, response->add_flip_points());
  }
  GroundsToProto(space.profile(), advice.plans.front().basis,
                 response->mutable_grounds());
  ToProto(advice.confidence, response->mutable_confidence());
  return absl::OkStatus();
}

absl::Status Answer(const Asked& asked, PlanSpace& space,
                    absl::FunctionRef<absl::Status()> proceed,
                    v1::SweepConcurrencyResponse* response) {
  ASSIGN_OR_RETURN(const SweepAdvice advice,
                   Sweep(space, asked.question, asked.concurrencies, proceed));

  response->Clear();
  Standing basis = Standing::kMeasured;
  for (const SweepAdvice::Point& point : advice.points) {
    v1::SweepPoint* out = response->add_points();
    out->set_concurrency(point.concurrency);
    for (const PlanAdvice& plan : point.plans) {
      ToProto(plan, asked.view, out->add_plans());
    }
    out->set_unanswered(point.unanswered);
    if (!point.plans.empty()) basis = Worse(basis, point.plans.front().basis);
  }
  for (const FlipPoint& flip : advice.flip_points) {
    ToProto(flip, response->add_flip_points());
  }
  GroundsToProto(space.profile(), basis, response->mutable_grounds());
  if (asked.view == v1::ADVICE_VIEW_FULL) {
    ToProto(space.model(), response->mutable_model());
  }
  return absl::OkStatus();
}

absl::Status Answer(const v1::RecommendParallelismRequest& request,
                    const Profile& profile,
                    v1::RecommendParallelismResponse* response) {
  ASSIGN_OR_RETURN(const Asked asked, AskedIn(request));
  ASSIGN_OR_RETURN(const ModelShape model, ResolveModel(request.model()));
  ASSIGN_OR_RETURN(const auto space,
                   PlanSpace::Create(model, ScopeOf(asked.question), profile));
  return Answer(
      asked, *space, [] { return absl::OkStatus(); }, response);
}

absl::Status Answer(const v1::SweepConcurrencyRequest& request,
                    const Profile& profile,
                    v1::SweepConcurrencyResponse* response) {
  ASSIGN_OR_RETURN(const Asked asked, AskedIn(request));
  ASSIGN_OR_RETURN(const ModelShape model,
                   ResolveModel(request.question().model()));
  ASSIGN_OR_RETURN(const auto space,
                   PlanSpace::Create(model, ScopeOf(asked.question), profile));
  return Answer(
      asked, *space, [] { return absl::OkStatus(); }, response);
}

void ListModels(v1::ListModelsResponse* response) {
  response->Clear();
  for (const ModelShape& shape : Presets()) {
    ToProto(shape, response->add_models());
  }
}

}  // namespace fabricwise
