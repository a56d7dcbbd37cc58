// SPDX-License-Identifier: Apache-2.0
#include "server/model/steady_state.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fabricwise {
namespace {

// Steps that a prompt waits and is worked on: the root of
//   R = service (1 + (customers - 1) (R - service / 2) / (elsewhere + R))
// and no less than what keeps the server no more than busy.
double QueueSteps(double service, double customers, double elsewhere) {
  const double spare = elsewhere - service * customers;
  const double root = std::sqrt((spare + service) * (spare + service) +
                                service * service + 2 * service * elsewhere);
  if (spare <= 0) return std::max(-spare, (root - spare) / 2);
  // The same root where the two would cancel.
  return service * (2 * elsewhere - service * (customers - 1)) / (spare + root);
}

// What prompts do to a rank's steps.
struct Admissions {
  double chunk = 0;      // prompt tokens of a step that has any
  double own_steps = 1;  // such steps until a sequence's first token
  double per_token = 0;  // such steps for others, for each of its decode steps
  double share = 0;      // such steps for any, for each decode step
  int64_t decoding = 1;  // sequences in a micro-batch's decode step
};

// `sequences`: of the rank, in all its micro-batches.
Admissions Mixed(double input, double decode_steps, double budget,
                 double sequences, const StepLoad& all_decode, int pipeline) {
  // More cannot decode at once: their prompts would not keep up.
  const double most = std::min(static_cast<double>(all_decode.rank_sequences),
                               budget * decode_steps / (input + decode_steps));
  const double left = std::max(1.0, budget - most);
  // Between two steps of a sequence a pipeline begins one for each stage.
  const double elsewhere = decode_steps * pipeline;
  const double service = input / left;
  Admissions result;
  result.own_steps = std::max(1.0, QueueSteps(service, sequences, elsewhere));
  const double steps = elsewhere + result.own_steps;
  result.chunk = std::min(left, input * (1 + (sequences - 1) / steps));
  const double admissions = sequences * input / result.chunk;
  result.share = std::min(1.0, admissions / steps);
  if (elsewhere > 0) {
    result.per_token =
        std::clamp((admissions - result.own_steps) / elsewhere, 0.0, 1.0);
  }
  constexpr double kRounding = 1e-9;  // of what is a whole number
  const double decoding =
      sequences * elsewhere /
      (steps * static_cast<double>(all_decode.micro_batches));
  result.decoding = std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(decoding * (1 - kRounding))), 1,
      all_decode.rank_sequences);
  return result;
}

Admissions Apart(double input, double decode_steps, double budget,
                 double sequences, const StepLoad& all_decode) {
  const double spread = std::max(1.0, decode_steps);
  const double together = 1 + (sequences - 1) / spread;
  const double own = std::max(1.0, input / budget);
  const double all = std::max(own, together * input / budget);
  Admissions result;
  result.chunk = std::min(budget, together * input);
  // First come, first served: half of the others wait for each.
  result.own_steps = (own + all) / 2;
  const double admissions = sequences * input / result.chunk;
  result.share = admissions / spread;
  result.per_token = std::max(0.0, admissions - result.own_steps) / spread;
  result.decoding = all_decode.rank_sequences;
  return result;
}

}  // namespace

SteadyState ComputeSteadyState(const Workload& workload, const Plan& plan,
                               const Recipe& recipe) {
  const StepLoad all = DecodeLoad(workload, plan);
  const auto input = static_cast<double>(workload.input_tokens);
  const auto decode_steps = static_cast<double>(workload.output_tokens - 1);
  const auto budget = static_cast<double>(recipe.chunk_tokens);
  const double sequences =
      std::ceil(static_cast<double>(all.replica_sequences) / plan.attention_dp);
  const Admissions rank =
      recipe.mixed_steps
          ? Mixed(input, decode_steps, budget, sequences, all, plan.pipeline)
          : Apart(input, decode_steps, budget, sequences, all);

  // The ranks of a stage keep step: what one admits, all wait for. As many
  // ranks like this one hold the rest of the replica's sequences:
  const double others =
      static_cast<double>(all.replica_sequences) / sequences - 1;
  const double chance = std::min(1.0, rank.share);
  const double any =
      1 - (1 - std::min(1.0, rank.per_token)) * std::pow(1 - chance, others);
  // A sequence decodes nothing until its own prompt is done.
  const int64_t beside =
      std::min(rank.decoding, static_cast<int64_t>(sequences) - 1);
  const double mixed = recipe.mixed_steps ? 1 : 0;
  return {.decode = DecodeLoad(workload, plan, rank.decoding),
          .admission = AdmissionLoad(
              workload, plan, recipe.mixed_steps ? beside : 0, rank.chunk,
              others * (mixed * static_cast<double>(rank.decoding) +
                        chance * rank.chunk)),
          .first_token_steps = rank.own_steps,
          .admissions_per_token = std::max(rank.per_token, any),
          .mixed = recipe.mixed_steps,
          .decode_steps = decode_steps};
}

SteadyPrice PriceSteadyState(const SteadyState& state, const StepPrice& decode,
                             const StepPrice& admission) {
  SteadyPrice price{.token = decode};
  StepPrice& token = price.token;
  token.answerable = decode.answerable && admission.answerable;
  if (!token.answerable) return price;

  const double share = state.admissions_per_token;
  StepPrice first = admission;
  if (state.mixed) {
    if (first.seconds < decode.seconds) {
      first.part_seconds = decode.part_seconds;
    }
    first.seconds = std::max(decode.seconds, first.seconds);
    first.through_seconds =
        std::max(decode.through_seconds, first.through_seconds);
    first.slowest_stage_seconds =
        std::max(decode.slowest_stage_seconds, first.slowest_stage_seconds);
  }
  if (share > 0) {
    price.prompts_seconds =
        share * (state.mixed ? first.seconds - decode.seconds
                             : first.slowest_stage_seconds);
    token.standing = Worse(decode.standing, admission.standing);
    token.upper_bound = decode.upper_bound || admission.upper_bound;
    const double plain = state.mixed ? 1 - share : 1;
    // The two read the same curves: their errors go together.
    token.sigma_seconds =
        plain * decode.sigma_seconds + share * admission.sigma_seconds;
  }
  token.seconds += price.prompts_seconds;
  price.ttft_seconds = first.through_seconds + (state.first_token_steps - 1) *
                                                   first.slowest_stage_seconds;
  price.sequence_seconds =
      price.ttft_seconds + state.decode_steps * token.seconds;
  for (size_t part = 0; part < kStepParts; ++part) {
    token.part_seconds[part] +=
        share * (first.part_seconds[part] -
                 (state.mixed ? decode.part_seconds[part] : 0));
    price.sequence_part_seconds[part] =
        state.first_token_steps * first.part_seconds[part] +
        state.decode_steps * token.part_seconds[part];
  }
  return price;
}

}  // namespace fabricwise
