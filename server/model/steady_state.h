// SPDX-License-Identifier: Apache-2.0
//
// Serving in steady state: as many sequences in flight as the asker said, each
// replaced by a new one as soon as it ends (a closed loop). Most steps decode
// only; some also work on prompts, within the engine's budget of tokens.
//
// A sequence of I prompt and O output tokens waits and is worked on for q steps
// with prompts, the last of which gives its first token, then decodes for O - 1
// steps. A budget of B tokens a step, of which the decoding take theirs first,
// leaves b for prompts, so that a prompt uses up w = I / b steps. The n
// sequences of a rank queue for that budget, first come, first served:
// approximate mean value analysis of a closed network with one server of fixed
// service time w and a delay of Z = O - 1 (times the stages of a pipeline, each
// of which is at another step), all in steps (P. Schweitzer 1979; the residual
// of a fixed service time is half of it, as in M. Reiser, "A queueing network
// analysis of computer communication networks with window flow control", 1979):
//
//   R = w (1 + (n - 1) (R - w / 2) / (Z + R)), at least n w - Z
//   q = max(1, R)
//
// A step with prompts has those of one sequence and of all that arrive in the
// same step, c = min(b, I (1 + (n - 1) / (Z + q))), rounded up by at most one
// part in 64. While a sequence comes and goes all n together need n I / c such
// steps; it sees q of them before its first token and the rest between its
// tokens. So by construction
//
//   concurrency = requests per second x (TTFT + (O - 1) TPOT)
//
// and every prompt is paid for once. Where an engine does not mix
// (Recipe::mixed_steps), steps with prompts come between decode steps, as soon
// as there are prompts; c and n I / c are the same with the whole budget, and
// of the 1 + (n - 1) / Z sequences that arrive together half wait for each.
//
// Assumed: sequences of equal lengths that are out of step with one another,
// ranks that are out of step with one another, no time between two requests.
#pragma once

#include <array>

#include "server/domain/recipe.h"
#include "server/domain/workload.h"
#include "server/model/load.h"
#include "server/model/pricer.h"

namespace fabricwise {

struct SteadyState {
  StepLoad decode;     // of a step without prompts
  StepLoad admission;  // of a step with prompts of the fullest rank
  // Steps with prompts from a sequence's arrival to its first token.
  double first_token_steps = 1;
  // Steps with prompts of others for each of its decode steps; at most 1 where
  // they are decode steps as well.
  double admissions_per_token = 0;
  bool mixed = true;
  double decode_steps = 0;  // of a sequence: all of its tokens but the first
};

// `plan`: the recipe's, of any number of replicas. recipe.chunk_tokens > 0.
SteadyState ComputeSteadyState(const Workload& workload, const Plan& plan,
                               const Recipe& recipe);

struct SteadyPrice {
  // Between two tokens of a sequence: `seconds` is TPOT.
  StepPrice token;
  double prompts_seconds = 0;  // the part of it that prompts of others cause
  double ttft_seconds = 0;
  // From a sequence's arrival to its end.
  double sequence_seconds = 0;
  // Without a pipeline, of each part of its steps.
  std::array<double, kStepParts> sequence_part_seconds = {};
};

// From the prices of `state`'s two loads. A mixed step counts as no shorter
// than one without prompts. Not answerable where one of them is not.
SteadyPrice PriceSteadyState(const SteadyState& state, const StepPrice& decode,
                             const StepPrice& admission);

}  // namespace fabricwise
