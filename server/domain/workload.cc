// SPDX-License-Identifier: Apache-2.0
#include "server/domain/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/domain/plan.h"

namespace fabricwise {
namespace {

constexpr std::array kPhases = {Phase::kSteadyState, Phase::kDecode,
                                Phase::kPrefill};
constexpr std::array kObjectives = {Objective::kThroughput, Objective::kLatency,
                                    Objective::kThroughputInLimits};
constexpr std::array kScopes = {CostScope::kStep, CostScope::kCommunication};
constexpr std::array kEngines = {EngineId::kReference, EngineId::kVllm,
                                 EngineId::kSglang, EngineId::kTrtllm};

template <typename T, size_t kSize>
absl::StatusOr<T> ParseOneOf(absl::string_view field, absl::string_view text,
                             const std::array<T, kSize>& values) {
  for (const T value : values) {
    if (text == ToString(value)) return value;
  }
  return NotAllowed(field, Quoted(text),
                    absl::StrJoin(values, ", ", [](std::string* out, T value) {
                      absl::StrAppend(out, ToString(value));
                    }));
}

absl::Status Validate(const Workload& workload) {
  RETURN_IF_ERROR(CheckRange("workload.concurrency", workload.concurrency,
                             int64_t{1}, kMaxConcurrency));
  RETURN_IF_ERROR(CheckRange("workload.input_tokens", workload.input_tokens,
                             int64_t{1}, kMaxTokens));
  RETURN_IF_ERROR(CheckRange("workload.output_tokens", workload.output_tokens,
                             int64_t{1}, kMaxTokens));
  RETURN_IF_ERROR(CheckRange("workload.routing_skew", workload.routing_skew,
                             0.0, kMaxRoutingSkew));
  RETURN_IF_ERROR(CheckRange("workload.extra_all_reduces",
                             workload.extra_all_reduces, int64_t{0},
                             kMaxExtraAllReduces));
  RETURN_IF_ERROR(CheckRange("workload.context_tokens", workload.context_tokens,
                             int64_t{0}, kMaxTokens));
  if (workload.context_tokens != 0 && workload.phase != Phase::kDecode) {
    return NotAllowed("workload.context_tokens",
                      absl::StrCat(workload.context_tokens, " in phase ",
                                   ToString(workload.phase)),
                      "only in phase decode");
  }
  return absl::OkStatus();
}

// A limit on a time that the phase does not have could never be checked, so it
// is refused and not passed over.
absl::Status CheckLimit(absl::string_view field, double seconds, Phase phase,
                        Phase phase_without) {
  if (std::isnan(seconds) || seconds <= 0) {
    return NotAllowed(field, absl::StrCat(seconds), "over 0");
  }
  if (std::isfinite(seconds) && phase == phase_without) {
    return NotAllowed(field,
                      absl::StrCat(seconds, " in phase ", ToString(phase)),
                      absl::StrCat("no such limit there; phase ",
                                   ToString(phase), " predicts no such time"));
  }
  return absl::OkStatus();
}

absl::Status CheckIndices(const GpuSelection& gpus) {
  for (size_t i = 0; i < gpus.indices.size(); ++i) {
    const int index = gpus.indices[i];
    RETURN_IF_ERROR(CheckRange("gpus.indices", int64_t{index}, int64_t{0},
                               int64_t{kMaxGpus} - 1));
    const auto before = gpus.indices.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(gpus.indices.begin(), before, index) != before) {
      return NotAllowed("gpus.indices", absl::StrCat(index, " given twice"),
                        "each GPU once");
    }
  }
  const auto named = static_cast<int64_t>(gpus.indices.size());
  if (named > 0 && gpus.count > named) {
    return NotAllowed(
        "gpus.count", absl::StrCat(gpus.count),
        absl::StrCat("1 to ", named, ", the GPUs that gpus.indices names"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const Question& question) {
  RETURN_IF_ERROR(Validate(question.workload));
  const Phase phase = question.workload.phase;
  const Limits& limits = question.limits;
  RETURN_IF_ERROR(CheckLimit("limits.max_tpot_seconds", limits.max_tpot_seconds,
                             phase, Phase::kPrefill));
  RETURN_IF_ERROR(CheckLimit("limits.max_ttft_seconds", limits.max_ttft_seconds,
                             phase, Phase::kDecode));
  if (question.objective == Objective::kThroughputInLimits &&
      std::isinf(limits.max_tpot_seconds) &&
      std::isinf(limits.max_ttft_seconds)) {
    return NotAllowed("objective", "slo without a limit",
                      "slo with limits.max_tpot_seconds or "
                      "limits.max_ttft_seconds");
  }
  for (size_t i = 0; i < question.engines.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (question.engines[i] == question.engines[j]) {
        return NotAllowed(
            "engine",
            absl::StrCat(ToString(question.engines[i]), " given twice"),
            "each engine once");
      }
    }
  }
  RETURN_IF_ERROR(CheckRange("gpus.count", int64_t{question.gpus.count},
                             int64_t{0}, int64_t{kMaxGpus}));
  RETURN_IF_ERROR(CheckIndices(question.gpus));
  RETURN_IF_ERROR(CheckRange("max_plans", int64_t{question.max_plans},
                             int64_t{1}, int64_t{kMaxPlans}));
  if (!question.current_mode.empty()) {
    const auto plan = ParseMode(question.current_mode, /*is_moe=*/true);
    if (!plan.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("current_plan: ", plan.status().message()));
    }
  }
  if (question.host_seconds_per_step == kEngineHostSeconds) {
    return absl::OkStatus();
  }
  return CheckRange("host_seconds_per_step", question.host_seconds_per_step,
                    0.0, kMaxHostSecondsPerStep);
}

absl::string_view ToString(Phase phase) {
  switch (phase) {
    case Phase::kSteadyState:
      return "steady";
    case Phase::kDecode:
      return "decode";
    case Phase::kPrefill:
      return "prefill";
  }
  return "unknown";
}

absl::string_view ToString(Objective objective) {
  switch (objective) {
    case Objective::kThroughput:
      return "throughput";
    case Objective::kLatency:
      return "latency";
    case Objective::kThroughputInLimits:
      return "slo";
  }
  return "unknown";
}

absl::string_view ToString(CostScope scope) {
  switch (scope) {
    case CostScope::kStep:
      return "step";
    case CostScope::kCommunication:
      return "communication";
  }
  return "unknown";
}

absl::string_view ToString(EngineId engine) {
  switch (engine) {
    case EngineId::kReference:
      return "reference";
    case EngineId::kVllm:
      return "vllm";
    case EngineId::kSglang:
      return "sglang";
    case EngineId::kTrtllm:
      return "trtllm";
  }
  return "unknown";
}

absl::StatusOr<Phase> ParsePhase(absl::string_view text) {
  return ParseOneOf("phase", text, kPhases);
}

absl::StatusOr<Objective> ParseObjective(absl::string_view text) {
  return ParseOneOf("objective", text, kObjectives);
}

absl::StatusOr<CostScope> ParseCostScope(absl::string_view text) {
  return ParseOneOf("cost_scope", text, kScopes);
}

absl::StatusOr<EngineId> ParseEngine(absl::string_view text) {
  return ParseOneOf("engine", text, kEngines);
}

}  // namespace fabricwise
