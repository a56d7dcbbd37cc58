// SPDX-License-Identifier: Apache-2.0
//
// What one step carries under a plan: how the sequences in flight spread over
// replicas, micro-batches and ranks.
#pragma once

#include <cstdint>

#include "server/domain/plan.h"
#include "server/domain/workload.h"

namespace fabricwise {

// Of the fullest rank of the fullest replica; steps wait for it.
struct StepLoad {
  int64_t replica_sequences = 0;
  int64_t micro_batches = 1;   // in flight on a replica, at most `pipeline`
  int64_t rank_sequences = 0;  // decode tokens of a rank in one micro-batch
  double prompt_tokens = 0;    // on that rank, in one step
  double rank_tokens = 0;      // both together
  double slice_tokens = 0;     // of one tensor-parallel rank, if split
  double stage_tokens = 0;     // of all attention-DP ranks together
  double output_rows = 0;      // rows that need logits
  double context_tokens = 0;   // KV length of a decoding sequence
  double prompt_context = 0;   // KV length that a prompt token sees, mean
  bool prompts_only = false;
};

// A step in which every sequence decodes one token.
StepLoad DecodeLoad(const Workload& workload, const Plan& plan);

// `all`, a DecodeLoad of `plan`, where of a rank's sequences in a micro-batch
// only `sequences` decode.
StepLoad DecodeLoad(const StepLoad& all, const Plan& plan, int64_t sequences);

// The same where the fullest rank also works on `prompt_tokens` of prompts; the
// other ranks together have `other_tokens`.
StepLoad AdmissionLoad(const StepLoad& all, const Workload& workload,
                       const Plan& plan, int64_t sequences,
                       double prompt_tokens, double other_tokens);

// A step of prompts only: `tokens` on the fullest rank, on the others in
// proportion to their sequences.
StepLoad PromptLoad(const Workload& workload, const Plan& plan, double tokens);

// KV length of a sequence in mid-answer, and at its end.
double MeanContext(const Workload& workload);
double FinalContext(const Workload& workload);

}  // namespace fabricwise
