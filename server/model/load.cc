// SPDX-License-Identifier: Apache-2.0
#include "server/model/load.h"

#include <algorithm>
#include <cmath>

namespace fabricwise {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Fills what follows from rank_sequences and prompt_tokens.
void Spread(const Plan& plan, StepLoad& load) {
  load.rank_tokens =
      static_cast<double>(load.rank_sequences) + load.prompt_tokens;
  load.slice_tokens = std::ceil(load.rank_tokens / plan.attention_tp);
  load.stage_tokens = load.rank_tokens * plan.attention_dp;
}

StepLoad Sequences(const Workload& workload, const Plan& plan) {
  StepLoad load;
  load.replica_sequences = CeilDivide(workload.concurrency, plan.replicas);
  load.micro_batches = std::min<int64_t>(plan.pipeline, load.replica_sequences);
  load.rank_sequences =
      CeilDivide(CeilDivide(load.replica_sequences, load.micro_batches),
                 plan.attention_dp);
  load.context_tokens = MeanContext(workload);
  load.prompt_context = static_cast<double>(workload.input_tokens) / 2;
  return load;
}

}  // namespace

double MeanContext(const Workload& workload) {
  if (workload.phase == Phase::kDecode && workload.context_tokens > 0) {
    return static_cast<double>(workload.context_tokens);
  }
  return static_cast<double>(workload.input_tokens) +
         static_cast<double>(workload.output_tokens) / 2;
}

double FinalContext(const Workload& workload) {
  switch (workload.phase) {
    case Phase::kDecode:
      return MeanContext(workload);
    case Phase::kPrefill:
      return static_cast<double>(workload.input_tokens);
    case Phase::kSteadyState:
      break;
  }
  return static_cast<double>(workload.input_tokens + workload.output_tokens);
}

StepLoad DecodeLoad(const Workload& workload, const Plan& plan) {
  const StepLoad all = Sequences(workload, plan);
  return DecodeLoad(all, plan, all.rank_sequences);
}

StepLoad DecodeLoad(const StepLoad& all, const Plan& plan, int64_t sequences) {
  StepLoad load = all;
  load.rank_sequences = sequences;
  load.output_rows = static_cast<double>(sequences);
  Spread(plan, load);
  return load;
}

StepLoad AdmissionLoad(const StepLoad& all, const Workload& workload,
                       const Plan& plan, int64_t sequences,
                       double prompt_tokens, double other_tokens) {
  StepLoad load = all;
  load.rank_sequences = sequences;
  load.prompt_tokens = prompt_tokens;
  // The last token of each prompt that ends here.
  load.output_rows =
      static_cast<double>(sequences) +
      std::ceil(prompt_tokens / static_cast<double>(workload.input_tokens));
  Spread(plan, load);
  load.stage_tokens = load.rank_tokens + other_tokens;
  return load;
}

StepLoad PromptLoad(const Workload& workload, const Plan& plan, double tokens) {
  StepLoad load = Sequences(workload, plan);
  load.micro_batches = 1;
  load.rank_sequences = 0;
  load.prompt_tokens = tokens;
  load.output_rows =
      std::ceil(tokens / static_cast<double>(workload.input_tokens));
  load.prompts_only = true;
  Spread(plan, load);
  // Prompts are not padded: of its sequences the fullest rank has the rounded
  // up part.
  load.stage_tokens = tokens * static_cast<double>(load.replica_sequences) /
                      static_cast<double>(CeilDivide(load.replica_sequences,
                                                     plan.attention_dp));
  return load;
}

}  // namespace fabricwise
