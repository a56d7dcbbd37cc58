// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/plan_space.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/recommend/enumerate.h"

namespace fabricwise {
namespace {

static_assert(kScoreParts == kStepParts);

// Sequences in flight that steps of a plan can decode.
int64_t MaxStepConcurrency(const Recipe& recipe, const Plan& plan) {
  if (recipe.max_rank_sequences == 0) return kMaxConcurrency;
  return recipe.max_rank_sequences * plan.replicas * plan.pipeline *
         plan.attention_dp;
}

}  // namespace

PlanScope ScopeOf(const Question& question) {
  return {.engines = question.engines,
          .gpus = question.gpus,
          .options = question.options,
          .cost = question.scope,
          .routing_skew = question.workload.routing_skew,
          .extra_all_reduces = question.workload.extra_all_reduces,
          .host_seconds_per_step = question.host_seconds_per_step};
}

absl::StatusOr<std::unique_ptr<PlanSpace>> PlanSpace::Create(
    const ModelShape& model, const PlanScope& scope, const Profile& profile) {
  RETURN_IF_ERROR(Validate(model));
  if (scope.gpus.count > profile.gpu_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gpus.count is ", scope.gpus.count, "; allowed: 1 to ",
        profile.gpu_count(), ", the GPUs of profile '", profile.name(), "'"));
  }
  for (const int index : scope.gpus.indices) {
    if (index < profile.gpu_count()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "gpus.indices is ", index, "; allowed: 0 to ", profile.gpu_count() - 1,
        ", the GPUs of profile '", profile.name(), "'"));
  }
  if (profile.gpu_count() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("profile '", profile.name(), "' names no GPU"));
  }
  return absl::WrapUnique(new PlanSpace(model, scope, profile));
}

PlanSpace::PlanSpace(const ModelShape& model, const PlanScope& scope,
                     const Profile& profile)
    : model_(model),
      scope_(scope),
      profile_(profile),
      placer_(profile.topology(), scope.gpus.indices),
      pricer_(profile, scope.cost, scope.routing_skew) {
  const std::vector<Gpu>& gpus = profile.fingerprint().gpus;
  const std::vector<int>& named = scope.gpus.indices;
  const int usable =
      named.empty() ? profile.gpu_count() : static_cast<int>(named.size());
  for (int i = 0; i < usable; ++i) {
    const int index = named.empty() ? i : named[static_cast<size_t>(i)];
    const int64_t bytes = gpus[static_cast<size_t>(index)].memory_bytes;
    gpu_memory_bytes_ =
        gpu_memory_bytes_ == 0 ? bytes : std::min(gpu_memory_bytes_, bytes);
  }
  const absl::Span<const EngineId> engines =
      scope_.engines.empty() ? ServingEngines()
                             : absl::MakeConstSpan(scope_.engines);
  const std::vector<int> counts = scope_.gpus.count > 0
                                      ? std::vector<int>{scope_.gpus.count}
                                      : GpuCounts(usable);
  for (EngineId id : engines) {
    for (int count : counts) AddPlans(GetEngine(id), count);
  }
  for (size_t i = 0; i < candidates_.size(); ++i) {
    std::optional<size_t>& faster = contestants_[i].faster;
    for (size_t j = 0; j < candidates_.size(); ++j) {
      const int replicas = candidates_[j].plan.replicas;
      // Where halves of a batch begin to overlap, times may fall.
      if (candidates_[j].plan.two_batch_overlap) continue;
      if (candidates_[j].replica == candidates_[i].replica &&
          replicas > candidates_[i].plan.replicas &&
          (!faster || replicas < candidates_[*faster].plan.replicas)) {
        faster = j;
      }
    }
  }
}

void PlanSpace::AddPlans(const Engine& engine, int gpu_count) {
  for (const Plan& plan :
       EnumeratePlans(model_, engine, gpu_count, scope_.options)) {
    const Placement& placement = placer_.At(plan);
    const std::vector<int>& gpus = placement.replicas.front();
    if (auto refusal =
            engine.Refusal(model_, plan, profile_.fingerprint(), gpus)) {
      refused_.push_back({engine.id(), ModeName(plan), *std::move(refusal)});
      continue;
    }
    const Replica& replica = FindReplica(engine, plan, gpus);
    candidates_.push_back(
        {.replica = &replica,
         .placement = &placement,
         .plan = plan,
         .rank_work = RankWorkOf(replica, plan),
         .max_step_concurrency = MaxStepConcurrency(replica.recipe, plan),
         .graph_answerable =
             Pricer::MayBeAnswerable(*replica.bound, Launch::kGraph),
         .eager_answerable =
             Pricer::MayBeAnswerable(*replica.bound, Launch::kEager)});
    contestants_.push_back(
        {.plan = plan,
         .gpus = plan.gpus(),
         // Of equally simple plans those of an engine whose
         // rules are in no doubt come first.
         .complexity = 2 * Complexity(plan) + (engine.caveat().empty() ? 0 : 1),
         .parts = PartsOf(replica, plan)});
  }
}

const PlanSpace::Replica& PlanSpace::FindReplica(const Engine& engine,
                                                 Plan plan,
                                                 absl::Span<const int> gpus) {
  const int at_once = profile_.MeasuresContention() ? plan.replicas : 1;
  plan.replicas = 1;
  for (const Replica& replica : replicas_) {
    if (replica.engine == &engine && replica.recipe.plan == plan &&
        replica.gpus == gpus && replica.at_once == at_once) {
      return replica;
    }
  }
  Replica& replica = replicas_.emplace_back(Replica{
      .engine = &engine,
      .gpus = gpus,
      .at_once = at_once,
      .recipe = engine.MakeRecipe(model_, plan, profile_.fingerprint(), gpus)});
  Recipe& recipe = replica.recipe;
  if (scope_.host_seconds_per_step >= 0) {
    recipe.host_seconds = scope_.host_seconds_per_step;
  }
  if (scope_.extra_all_reduces > 0) AddAllReduces(recipe);
  Site site = SiteOf(plan, gpus, profile_);
  site.replicas = at_once;
  replica.bound = pricer_.Bind(recipe, site);
  return replica;
}

// Numbers of a plan's parts, as Contestant has them. A pipeline's do not add up
// to its time; nor do those of half batches that overlap.
std::array<int, kScoreParts> PlanSpace::PartsOf(const Replica& replica,
                                                const Plan& plan) {
  std::array<int, kScoreParts> numbers = {};
  if (plan.pipeline > 1 || plan.two_batch_overlap) return numbers;
  const Pricer::PartIds ids = Pricer::Parts(*replica.bound);
  for (size_t part = 0; part < kScoreParts; ++part) {
    const SharedPart shared{ids[part], plan.replicas, plan.attention_dp,
                            replica.recipe.chunk_tokens,
                            replica.recipe.mixed_steps};
    const auto known =
        std::find(shared_parts_.begin(), shared_parts_.end(), shared);
    numbers[part] = static_cast<int>(known - shared_parts_.begin()) + 1;
    if (known == shared_parts_.end()) shared_parts_.push_back(shared);
  }
  return numbers;
}

size_t PlanSpace::RankWorkOf(const Replica& replica, const Plan& plan) {
  for (size_t i = 0; i < rank_works_.size(); ++i) {
    const auto& [other, other_plan] = rank_works_[i];
    if (plan.replicas == other_plan.replicas &&
        plan.pipeline == other_plan.pipeline &&
        plan.attention_dp == other_plan.attention_dp &&
        plan.attention_tp == other_plan.attention_tp &&
        replica.recipe.chunk_tokens == other->recipe.chunk_tokens &&
        replica.recipe.mixed_steps == other->recipe.mixed_steps &&
        Pricer::SameOwnWork(*replica.bound, *other->bound)) {
      return i;
    }
  }
  rank_works_.emplace_back(&replica, plan);
  return rank_works_.size() - 1;
}

// All-reduces that the asker saw beside the model's own.
void PlanSpace::AddAllReduces(Recipe& recipe) const {
  for (const CollectiveUse& use : recipe.collectives) {
    if (use.steps.front().op != CollectiveOp::kAllReduce) continue;
    CollectiveUse extra = use;
    extra.name = "all_reduce extra";
    extra.section = Section::kLayers;
    extra.count = static_cast<double>(scope_.extra_all_reduces);
    recipe.collectives.push_back(std::move(extra));
    return;
  }
}

}  // namespace fabricwise
