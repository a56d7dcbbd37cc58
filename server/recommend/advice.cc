// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/advice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/base/status_macros.h"
#include "server/model/load.h"
#include "server/model/pricer.h"
#include "server/model/steady_state.h"
#include "server/recommend/confidence.h"
#include "server/recommend/enumerate.h"
#include "server/recommend/placement.h"
#include "server/recommend/ranking.h"

namespace fabricwise {
namespace {

// Flip points are looked for up to here, or to the asked concurrency.
constexpr int64_t kFlipRange = 1024;
// Plans of which the first's confidence is taken: as many of those that meet
// the limits, and of those that miss one.
constexpr size_t kCompared = 9;

static_assert(kScoreParts == kStepParts);

constexpr size_t kSweepPlans = 3;
constexpr size_t kNamedInErrors = 4;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What replicas of a plan have in common: one replica, and what its step costs
// at each number of sequences asked so far.
struct Replica {
  const Engine* engine;
  absl::Span<const int> gpus;
  int at_once;  // such replicas, where that makes a difference
  Recipe recipe;
  std::shared_ptr<const Pricer::Bound> bound;
  std::vector<std::pair<int64_t, SteadyPrice>> prices;  // ascending sequences
};

struct Candidate {
  Replica* replica;
  const Placement* placement;
  Plan plan;
  int64_t max_concurrency;       // that fits in memory
  int64_t max_step_concurrency;  // that the engine takes in its steps

  const Engine& engine() const { return *replica->engine; }
  std::string mode() const { return ModeName(plan); }
};

// What a plan does at one concurrency.
struct Outcome {
  const Candidate* candidate = nullptr;
  StepPrice price;
  double seconds = 0;  // of what the objective wants short
  std::array<double, kStepParts> part_seconds = {};
  double cost = 0;  // what the objective wants least of
  double tpot_seconds = 0;
  double tokens_per_second = 0;
  std::optional<double> ttft_seconds;
  bool answerable = true;
  bool misses = false;
};

std::string Gibibytes(int64_t bytes) {
  return absl::StrFormat(
      "%.1f GiB", static_cast<double>(bytes) / static_cast<double>(1 << 30));
}

std::string MemoryReason(const MemoryUse& use) {
  const int64_t fixed = use.total_bytes() - use.kv_cache_bytes;
  std::string reason =
      absl::StrCat("needs ", Gibibytes(use.total_bytes()), " per GPU (weights ",
                   Gibibytes(use.weights_bytes), ", KV cache ",
                   Gibibytes(use.kv_cache_bytes), ", other ",
                   Gibibytes(use.activation_bytes + use.communicator_bytes),
                   "); usable ", Gibibytes(use.available_bytes));
  if (fixed < use.available_bytes && use.max_concurrency.value_or(0) > 0) {
    absl::StrAppend(&reason, "; fits up to concurrency ", *use.max_concurrency);
  }
  return reason;
}

// Sequences in flight that steps of a plan can decode.
int64_t MaxStepConcurrency(const Recipe& recipe, const Plan& plan) {
  if (recipe.max_rank_sequences == 0) return kMaxConcurrency;
  return recipe.max_rank_sequences * plan.replicas * plan.pipeline *
         plan.attention_dp;
}

std::string StepReason(const Candidate& candidate) {
  return absl::StrCat("a rank decodes at most ",
                      candidate.replica->recipe.max_rank_sequences,
                      " sequences in a step: up to concurrency ",
                      candidate.max_step_concurrency);
}

// One question over one profile, at any number of concurrencies.
class Advisor {
 public:
  Advisor(const ModelShape& model, const Question& question,
          const Profile& profile)
      : model_(model),
        question_(question),
        profile_(profile),
        placer_(profile.topology(), question.gpus.indices),
        pricer_(profile, question.scope, question.workload.routing_skew) {
    if (auto running = ParseMode(question.current_mode, model.is_moe());
        running.ok()) {
      running_ = *running;
    }
    const std::vector<Gpu>& gpus = profile.fingerprint().gpus;
    const std::vector<int>& named = question.gpus.indices;
    const int usable =
        named.empty() ? profile.gpu_count() : static_cast<int>(named.size());
    for (int i = 0; i < usable; ++i) {
      const int index = named.empty() ? i : named[static_cast<size_t>(i)];
      const int64_t bytes = gpus[static_cast<size_t>(index)].memory_bytes;
      gpu_memory_bytes_ =
          gpu_memory_bytes_ == 0 ? bytes : std::min(gpu_memory_bytes_, bytes);
    }
    const absl::Span<const EngineId> engines =
        question.engines.empty() ? ServingEngines()
                                 : absl::MakeConstSpan(question.engines);
    const std::vector<int> counts = question.gpus.count > 0
                                        ? std::vector<int>{question.gpus.count}
                                        : GpuCounts(usable);
    for (EngineId id : engines) {
      for (int count : counts) AddPlans(GetEngine(id), count);
    }
  }

  // All that can be costed and may run at `concurrency`, best first. What
  // cannot goes to `ruled_out` and `not_answerable`.
  std::vector<Outcome> Rank(int64_t concurrency,
                            std::vector<RuledOut>& ruled_out,
                            std::vector<NotAnswerable>& not_answerable) {
    std::vector<Outcome> ranked;
    std::vector<Score> scores;
    for (const Candidate& candidate : candidates_) {
      Score& score = scores.emplace_back();
      if (!MayRun(candidate, concurrency)) {
        ruled_out.push_back(
            {candidate.engine().id(), candidate.mode(),
             concurrency > candidate.max_step_concurrency
                 ? StepReason(candidate)
                 : MemoryReason(Memory(candidate, concurrency))});
        continue;
      }
      Outcome outcome = Evaluate(candidate, concurrency);
      if (!outcome.answerable) {
        not_answerable.push_back({candidate.engine().id(), candidate.mode(),
                                  Missing(candidate, concurrency)});
        continue;
      }
      score = ScoreOf(outcome);
      ranked.push_back(outcome);
    }
    const std::optional<size_t> first = First(contestants_, scores);
    if (!first.has_value()) return ranked;
    std::stable_sort(ranked.begin(), ranked.end(), Better);
    const auto best =
        std::find_if(ranked.begin(), ranked.end(), [&](const Outcome& outcome) {
          return outcome.candidate == &candidates_[*first];
        });
    std::rotate(ranked.begin(), best, best + 1);
    return ranked;
  }

  PlanAdvice Explain(const Outcome& outcome, int64_t concurrency) {
    const Candidate& candidate = *outcome.candidate;
    const Workload workload = At(concurrency);
    PlanAdvice advice{.engine = candidate.engine().id(),
                      .plan = candidate.plan,
                      .mode = candidate.mode(),
                      .tpot_seconds = outcome.tpot_seconds,
                      .ttft_seconds = outcome.ttft_seconds,
                      .output_tokens_per_second = outcome.tokens_per_second,
                      .memory = Memory(candidate, concurrency),
                      .basis = outcome.price.standing,
                      .caveat = candidate.engine().caveat()};
    if (question_.explain) advice.terms = Terms(candidate, workload);
    const double spread = kDeviate90 * RelativeSigma(outcome);
    if (!outcome.price.upper_bound) {
      advice.tpot_low_seconds =
          outcome.tpot_seconds * std::max(0.0, 1 - spread);
    }
    advice.tpot_high_seconds = outcome.tpot_seconds * (1 + spread);
    advice.launch =
        candidate.engine().Launch(model_, candidate.plan, workload,
                                  profile_.fingerprint(), *candidate.placement);
    if (profile_.topology().kind_count() > 1 ||
        !question_.gpus.indices.empty()) {
      advice.placement = *candidate.placement;
    }
    AddMisses(advice);
    return advice;
  }

  Confidence ComputeConfidence(const std::vector<Outcome>& ranked) const {
    Confidence confidence{.model_residual_ratio = Residual()};
    std::vector<Uncertain> values;
    size_t meeting = 0, missing = 0;
    for (const Outcome& outcome : ranked) {
      size_t& alike = outcome.misses ? missing : meeting;
      if (++alike > kCompared) continue;
      values.push_back({outcome.cost, outcome.cost * RelativeSigma(outcome),
                        CostLimit(outcome)});
    }
    confidence.probability_first_is_best = ProbabilityFirstIsBest(values);
    if (ranked.size() > 1 && ranked[0].misses == ranked[1].misses &&
        ranked[0].cost > 0) {
      confidence.margin_ratio = ranked[1].cost / ranked[0].cost - 1;
    }
    return confidence;
  }

  // Concurrencies in (low, high] at which the best mode changes.
  std::vector<FlipPoint> FlipPoints(int64_t low, int64_t high) {
    std::vector<FlipPoint> flips;
    for (const Change& change :
         FindChanges(contestants_, low, high,
                     [this](size_t candidate, int64_t concurrency) {
                       return ScoreAt(candidates_[candidate], concurrency);
                     })) {
      flips.push_back({change.concurrency, ModeOf(change.from),
                       ModeOf(change.to), EngineOf(change.from),
                       EngineOf(change.to)});
    }
    return flips;
  }

  std::vector<RuledOut>& refused() { return refused_; }

  // Why there is no plan at all.
  absl::Status NoPlan(const std::vector<RuledOut>& ruled_out,
                      const std::vector<NotAnswerable>& not_answerable) const {
    if (!not_answerable.empty()) {
      std::vector<std::string> missing;
      for (const NotAnswerable& plan : not_answerable) {
        for (const std::string& one : plan.missing_measurements) {
          if (std::find(missing.begin(), missing.end(), one) == missing.end()) {
            missing.push_back(one);
          }
        }
      }
      const size_t named = std::min(kNamedInErrors, missing.size());
      return absl::FailedPreconditionError(absl::StrCat(
          "no plan can be answered from profile '", profile_.name(),
          "'; not measured: ",
          absl::StrJoin(missing.begin(),
                        missing.begin() + static_cast<std::ptrdiff_t>(named),
                        ", "),
          missing.size() > named
              ? absl::StrCat(" and ", missing.size() - named, " more")
              : ""));
    }
    // What memory rules out stands behind what the engine refuses, and is told
    // first: it is nearer to running.
    const size_t first =
        candidates_.empty() ? 0 : ruled_out.size() - candidates_.size();
    const size_t end = std::min(first + kNamedInErrors, ruled_out.size());
    std::string reasons;
    for (size_t i = first; i < end; ++i) {
      absl::StrAppend(&reasons, i > first ? "; " : "", ruled_out[i].mode, ": ",
                      ruled_out[i].reason);
    }
    return absl::FailedPreconditionError(
        absl::StrCat("no plan can run: ", reasons));
  }

 private:
  void AddPlans(const Engine& engine, int count) {
    for (const Plan& plan :
         EnumeratePlans(model_, engine, count, question_.options)) {
      const Placement& placement = placer_.At(plan);
      const std::vector<int>& gpus = placement.replicas.front();
      if (auto refusal =
              engine.Refusal(model_, plan, profile_.fingerprint(), gpus)) {
        refused_.push_back({engine.id(), ModeName(plan), *std::move(refusal)});
        continue;
      }
      Replica& replica = FindReplica(engine, plan, gpus);
      const MemoryUse memory = ComputeMemory(
          replica.recipe, plan, question_.workload, gpu_memory_bytes_);
      candidates_.push_back(
          {.replica = &replica,
           .placement = &placement,
           .plan = plan,
           .max_concurrency = memory.max_concurrency.value_or(
               std::numeric_limits<int64_t>::max()),
           .max_step_concurrency = MaxStepConcurrency(replica.recipe, plan)});
      contestants_.push_back({.plan = plan,
                              .gpus = plan.gpus(),
                              // Of equally simple plans those of an engine
                              // whose rules are in no doubt come first.
                              .complexity = 2 * Complexity(plan) +
                                            (engine.caveat().empty() ? 0 : 1),
                              .running = plan == running_,
                              .parts = PartsOf(replica, plan)});
    }
  }

  Replica& FindReplica(const Engine& engine, Plan plan,
                       absl::Span<const int> gpus) {
    const int at_once = profile_.MeasuresContention() ? plan.replicas : 1;
    plan.replicas = 1;
    for (Replica& replica : replicas_) {
      if (replica.engine == &engine && replica.recipe.plan == plan &&
          replica.gpus == gpus && replica.at_once == at_once) {
        return replica;
      }
    }
    Replica& replica = replicas_.emplace_back(Replica{
        .engine = &engine,
        .gpus = gpus,
        .at_once = at_once,
        .recipe =
            engine.MakeRecipe(model_, plan, profile_.fingerprint(), gpus)});
    Recipe& recipe = replica.recipe;
    if (question_.host_seconds_per_step >= 0) {
      recipe.host_seconds = question_.host_seconds_per_step;
    }
    if (question_.workload.extra_all_reduces > 0) AddAllReduces(recipe);
    Site site = SiteOf(plan, gpus, profile_);
    site.replicas = at_once;
    replica.bound = pricer_.Bind(recipe, site);
    constexpr size_t kUsualPrices = 24;
    replica.prices.reserve(kUsualPrices);
    return replica;
  }

  // Numbers of a plan's parts, as Contestant has them. A pipeline's do not add
  // up to its time; nor do those of half batches that overlap, nor those of
  // prompts in several steps.
  std::array<int, kScoreParts> PartsOf(const Replica& replica,
                                       const Plan& plan) {
    std::array<int, kScoreParts> numbers = {};
    if (plan.pipeline > 1 || plan.two_batch_overlap ||
        question_.workload.phase == Phase::kPrefill) {
      return numbers;
    }
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

  // All-reduces that the asker saw beside the model's own.
  void AddAllReduces(Recipe& recipe) const {
    for (const CollectiveUse& use : recipe.collectives) {
      if (use.steps.front().op != CollectiveOp::kAllReduce) continue;
      CollectiveUse extra = use;
      extra.name = "all_reduce extra";
      extra.section = Section::kLayers;
      extra.count = static_cast<double>(question_.workload.extra_all_reduces);
      recipe.collectives.push_back(std::move(extra));
      return;
    }
  }

  Workload At(int64_t concurrency) const {
    Workload workload = question_.workload;
    workload.concurrency = concurrency;
    return workload;
  }

  Launch StepLaunch() const {
    // Prompts run outside of CUDA graphs.
    return question_.workload.phase == Phase::kPrefill ? Launch::kEager
                                                       : Launch::kGraph;
  }

  // How many steps of a whole chunk `tokens` take; the last step takes as long
  // as what is left for it, and one is the least.
  static double Chunks(int64_t tokens, int64_t chunk) {
    return std::max(1.0,
                    static_cast<double>(tokens) / static_cast<double>(chunk));
  }

  static int64_t RankPromptTokens(const Plan& plan, const Workload& workload) {
    return CeilDivide(CeilDivide(workload.concurrency, plan.replicas),
                      plan.attention_dp) *
           workload.input_tokens;
  }

  static SteadyState Steady(const Candidate& candidate,
                            const Workload& workload) {
    return ComputeSteadyState(workload, candidate.plan,
                              candidate.replica->recipe);
  }

  // Of the step that terms are told of: in steady state one without prompts.
  static StepLoad Load(const Candidate& candidate, const Workload& workload) {
    switch (workload.phase) {
      case Phase::kSteadyState:
        return Steady(candidate, workload).decode;
      case Phase::kDecode:
        return DecodeLoad(workload, candidate.plan);
      case Phase::kPrefill:
        break;
    }
    const int64_t tokens = RankPromptTokens(candidate.plan, workload);
    return PromptLoad(workload, candidate.plan,
                      static_cast<double>(std::min(
                          tokens, candidate.replica->recipe.chunk_tokens)));
  }

  std::vector<Term> Terms(const Candidate& candidate,
                          const Workload& workload) {
    const Pricer::Bound& bound = *candidate.replica->bound;
    std::vector<Term> terms =
        pricer_
            .Explain(bound, Load(candidate, workload), StepLaunch(),
                     candidate.plan.replicas)
            .terms;
    const double seconds = Price(candidate, workload).prompts_seconds;
    if (seconds <= 0) return terms;
    const SteadyState state = Steady(candidate, workload);
    const StepPrice admission =
        pricer_.Price(bound, state.admission, Launch::kEager);
    terms.push_back(
        {.name = "prompts of other sequences",
         .seconds = seconds,
         .count = state.admissions_per_token,
         .standing = admission.standing,
         .source = "steps with prompts",
         .size = state.admission.prompt_tokens,
         .relative_sigma = admission.sigma_seconds / admission.seconds,
         .upper_bound = admission.upper_bound,
         .note = absl::StrCat(state.mixed ? "what they add to a decode step"
                                          : "between two decode steps",
                              admission.upper_bound
                                  ? "; kernels of theirs are upper bounds"
                                  : "")});
    return terms;
  }

  MemoryUse Memory(const Candidate& candidate, int64_t concurrency) const {
    return ComputeMemory(candidate.replica->recipe, candidate.plan,
                         At(concurrency), gpu_memory_bytes_);
  }

  bool MayRun(const Candidate& candidate, int64_t concurrency) const {
    return concurrency <= candidate.max_step_concurrency &&
           (question_.limits.ignore_memory ||
            concurrency <= candidate.max_concurrency);
  }

  // The step of one replica; the same for all plans that differ in replicas
  // only and give each as many sequences.
  const SteadyPrice& Price(const Candidate& candidate,
                           const Workload& workload) {
    Replica& replica = *candidate.replica;
    const int64_t sequences =
        CeilDivide(workload.concurrency, candidate.plan.replicas);
    const auto known = std::lower_bound(
        replica.prices.begin(), replica.prices.end(), sequences,
        [](const auto& entry, int64_t sought) { return entry.first < sought; });
    if (known != replica.prices.end() && known->first == sequences) {
      return known->second;
    }
    SteadyPrice price;
    if (workload.phase == Phase::kSteadyState) {
      const SteadyState state = Steady(candidate, workload);
      price = PriceSteadyState(
          state, pricer_.Price(*replica.bound, state.decode, StepLaunch()),
          pricer_.Price(*replica.bound, state.admission, Launch::kEager));
    } else {
      price.token = pricer_.Price(*replica.bound, Load(candidate, workload),
                                  StepLaunch());
    }
    return replica.prices.emplace(known, sequences, price)->second;
  }

  Outcome Evaluate(const Candidate& candidate, int64_t concurrency) {
    const Workload workload = At(concurrency);
    const SteadyPrice& price = Price(candidate, workload);
    Outcome outcome{.candidate = &candidate, .price = price.token};
    outcome.answerable = outcome.price.answerable;
    if (!outcome.answerable) return outcome;
    // All sequences together give `tokens` in `seconds`.
    double tokens = static_cast<double>(concurrency);
    double seconds = outcome.price.seconds;
    switch (workload.phase) {
      case Phase::kSteadyState:
        outcome.tpot_seconds = seconds;
        if (question_.scope == CostScope::kStep) {
          outcome.ttft_seconds = price.ttft_seconds;
        }
        tokens *= static_cast<double>(workload.output_tokens);
        seconds = price.sequence_seconds;
        break;
      case Phase::kDecode:
        outcome.tpot_seconds = seconds;
        break;
      case Phase::kPrefill: {
        const double steps = Chunks(RankPromptTokens(candidate.plan, workload),
                                    candidate.replica->recipe.chunk_tokens);
        seconds = outcome.price.through_seconds +
                  (steps - 1) * outcome.price.slowest_stage_seconds;
        tokens *= static_cast<double>(workload.input_tokens);
        outcome.ttft_seconds = seconds;
        break;
      }
    }
    // Where only communication counts and a plan has none, no rate follows.
    outcome.tokens_per_second = seconds > 0 ? tokens / seconds : 0;
    const double latency =
        workload.phase == Phase::kPrefill ? seconds : outcome.tpot_seconds;
    const bool by_latency = question_.objective == Objective::kLatency;
    outcome.seconds = by_latency ? latency : seconds;
    outcome.cost = by_latency ? latency : seconds / tokens;
    outcome.part_seconds = workload.phase == Phase::kSteadyState && !by_latency
                               ? price.sequence_part_seconds
                               : price.token.part_seconds;
    const Limits& limits = question_.limits;
    outcome.misses = outcome.tpot_seconds > limits.max_tpot_seconds ||
                     MissesTtft(outcome.ttft_seconds);
    return outcome;
  }

  // A time that cannot be told is not within a limit.
  bool MissesTtft(const std::optional<double>& ttft_seconds) const {
    const double limit = question_.limits.max_ttft_seconds;
    return std::isfinite(limit) &&
           (!ttft_seconds.has_value() || *ttft_seconds > limit);
  }

  // Of plans that do the same work, so that times compare as costs do.
  static Score ScoreOf(const Outcome& outcome) {
    return {.runs = outcome.answerable,
            .misses = outcome.misses,
            .seconds = outcome.seconds,
            .part_seconds = outcome.part_seconds};
  }

  Score ScoreAt(const Candidate& candidate, int64_t concurrency) {
    if (!MayRun(candidate, concurrency)) return {};
    return ScoreOf(Evaluate(candidate, concurrency));
  }

  // Empty: of none.
  std::string ModeOf(const std::optional<size_t>& candidate) const {
    return candidate.has_value() ? candidates_[*candidate].mode()
                                 : std::string();
  }

  std::optional<EngineId> EngineOf(
      const std::optional<size_t>& candidate) const {
    if (!candidate.has_value()) return std::nullopt;
    return candidates_[*candidate].engine().id();
  }

  double Residual() const {
    return question_.scope == CostScope::kStep ? kAssumedResidual : 0;
  }

  double RelativeSigma(const Outcome& outcome) const {
    // Where only communication counts, a plan without it costs nothing.
    if (outcome.price.seconds <= 0) return 0;
    return std::hypot(outcome.price.sigma_seconds / outcome.price.seconds,
                      Residual());
  }

  // The cost at which the first of the limits would be reached.
  double CostLimit(const Outcome& outcome) const {
    const Limits& limits = question_.limits;
    double ratio = std::numeric_limits<double>::infinity();
    if (outcome.tpot_seconds > 0) {
      ratio = limits.max_tpot_seconds / outcome.tpot_seconds;
    }
    if (std::isfinite(limits.max_ttft_seconds)) {
      ratio =
          outcome.ttft_seconds.has_value()
              ? std::min(ratio, limits.max_ttft_seconds / *outcome.ttft_seconds)
              : 0;
    }
    return std::isinf(ratio) ? ratio : outcome.cost * ratio;
  }

  static bool Better(const Outcome& a, const Outcome& b) {
    if (a.misses != b.misses) return b.misses;
    return a.cost < b.cost;
  }

  std::vector<std::string> Missing(const Candidate& candidate,
                                   int64_t concurrency) {
    const Workload workload = At(concurrency);
    const Pricer::Bound& bound = *candidate.replica->bound;
    std::vector<std::string> missing =
        pricer_.Explain(bound, Load(candidate, workload), StepLaunch()).missing;
    if (workload.phase != Phase::kSteadyState) return missing;
    const StepLoad admission = Steady(candidate, workload).admission;
    for (std::string& one :
         pricer_.Explain(bound, admission, Launch::kEager).missing) {
      if (std::find(missing.begin(), missing.end(), one) == missing.end()) {
        missing.push_back(std::move(one));
      }
    }
    return missing;
  }

  void AddMisses(PlanAdvice& advice) const {
    const Limits& limits = question_.limits;
    if (advice.tpot_seconds > limits.max_tpot_seconds) {
      advice.misses.push_back(absl::StrFormat(
          "TPOT %.2f ms is over the limit of %.2f ms",
          advice.tpot_seconds * 1e3, limits.max_tpot_seconds * 1e3));
    }
    if (MissesTtft(advice.ttft_seconds)) {
      advice.misses.push_back(
          advice.ttft_seconds.has_value()
              ? absl::StrFormat("TTFT %.1f ms is over the limit of %.1f ms",
                                *advice.ttft_seconds * 1e3,
                                limits.max_ttft_seconds * 1e3)
              : "TTFT cannot be told from communication alone");
    }
    if (!advice.memory.fits) {
      advice.misses.push_back(
          absl::StrCat("memory: ", MemoryReason(advice.memory)));
    }
  }

  const ModelShape& model_;
  const Question& question_;
  const Profile& profile_;
  Placer placer_;
  Pricer pricer_;
  int64_t gpu_memory_bytes_ = 0;
  std::optional<Plan> running_;   // question_.current_mode
  std::deque<Replica> replicas_;  // stable addresses, as the next
  std::deque<Candidate> candidates_;
  std::vector<Contestant> contestants_;  // parallel to candidates_
  // Plans with the same of these hold the same sequences on each rank.
  struct SharedPart {
    const void* id;
    int replicas, attention_dp;
    int64_t chunk_tokens;
    bool mixed_steps;
    friend bool operator==(const SharedPart&, const SharedPart&) = default;
  };
  std::vector<SharedPart> shared_parts_;
  std::vector<RuledOut> refused_;
};

absl::Status ValidateFor(const ModelShape& model, const Question& question,
                         const Profile& profile) {
  RETURN_IF_ERROR(Validate(model));
  RETURN_IF_ERROR(Validate(question));
  if (question.gpus.count > profile.gpu_count()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "gpus.count is ", question.gpus.count, "; allowed: 1 to ",
        profile.gpu_count(), ", the GPUs of profile '", profile.name(), "'"));
  }
  for (const int index : question.gpus.indices) {
    if (index < profile.gpu_count()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "gpus.indices is ", index, "; allowed: 0 to ", profile.gpu_count() - 1,
        ", the GPUs of profile '", profile.name(), "'"));
  }
  if (profile.gpu_count() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("profile '", profile.name(), "' names no GPU"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Advice> Recommend(const ModelShape& model,
                                 const Question& question,
                                 const Profile& profile) {
  RETURN_IF_ERROR(ValidateFor(model, question, profile));
  Advisor advisor(model, question, profile);
  const int64_t concurrency = question.workload.concurrency;
  Advice advice;
  advice.ruled_out = std::move(advisor.refused());
  const std::vector<Outcome> ranked =
      advisor.Rank(concurrency, advice.ruled_out, advice.not_answerable);
  if (ranked.empty()) {
    return advisor.NoPlan(advice.ruled_out, advice.not_answerable);
  }
  const size_t count =
      std::min(static_cast<size_t>(question.max_plans), ranked.size());
  for (size_t i = 0; i < count; ++i) {
    advice.plans.push_back(advisor.Explain(ranked[i], concurrency));
  }
  advice.confidence = advisor.ComputeConfidence(ranked);
  if (question.explain) {
    advice.flip_points =
        advisor.FlipPoints(1, std::max(kFlipRange, concurrency));
  }
  return advice;
}

absl::StatusOr<SweepAdvice> Sweep(const ModelShape& model,
                                  const Question& question,
                                  absl::Span<const int64_t> concurrencies,
                                  const Profile& profile,
                                  absl::FunctionRef<absl::Status()> proceed) {
  if (concurrencies.empty()) {
    return absl::InvalidArgumentError("concurrencies is empty");
  }
  std::vector<int64_t> ascending(concurrencies.begin(), concurrencies.end());
  std::sort(ascending.begin(), ascending.end());
  ascending.erase(std::unique(ascending.begin(), ascending.end()),
                  ascending.end());
  Question one = question;
  for (int64_t concurrency : {ascending.front(), ascending.back()}) {
    one.workload.concurrency = concurrency;
    RETURN_IF_ERROR(ValidateFor(model, one, profile));
  }
  Advisor advisor(model, one, profile);
  SweepAdvice sweep;
  absl::Status unanswered;
  bool any = false;
  for (int64_t concurrency : ascending) {
    RETURN_IF_ERROR(proceed());
    std::vector<RuledOut> ruled_out = advisor.refused();
    std::vector<NotAnswerable> not_answerable;
    const std::vector<Outcome> ranked =
        advisor.Rank(concurrency, ruled_out, not_answerable);
    SweepAdvice::Point& point = sweep.points.emplace_back();
    point.concurrency = concurrency;
    for (size_t i = 0; i < std::min(kSweepPlans, ranked.size()); ++i) {
      point.plans.push_back(advisor.Explain(ranked[i], concurrency));
    }
    any = any || !ranked.empty();
    if (ranked.empty()) {
      unanswered = advisor.NoPlan(ruled_out, not_answerable);
      point.unanswered = std::string(unanswered.message());
    }
  }
  if (!any) return unanswered;
  RETURN_IF_ERROR(proceed());
  sweep.flip_points = advisor.FlipPoints(ascending.front(), ascending.back());
  return sweep;
}

absl::StatusOr<SweepAdvice> Sweep(const ModelShape& model,
                                  const Question& question,
                                  absl::Span<const int64_t> concurrencies,
                                  const Profile& profile) {
  return Sweep(model, question, concurrencies, profile,
               [] { return absl::OkStatus(); });
}

}  // namespace fabricwise
