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

// Most GPUs that a plan can name: far above any node, and low enough that no
// product of its sizes overflows.
inline constexpr int kMaxGpus = 1024;

// The short name of a plan:
//
//   [Rx] [PPpx] [DPdx] [TPt] [+EPe [xMTPm]] [:transport] [+tbo] [+fp8d]
//
// "TP8", "TP8+EP8", "DP8+EP8", "2xTP4", "PP2xTP4", "DP2xTP4+EP8:deepep-ll",
// "TP8+EP4xMTP2" (tensor parallelism inside each expert). Sizes of 1 are left
// out; "TP1" alone is one GPU, and "2xTP1" two replicas of one. A MoE plan
// without "+EP" slices every expert over the whole stage. The transport is left
// out where it goes without saying: none with one attention-DP rank or a dense
// model, else all-gather + reduce-scatter; it is written as ToString gives it.
std::string ModeName(const Plan& plan);

// The inverse of ModeName for any name it can produce of a plan with
// expert_parallel x moe_tp == stage GPUs (both 1 for a dense model), at most
// kMaxGpus GPUs in all. INVALID_ARGUMENT else, among others for the experts'
// part of a name where the model is not `is_moe`.
absl::StatusOr<Plan> ParseMode(absl::string_view mode, bool is_moe);

// "none", "agrs" (all-gather + reduce-scatter), "a2a" (NCCL all-to-all),
// "deepep-ll", "deepep-ht", "flashinfer".
absl::string_view ToString(ExpertTransport transport);

}  // namespace fabricwise
