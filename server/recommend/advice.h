// SPDX-License-Identifier: Apache-2.0
//
// The recommendation: enumerate, cost, rank, explain.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/domain/model_shape.h"
#include "server/domain/placement.h"
#include "server/domain/plan.h"
#include "server/domain/workload.h"
#include "server/engines/engine.h"
#include "server/model/memory.h"
#include "server/model/term.h"
#include "server/profile/profile.h"
#include "server/recommend/plan_space.h"

namespace fabricwise {

struct PlanAdvice {
  EngineId engine = EngineId::kReference;
  Plan plan;
  std::string mode;
  double tpot_seconds = 0;
  std::optional<double> ttft_seconds;
  double output_tokens_per_second = 0;
  // 90 % interval; no lower end where a term is an upper bound.
  std::optional<double> tpot_low_seconds;
  double tpot_high_seconds = 0;
  MemoryUse memory;
  std::vector<Term> terms;  // add up to the step time
  Standing basis = Standing::kMeasured;
  Placement placement;  // empty: any GPUs will do
  LaunchAdvice launch;
  absl::string_view caveat;         // the engine's, a literal
  std::vector<std::string> misses;  // limits not met, in words
};

struct NotAnswerable {
  EngineId engine;
  std::string mode;
  std::vector<std::string> missing_measurements;
};

struct Confidence {
  double probability_first_is_best = 1;
  double margin_ratio = 0;
  double model_residual_ratio = 0;
  bool residual_measured = false;
};

struct Advice {
  std::vector<PlanAdvice> plans;  // best first
  std::vector<RuledOut> ruled_out;
  std::vector<NotAnswerable> not_answerable;
  std::vector<FlipPoint> flip_points;
  Confidence confidence;
};

struct SweepAdvice {
  struct Point {
    int64_t concurrency;
    std::vector<PlanAdvice> plans;  // at most three
    std::string unanswered;         // why none
  };
  std::vector<Point> points;  // ascending
  std::vector<FlipPoint> flip_points;
};

// INVALID_ARGUMENT: a field of the question or model is out of range.
// FAILED_PRECONDITION: no plan can be costed (names the missing measurements)
// or none may run (names the reasons).
absl::StatusOr<Advice> Recommend(const ModelShape& model,
                                 const Question& question,
                                 const Profile& profile);

// The same for one question of several: `space` is of the model, the profile
// and ScopeOf(question). `proceed` is asked every some prices: a status of it
// that is not OK ends the work and is returned.
absl::StatusOr<Advice> Recommend(PlanSpace& space, const Question& question,
                                 absl::FunctionRef<absl::Status()> proceed);

// question.workload.concurrency is ignored. Fails as Recommend does only where
// no concurrency can be answered. The first plan of a point is the one that the
// flip points lead to, which may be another than Recommend's within a tie.
absl::StatusOr<SweepAdvice> Sweep(const ModelShape& model,
                                  const Question& question,
                                  absl::Span<const int64_t> concurrencies,
                                  const Profile& profile);

// `proceed` as above.
absl::StatusOr<SweepAdvice> Sweep(PlanSpace& space, const Question& question,
                                  absl::Span<const int64_t> concurrencies,
                                  absl::FunctionRef<absl::Status()> proceed);

}  // namespace fabricwise
