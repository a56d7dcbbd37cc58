// SPDX-License-Identifier: Apache-2.0
//
// How a model is spread over GPUs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

// How the tokens of a MoE layer reach the ranks that hold their experts.
enum class ExpertTransport {
  kNone,  // every rank holds every token; partial sums are all-reduced
  kAllGatherReduceScatter,
  kNcclAllToAll,
  kDeepEpLowLatency,
  kDeepEpHighThroughput,
  kFlashinferNvlink,
};

// `replicas` independent copies, each of `pipeline` stages, each stage of
// attention_dp x attention_tp GPUs. For a MoE layer the same GPUs are
// expert_parallel x moe_tp; both are 1 for a dense model.
struct Plan {
  int replicas = 1;
  int pipeline = 1;
  int attention_dp = 1;
  int attention_tp = 1;
  int expert_parallel = 1;
  int moe_tp = 1;
  ExpertTransport transport = ExpertTransport::kNone;
  bool two_batch_overlap = false;
  bool fp8_dispatch = false;

  int stage_gpus() const { return attention_dp * attention_tp; }
  int gpus() const { return replicas * pipeline * stage_gpus(); }

  friend bool operator==(const Plan&, const Plan&) = default;
};

// The short name of a plan: "TP8", "TP8+EP8", "DP8+EP8", "2xTP4", "PP2xTP4",
// "DP2xTP4+EP8:deepep-ll". "TP1" is one GPU; a suffix names every transport
// but all-gather + reduce-scatter: ":a2a", ":deepep-ll", ":deepep-ht",
// ":flashinfer"; options follow as "+tbo" and "+fp8d". A hybrid of expert and
// tensor parallelism in the experts is "TP8+EP4xMTP2".
std::string ModeName(const Plan& plan);

// The inverse of ModeName for any name it can produce. INVALID_ARGUMENT else.
// moe_tp is not part of the short name where it follows from the rest: it is
// set for a MoE model (stage GPUs / expert_parallel) when `is_moe`.
absl::StatusOr<Plan> ParseMode(absl::string_view mode, bool is_moe);

absl::string_view ToString(ExpertTransport transport);

}  // namespace fabricwise
