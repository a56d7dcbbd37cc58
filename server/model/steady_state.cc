// SPDX-License-Identifier: Apache-2.0
#include "server/model/steady_state.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

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

// Up to the next of 64 equal parts of a power of two: what is a mean of several
// prompts to begin with need not be told from its neighbours, and steps of
// plans and loads that hardly differ become one, which is priced once.
double RoundUp(double tokens) {
  constexpr int kKeptBits = 6, kMantissaBits = 52;
  constexpr uint64_t kDropped =
      (uint64_t{1} << (kMantissaBits - kKeptBits)) - 1;
  // A carry out of the mantissa is the next power.
  return std::bit_cast<double>((std::bit_cast<uint64_t>(tokens) + kDropped) &
                               ~kDropped);
}

// base^exponent; in most nodes the exponent is a small whole number.
double Power(double base, double exponent) {
  constexpr double kSmall = 16;
  if (exponent > kSmall || exponent != std::floor(exponent)) {
    return std::pow(base, exponent);
  }
  double power = 1;
  for (double done = 0; done < exponent; ++done) power *= base;
  return power;
}

// What prompts do to a rank's steps.
struct Admissions {
  double chunk = 0;      // prompt tokens of a step that has any
  int64_t beside = 0;    // sequences that decode in it
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
  constexpr double kRounding = 1e-9;  // of what is a whole number
  const double decoding =
      sequences * elsewhere /
      (steps * static_cast<double>(all_decode.micro_batches));
  result.decoding = std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(decoding * (1 - kRounding))), 1,
      all_decode.rank_sequences);
  // A sequence decodes nothing until its own prompt is done.
  result.beside =
      std::min(result.decoding, static_cast<int64_t>(sequences) - 1);
  result.chunk = input * (1 + (sequences - 1) / steps);
  if (sequences > 1) {
    const auto beside = static_cast<double>(result.beside);
    result.chunk = RoundUp(result.chunk + beside) - beside;
  }
  result.chunk = std::min(left, result.chunk);
  const double admissions = sequences * input / result.chunk;
  result.share = std::min(1.0, admissions / steps);
  if (elsewhere > 0) {
    result.per_token =
        std::clamp((admissions - result.own_steps) / elsewhere, 0.0, 1.0);
  }
  return result;
}

Admissions Apart(double input, double decode_steps, double budget,
                 double sequences, const StepLoad& all_decode) {
  const double spread = std::max(1.0, decode_steps);
  const double together = 1 + (sequences - 1) / spread;
  const double own = std::max(1.0, input / budget);
  const double all = std::max(own, together * input / budget);
  Admissions result;
  result.chunk = together * input;
  if (sequences > 1) result.chunk = RoundUp(result.chunk);
  result.chunk = std::min(budget, result.chunk);
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
  double any = 0;
  if (others > 0) {
    any = 1 - (1 - std::min(1.0, rank.per_token)) * Power(1 - chance, others);
  }
  // The others decode, and have prompts by chance.
  double other_tokens = 0;
  if (others > 0) {
    const double decoding =
        recipe.mixed_steps ? static_cast<double>(rank.decoding) : 0;
    const double own = static_cast<double>(rank.beside) + rank.chunk;
    other_tokens =
        RoundUp(own + others * (decoding + chance * rank.chunk)) - own;
  }
  return {.decode = DecodeLoad(all, plan, rank.decoding),
          .admission = AdmissionLoad(all, workload, plan, rank.beside,
                                     rank.chunk, other_tokens),
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
