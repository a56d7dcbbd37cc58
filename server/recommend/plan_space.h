// SPDX-License-Identifier: Apache-2.0
//
// The plans that a model may run as on a node, bound to the node's curves: what
// questions of any load, limits and objective about one model have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/domain/model_shape.h"
#include "server/domain/placement.h"
#include "server/domain/plan.h"
#include "server/domain/recipe.h"
#include "server/domain/workload.h"
#include "server/engines/engine.h"
#include "server/model/pricer.h"
#include "server/profile/profile.h"
#include "server/recommend/placement.h"
#include "server/recommend/ranking.h"

namespace fabricwise {

struct RuledOut {
  EngineId engine;
  std::string mode;
  std::string reason;
};

// A change of the best mode; found as FindChanges (ranking.h) promises.
struct FlipPoint {
  int64_t concurrency;             // the smallest at which to_mode is best
  std::string from_mode, to_mode;  // empty: none runs, or none is known
  // Whose plans they are; nullopt with an empty mode.
  std::optional<EngineId> from_engine, to_engine;
};

// What of a valid question decides its plan space; fields as there.
struct PlanScope {
  std::vector<EngineId> engines;
  GpuSelection gpus;
  PlanOptions options;
  CostScope cost = CostScope::kStep;
  double routing_skew = 0;
  int64_t extra_all_reduces = 0;
  double host_seconds_per_step = kEngineHostSeconds;

  friend bool operator==(const PlanScope&, const PlanScope&) = default;
};
PlanScope ScopeOf(const Question& question);

// Remembers prices from one question to the next, and so is not thread-safe.
class PlanSpace {
 public:
  // INVALID_ARGUMENT: a field of the model or scope is out of range.
  // FAILED_PRECONDITION: the profile names no GPU. Borrows both.
  static absl::StatusOr<std::unique_ptr<PlanSpace>> Create(
      const ModelShape& model, const PlanScope& scope, const Profile& profile);

  // What replicas of a plan have in common.
  struct Replica {
    const Engine* engine;
    absl::Span<const int> gpus;
    int at_once;  // such replicas, where that makes a difference
    Recipe recipe;
    std::shared_ptr<const Pricer::Bound> bound;
  };

  // A plan that an engine runs on this node, memory aside.
  struct Candidate {
    const Replica* replica;
    const Placement* placement;
    Plan plan;
    // From 0: those with the same number spread sequences over ranks in the
    // same way, and their ranks do the same by themselves.
    size_t rank_work;
    int64_t max_step_concurrency;  // that the engine takes in its steps
    // Whether steps in graphs, and eager ones, can be priced at any load.
    bool graph_answerable, eager_answerable;

    const Engine& engine() const { return *replica->engine; }
    std::string mode() const { return ModeName(plan); }
  };

  const ModelShape& model() const { return model_; }
  const PlanScope& scope() const { return scope_; }
  const Profile& profile() const { return profile_; }
  int64_t gpu_memory_bytes() const { return gpu_memory_bytes_; }
  Pricer& pricer() { return pricer_; }

  const std::deque<Replica>& replicas() const { return replicas_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  size_t rank_work_count() const { return rank_works_.size(); }
  // Parallel to candidates(); their parts are of one step.
  const std::vector<Contestant>& contestants() const { return contestants_; }
  // The flip points found last, for the next question that differs only in
  // concurrency.
  struct Flips {
    Question question;  // its concurrency: up to where they were looked for
    std::vector<FlipPoint> points;
  };
  std::optional<Flips>& last_flips() { return last_flips_; }

  // What engines refuse.
  const std::vector<RuledOut>& refused() const { return refused_; }

 private:
  PlanSpace(const ModelShape& model, const PlanScope& scope,
            const Profile& profile);
  void AddPlans(const Engine& engine, int gpu_count);
  const Replica& FindReplica(const Engine& engine, Plan plan,
                             absl::Span<const int> gpus);
  void AddAllReduces(Recipe& recipe) const;
  std::array<int, kScoreParts> PartsOf(const Replica& replica,
                                       const Plan& plan);
  size_t RankWorkOf(const Replica& replica, const Plan& plan);

  const ModelShape& model_;
  const PlanScope scope_;
  const Profile& profile_;
  Placer placer_;
  Pricer pricer_;
  int64_t gpu_memory_bytes_ = 0;  // of the smallest GPU
  std::deque<Replica> replicas_;  // stable addresses
  std::vector<Candidate> candidates_;
  std::vector<Contestant> contestants_;
  std::vector<RuledOut> refused_;
  std::optional<Flips> last_flips_;
  // Plans with the same of these hold the same sequences on each rank.
  struct SharedPart {
    const void* id;
    int replicas, attention_dp;
    int64_t chunk_tokens;
    bool mixed_steps;
    friend bool operator==(const SharedPart&, const SharedPart&) = default;
  };
  std::vector<SharedPart> shared_parts_;
  // One candidate of each number.
  std::vector<std::pair<const Replica*, Plan>> rank_works_;
};

}  // namespace fabricwise
