// SPDX-License-Identifier: Apache-2.0
//
// What a model is asked to do, and what the asker can bear.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

enum class Phase {
  kSteadyState,  // decode steps that also carry their share of prompt tokens
  kDecode,       // decode only, every sequence at context_tokens
  kPrefill,      // prompts only
};

enum class Objective {
  kThroughput,          // output tokens/s at the given concurrency
  kLatency,             // least TPOT
  kThroughputInLimits,  // throughput among plans within the TTFT/TPOT limits
};

// What a plan's time is made of.
enum class CostScope {
  kStep,           // everything
  kCommunication,  // collectives only, for nodes where nothing else is measured
};

enum class EngineId { kReference, kVllm, kSglang, kTrtllm };

struct Workload {
  int64_t concurrency = 1;  // sequences in flight on the node
  Phase phase = Phase::kSteadyState;
  int64_t input_tokens = 1024;
  int64_t output_tokens = 1024;
  // KV length of every sequence in kDecode; 0: input + output / 2.
  int64_t context_tokens = 0;
  double routing_skew = 0;  // power-law exponent of expert popularity
  // All-reduces per step beyond those that follow from the model's config
  // (draft forwards, sampler); 0 unless a trace shows more.
  int64_t extra_all_reduces = 0;

  friend bool operator==(const Workload&, const Workload&) = default;
};

struct Limits {
  double max_tpot_seconds = std::numeric_limits<double>::infinity();
  double max_ttft_seconds = std::numeric_limits<double>::infinity();
  bool ignore_memory = false;  // rank as if memory were free, and mark

  friend bool operator==(const Limits&, const Limits&) = default;
};

// Plans to look at beside those that engines run unasked: they change what the
// model computes from (fp8_dispatch rounds), or pay from some load on only.
struct PlanOptions {
  bool two_batch_overlap = false;
  bool fp8_dispatch = false;

  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

// Which GPUs a plan may use. Neither set: any number up to the node's.
struct GpuSelection {
  int count = 0;             // exactly this many; 0: not set
  std::vector<int> indices;  // of these alone; empty: of all

  friend bool operator==(const GpuSelection&, const GpuSelection&) = default;
};

// Stands for "as the engine does" in Question::host_seconds_per_step.
inline constexpr double kEngineHostSeconds = -1;

// As many as a person reads, or a scheduler falls back on.
inline constexpr int kDefaultMaxPlans = 8;
inline constexpr int kMaxPlans = 1000;

// What a recommendation is asked for, beside the model.
struct Question {
  Workload workload;
  Limits limits;
  std::vector<EngineId> engines;  // whose rules to use; empty: every serving
                                  // engine's
  Objective objective = Objective::kThroughput;
  CostScope scope = CostScope::kStep;
  GpuSelection gpus;
  PlanOptions options;
  // The mode that runs now ("TP8"); empty: none. The answer stays with it
  // unless another is better by more than the margin.
  std::string current_mode;
  // Host time between steps; kEngineHostSeconds: the engine's own constant.
  double host_seconds_per_step = kEngineHostSeconds;
  // Plans to explain, best first; all others are ranked without being shown.
  int max_plans = kDefaultMaxPlans;
  // Whether the answer explains itself: terms, what is ruled out or cannot be
  // answered, and flip points of a single question. Ranking alone takes a
  // fraction of the time.
  bool explain = true;

  friend bool operator==(const Question&, const Question&) = default;
};

inline constexpr int64_t kMaxConcurrency = 1'000'000;
inline constexpr int64_t kMaxTokens = int64_t{1} << 24;  // per sequence
inline constexpr double kMaxRoutingSkew = 2;
inline constexpr int64_t kMaxExtraAllReduces = 100'000;
inline constexpr double kMaxHostSecondsPerStep = 1;

// INVALID_ARGUMENT naming the field, its value and the allowed range. The
// field is named as in the proto ("workload.concurrency"). Refuses as well
// what could not be honoured: context_tokens outside kDecode, a TPOT limit in
// kPrefill or a TTFT limit in kDecode, kThroughputInLimits without a limit.
absl::Status Validate(const Question& question);

// "steady", "decode", "prefill"; "throughput", "latency", "slo"; "step",
// "communication"; "reference", "vllm", "sglang", "trtllm".
absl::string_view ToString(Phase phase);
absl::string_view ToString(Objective objective);
absl::string_view ToString(CostScope scope);
absl::string_view ToString(EngineId engine);
absl::StatusOr<Phase> ParsePhase(absl::string_view text);
absl::StatusOr<Objective> ParseObjective(absl::string_view text);
absl::StatusOr<CostScope> ParseCostScope(absl::string_view text);
absl::StatusOr<EngineId> ParseEngine(absl::string_view text);

}  // namespace fabricwise
