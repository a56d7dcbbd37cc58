// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/advice.h"

#include <algorithm>
#include <array>
#include <cmath>
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
#include "server/recommend/plan_space.h"
#include "server/recommend/ranking.h"

namespace fabricwise {
namespace {

// Flip points are looked for up to here, or to the asked concurrency.
constexpr int64_t kFlipRange = 1024;
// Plans of which the first's confidence is taken: as many of those that meet
// the limits, and of those that miss one.
constexpr size_t kCompared = 9;

constexpr size_t kSweepPlans = 3;
constexpr size_t kNamedInErrors = 4;

// Prices between two looks at whether to go on.
constexpr int kPricesAtOnce = 32;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

using Candidate = PlanSpace::Candidate;
using Replica = PlanSpace::Replica;

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

std::string StepReason(const Candidate& candidate) {
  return absl::StrCat("a rank decodes at most ",
                      candidate.replica->recipe.max_rank_sequences,
                      " sequences in a step: up to concurrency ",
                      candidate.max_step_concurrency);
}

// One question, at any number of concurrencies.
class Advisor {
 public:
  // Borrows all. The question is valid, and the space is of its scope.
  Advisor(PlanSpace& space, const Question& question,
          absl::FunctionRef<absl::Status()> proceed)
      : space_(space),
        question_(question),
        proceed_(proceed),
        rank_prices_(space.rank_work_count()),
        contestants_(space.contestants()) {
    if (auto running = ParseMode(question.current_mode, space.model().is_moe());
        running.ok()) {
      for (Contestant& contestant : contestants_) {
        contestant.running = contestant.plan == *running;
      }
    }
    if (question.workload.phase == Phase::kPrefill) {
      // Parts of a step do not add up to the time of several.
      for (Contestant& contestant : contestants_) contestant.parts = {};
    }
    max_concurrency_.reserve(candidates().size());
    for (const Candidate& candidate : candidates()) {
      max_concurrency_.push_back(
          Memory(candidate, 1)
              .max_concurrency.value_or(std::numeric_limits<int64_t>::max()));
    }
  }

  // Not OK: from here on nothing is priced, and what is told means nothing.
  const absl::Status& stopped() const { return stopped_; }

  struct Ranking {
    std::vector<Outcome> ranked;  // that can be costed and may run, best first
    std::vector<const Candidate*> ruled_out, not_answerable;
  };

  // `held`: see First.
  Ranking Rank(int64_t concurrency, const Plan* held = nullptr) {
    Ranking ranking;
    std::vector<Outcome>& ranked = ranking.ranked;
    std::vector<Score> scores(candidates().size());
    for (const Candidate& candidate : candidates()) {
      if (Stops()) return ranking;
      if (!MayRun(candidate, concurrency)) {
        ranking.ruled_out.push_back(&candidate);
        continue;
      }
      Outcome outcome = Evaluate(candidate, concurrency);
      if (!outcome.answerable) {
        ranking.not_answerable.push_back(&candidate);
        continue;
      }
      scores[IndexOf(candidate)] = ScoreOf(outcome);
      ranked.push_back(outcome);
    }
    const std::optional<size_t> first = First(contestants_, scores, held);
    if (!first.has_value()) return ranking;
    std::stable_sort(ranked.begin(), ranked.end(), Better);
    const auto best =
        std::find_if(ranked.begin(), ranked.end(), [&](const Outcome& outcome) {
          return outcome.candidate == &candidates()[*first];
        });
    std::rotate(ranked.begin(), best, best + 1);
    return ranking;
  }

  // Why other plans are not among the ranked: what engines refuse first.
  std::vector<RuledOut> RuledOutIn(const Ranking& ranking,
                                   int64_t concurrency) const {
    std::vector<RuledOut> ruled_out = space_.refused();
    for (const Candidate* candidate : ranking.ruled_out) {
      ruled_out.push_back(
          {candidate->engine().id(), candidate->mode(),
           concurrency > candidate->max_step_concurrency
               ? StepReason(*candidate)
               : MemoryReason(Memory(*candidate, concurrency))});
    }
    return ruled_out;
  }
  std::vector<NotAnswerable> NotAnswerableIn(const Ranking& ranking,
                                             int64_t concurrency) {
    std::vector<NotAnswerable> not_answerable;
    for (const Candidate* candidate : ranking.not_answerable) {
      not_answerable.push_back({candidate->engine().id(), candidate->mode(),
                                Missing(*candidate, concurrency)});
    }
    return not_answerable;
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
    advice.launch = candidate.engine().Launch(
        space_.model(), candidate.plan, workload,
        space_.profile().fingerprint(), *candidate.placement);
    if (space_.profile().topology().kind_count() > 1 ||
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

  // Concurrencies in (low, high] at which the best plan changes. `asked`: see
  // FindChanges.
  std::vector<Change> Changes(int64_t low, int64_t high,
                              absl::Span<const int64_t> asked = {}) {
    return FindChanges(
        contestants_, low, high,
        [this](size_t candidate, int64_t concurrency) {
          return ScoreAt(candidates()[candidate], concurrency);
        },
        asked);
  }
  std::vector<FlipPoint> FlipPoints(const std::vector<Change>& changes) const {
    std::vector<FlipPoint> flips;
    flips.reserve(changes.size());
    for (const Change& change : changes) {
      flips.push_back({change.concurrency, ModeOf(change.from),
                       ModeOf(change.to), EngineOf(change.from),
                       EngineOf(change.to)});
    }
    return flips;
  }
  // Null: of none.
  const Plan* PlanOf(const std::optional<size_t>& candidate) const {
    return candidate.has_value() ? &candidates()[*candidate].plan : nullptr;
  }

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
          "no plan can be answered from profile '", space_.profile().name(),
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
        candidates().empty() ? 0 : ruled_out.size() - candidates().size();
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
  const std::vector<Candidate>& candidates() const {
    return space_.candidates();
  }

  bool Stops() {
    if (stopped_.ok() && ++asked_ % kPricesAtOnce == 0) stopped_ = proceed_();
    return !stopped_.ok();
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
        space_.pricer()
            .Explain(bound, Load(candidate, workload), StepLaunch(),
                     candidate.plan.replicas)
            .terms;
    const double seconds = Price(candidate, workload).prompts_seconds;
    if (seconds <= 0) return terms;
    const SteadyState state = Steady(candidate, workload);
    const StepPrice admission =
        space_.pricer().Price(bound, state.admission, Launch::kEager);
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
                         At(concurrency), space_.gpu_memory_bytes());
  }

  bool MayRun(const Candidate& candidate, int64_t concurrency) const {
    return concurrency <= candidate.max_step_concurrency &&
           (question_.limits.ignore_memory ||
            concurrency <= max_concurrency_[IndexOf(candidate)]);
  }

  size_t IndexOf(const Candidate& candidate) const {
    return static_cast<size_t>(&candidate - candidates().data());
  }

  // In steady state: what plans of equal rank_work have in common.
  struct RankPrice {
    int64_t concurrency = 0;  // 0: of none
    SteadyState state;
    StepSums decode, admission;
  };

  // Of several replicas some may hold a sequence less than the others.
  enum class Of { kFullest, kOthers };

  // Plans are asked for one concurrency after the other, so that the last one
  // is all that need be remembered.
  const RankPrice& RankPriceOf(const Candidate& candidate,
                               const Workload& workload, Of of) {
    RankPrice& price =
        rank_prices_[candidate.rank_work][of == Of::kFullest ? 0 : 1];
    if (price.concurrency == workload.concurrency) return price;
    const Pricer::Bound& bound = *candidate.replica->bound;
    price.concurrency = workload.concurrency;
    price.state = Steady(candidate, workload);
    price.decode =
        space_.pricer().PriceOwn(bound, price.state.decode, StepLaunch());
    price.admission =
        space_.pricer().PriceOwn(bound, price.state.admission, Launch::kEager);
    return price;
  }

  // Of a replica that holds its part of workload.concurrency, rounded up.
  SteadyPrice Price(const Candidate& candidate, const Workload& workload,
                    Of of = Of::kFullest) {
    Pricer& pricer = space_.pricer();
    const Pricer::Bound& bound = *candidate.replica->bound;
    if (workload.phase != Phase::kSteadyState) {
      return {.token =
                  pricer.Price(bound, Load(candidate, workload), StepLaunch())};
    }
    const RankPrice& rank = RankPriceOf(candidate, workload, of);
    return PriceSteadyState(
        rank.state,
        pricer.Price(bound, rank.state.decode, StepLaunch(), rank.decode),
        pricer.Price(bound, rank.state.admission, Launch::kEager,
                     rank.admission));
  }

  bool MayBeAnswerable(const Candidate& candidate) const {
    switch (question_.workload.phase) {
      case Phase::kSteadyState:
        return candidate.graph_answerable && candidate.eager_answerable;
      case Phase::kDecode:
        return candidate.graph_answerable;
      case Phase::kPrefill:
        break;
    }
    return candidate.eager_answerable;
  }

  Outcome Evaluate(const Candidate& candidate, int64_t concurrency) {
    Outcome outcome{.candidate = &candidate};
    outcome.answerable = MayBeAnswerable(candidate);
    if (!outcome.answerable) return outcome;
    const Workload workload = At(concurrency);
    const SteadyPrice price = Price(candidate, workload);
    outcome.price = price.token;
    outcome.answerable = outcome.price.answerable;
    if (!outcome.answerable) return outcome;
    // All sequences together give `tokens` in `seconds`.
    double tokens = static_cast<double>(concurrency);
    double seconds = outcome.price.seconds;
    outcome.part_seconds = price.token.part_seconds;
    const bool by_latency = question_.objective == Objective::kLatency;
    switch (workload.phase) {
      case Phase::kSteadyState:
        outcome.tpot_seconds = seconds;
        if (question_.scope == CostScope::kStep) {
          outcome.ttft_seconds = price.ttft_seconds;
        }
        tokens *= static_cast<double>(workload.output_tokens);
        seconds = price.sequence_seconds;
        if (!by_latency) outcome.part_seconds = price.sequence_part_seconds;
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
    if (!by_latency && workload.phase != Phase::kPrefill) {
      CountOtherReplicas(candidate, concurrency, seconds, outcome.part_seconds);
    }
    // Where only communication counts and a plan has none, no rate follows.
    outcome.tokens_per_second = seconds > 0 ? tokens / seconds : 0;
    const double latency =
        workload.phase == Phase::kPrefill ? seconds : outcome.tpot_seconds;
    outcome.seconds = by_latency ? latency : seconds;
    outcome.cost = by_latency ? latency : seconds / tokens;
    const Limits& limits = question_.limits;
    outcome.misses = outcome.tpot_seconds > limits.max_tpot_seconds ||
                     MissesTtft(outcome.ttft_seconds);
    return outcome;
  }

  // Replicas do not wait for one another. Makes of the time in which the
  // fullest give a number of tokens for each of their sequences that in which
  // all replicas together do; its parts in proportion.
  void CountOtherReplicas(const Candidate& candidate, int64_t concurrency,
                          double& seconds,
                          std::array<double, kStepParts>& part_seconds) {
    const int64_t replicas = candidate.plan.replicas;
    const int64_t sequences = concurrency / replicas;  // of the others
    const int64_t fullest = concurrency % replicas;
    if (fullest == 0 || sequences == 0 || seconds <= 0) return;
    const SteadyPrice price =
        Price(candidate, At(sequences * replicas), Of::kOthers);
    const bool steady = question_.workload.phase == Phase::kSteadyState;
    const double others = steady ? price.sequence_seconds : price.token.seconds;
    if (!price.token.answerable || others <= 0) return;
    const auto& other_parts =
        steady ? price.sequence_part_seconds : price.token.part_seconds;
    const double weight = static_cast<double>(fullest * (sequences + 1)) /
                          static_cast<double>(concurrency);
    const double all = 1 / (weight / seconds + (1 - weight) / others);
    const double mean = weight * seconds + (1 - weight) * others;
    for (size_t part = 0; part < kStepParts; ++part) {
      part_seconds[part] =
          (weight * part_seconds[part] + (1 - weight) * other_parts[part]) *
          all / mean;
    }
    seconds = all;
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
    if (Stops() || !MayRun(candidate, concurrency)) return {};
    return ScoreOf(Evaluate(candidate, concurrency));
  }

  // Empty: of none.
  std::string ModeOf(const std::optional<size_t>& candidate) const {
    return candidate.has_value() ? candidates()[*candidate].mode()
                                 : std::string();
  }

  std::optional<EngineId> EngineOf(
      const std::optional<size_t>& candidate) const {
    if (!candidate.has_value()) return std::nullopt;
    return candidates()[*candidate].engine().id();
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
        space_.pricer().Missing(bound, Load(candidate, workload), StepLaunch());
    if (workload.phase != Phase::kSteadyState) return missing;
    const StepLoad admission = Steady(candidate, workload).admission;
    for (std::string& one :
         space_.pricer().Missing(bound, admission, Launch::kEager)) {
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

  PlanSpace& space_;
  const Question& question_;
  const absl::FunctionRef<absl::Status()> proceed_;
  absl::Status stopped_;
  int asked_ = 0;
  std::vector<std::array<RankPrice, 2>> rank_prices_;
  std::vector<Contestant> contestants_;   // parallel to candidates(), as
  std::vector<int64_t> max_concurrency_;  // what fits in memory
};

}  // namespace

absl::StatusOr<Advice> Recommend(PlanSpace& space, const Question& question,
                                 absl::FunctionRef<absl::Status()> proceed) {
  RETURN_IF_ERROR(Validate(question));
  Advisor advisor(space, question, proceed);
  const int64_t concurrency = question.workload.concurrency;
  const Advisor::Ranking ranking = advisor.Rank(concurrency);
  RETURN_IF_ERROR(advisor.stopped());
  const std::vector<Outcome>& ranked = ranking.ranked;
  Advice advice;
  if (question.explain || ranked.empty()) {
    advice.ruled_out = advisor.RuledOutIn(ranking, concurrency);
    advice.not_answerable = advisor.NotAnswerableIn(ranking, concurrency);
  }
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
    Question one = question;
    one.workload.concurrency = std::max(kFlipRange, concurrency);
    std::optional<PlanSpace::Flips>& last = space.last_flips();
    if (!last.has_value() || last->question != one) {
      const std::vector<Change> changes =
          advisor.Changes(1, one.workload.concurrency);
      RETURN_IF_ERROR(advisor.stopped());
      last = {one, advisor.FlipPoints(changes)};
    }
    advice.flip_points = last->points;
  }
  return advice;
}

absl::StatusOr<Advice> Recommend(const ModelShape& model,
                                 const Question& question,
                                 const Profile& profile) {
  RETURN_IF_ERROR(Validate(question));
  ASSIGN_OR_RETURN(const auto space,
                   PlanSpace::Create(model, ScopeOf(question), profile));
  return Recommend(*space, question, [] { return absl::OkStatus(); });
}

absl::StatusOr<SweepAdvice> Sweep(PlanSpace& space, const Question& question,
                                  absl::Span<const int64_t> concurrencies,
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
    RETURN_IF_ERROR(Validate(one));
  }
  RETURN_IF_ERROR(proceed());
  Advisor advisor(space, one, proceed);
  const std::vector<Change> changes =
      advisor.Changes(ascending.front(), ascending.back(), ascending);
  RETURN_IF_ERROR(advisor.stopped());
  SweepAdvice sweep{.flip_points = advisor.FlipPoints(changes)};
  absl::Status unanswered;
  bool any = false;
  const Plan* held = nullptr;
  auto change = changes.begin();
  for (int64_t concurrency : ascending) {
    RETURN_IF_ERROR(proceed());
    for (; change != changes.end() && change->concurrency <= concurrency;
         ++change) {
      held = advisor.PlanOf(change->to);
    }
    const Advisor::Ranking ranking = advisor.Rank(concurrency, held);
    RETURN_IF_ERROR(advisor.stopped());
    const std::vector<Outcome>& ranked = ranking.ranked;
    held = ranked.empty() ? nullptr : &ranked.front().candidate->plan;
    SweepAdvice::Point& point = sweep.points.emplace_back();
    point.concurrency = concurrency;
    for (size_t i = 0; i < std::min(kSweepPlans, ranked.size()); ++i) {
      point.plans.push_back(advisor.Explain(ranked[i], concurrency));
    }
    any = any || !ranked.empty();
    if (ranked.empty()) {
      unanswered =
          advisor.NoPlan(advisor.RuledOutIn(ranking, concurrency),
                         advisor.NotAnswerableIn(ranking, concurrency));
      point.unanswered = std::string(unanswered.message());
    }
  }
  if (!any) return unanswered;
  return sweep;
}

absl::StatusOr<SweepAdvice> Sweep(const ModelShape& model,
                                  const Question& question,
                                  absl::Span<const int64_t> concurrencies,
                                  const Profile& profile) {
  Question one = question;
  one.workload.concurrency = 1;
  RETURN_IF_ERROR(Validate(one));
  ASSIGN_OR_RETURN(const auto space,
                   PlanSpace::Create(model, ScopeOf(question), profile));
  return Sweep(*space, question, concurrencies,
               [] { return absl::OkStatus(); });
}

}  // namespace fabricwise
