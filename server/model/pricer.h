// SPDX-License-Identifier: Apache-2.0
//
// Prices recipes: step time = sum over kernels and collectives of count times
// the measured value of the path that the engine would take.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/domain/recipe.h"
#include "server/domain/workload.h"
#include "server/model/load.h"
#include "server/model/term.h"
#include "server/profile/profile.h"

namespace fabricwise {

// A step is priced in parts, each of which other plans may have in common:
// three of what a rank does by itself (with its tokens, its rows of logits, its
// sequences), communication, and the rest.
inline constexpr size_t kStepParts = 5;

// One step of a plan, without its explanation.
struct StepPrice {
  bool answerable = true;
  double seconds = 0;
  // One standard deviation from the spread of the curves alone, in seconds.
  double sigma_seconds = 0;
  Standing standing = Standing::kMeasured;
  bool upper_bound = false;  // some of it is
  // The slowest stage and the way through all, for pipelines filled once, with
  // the host's time; both are `seconds` without a pipeline.
  double slowest_stage_seconds = 0;
  double through_seconds = 0;
  // Without a pipeline and without overlap the parts and the host's time add up
  // to `seconds`.
  std::array<double, kStepParts> part_seconds = {};
};

// Some parts of a step, before they are waited for in turn.
struct StepSums {
  static constexpr size_t kSections =
      static_cast<size_t>(Section::kBoundary) + 1;
  std::array<double, kSections> seconds = {}, variances = {};
  std::array<double, kStepParts> part_seconds = {};
  Standing standing = Standing::kMeasured;
  bool known = true;
  bool upper_bound = false;
};

// StepPrice with its terms, which add up to `seconds`, or with what is missing.
struct ExplainedPrice {
  StepPrice price;
  std::vector<Term> terms;
  std::vector<std::string> missing;  // measurements, canonical, no duplicates
};

// Where a recipe runs, for curves that were measured on named GPUs or with
// several groups busy at once.
struct Site {
  struct Group {
    // As GpuGroup names them; empty: not known, or not measured by name.
    std::string members;
    // Otherwise than the node's first GPUs, on which any group is measured.
    bool linked_otherwise = false;
  };
  int replicas = 1;
  // The tensor-parallel group, the stage, and the two neighbours in a pipeline
  // whose links are the poorest.
  Group tensor_group, stage, neighbours;
};

// Prices any number of recipes over one profile. What several recipes or loads
// have in common is looked up once, and some of what was priced remembered. Not
// thread-safe.
class Pricer {
 public:
  // Borrows `profile`.
  Pricer(const Profile& profile, CostScope scope, double routing_skew);
  ~Pricer();
  Pricer(const Pricer&) = delete;
  Pricer& operator=(const Pricer&) = delete;

  // A recipe bound to its curves. Borrows from the pricer and the recipe.
  class Bound;
  std::shared_ptr<const Bound> Bind(const Recipe& recipe,
                                    const Site& site = {});

  // False: no step that is launched so can be priced.
  static bool MayBeAnswerable(const Bound& bound, Launch launch);

  // What the parts are of: equal ones of two plans whose stages hold the same
  // sequences take the same time. Null: nothing is in it. Without a pipeline.
  using PartIds = std::array<const void*, kStepParts>;
  static PartIds Parts(const Bound& bound);

  // `launch`: how the step's collectives are launched.
  StepPrice Price(const Bound& bound, const StepLoad& load, Launch launch);

  // The same in two steps, the first of which is the same for all plans whose
  // ranks do the same by themselves.
  static bool SameOwnWork(const Bound& a, const Bound& b);
  StepSums PriceOwn(const Bound& bound, const StepLoad& load, Launch launch);
  StepPrice Price(const Bound& bound, const StepLoad& load, Launch launch,
                  StepSums own);

  // Measurements that the price would need but has not, canonical, each once.
  std::vector<std::string> Missing(const Bound& bound, const StepLoad& load,
                                   Launch launch);
  // `replicas`: what terms say of groups that are busy at once.
  ExplainedPrice Explain(const Bound& bound, const StepLoad& load,
                         Launch launch, int replicas = 1);

 private:
  // Of a step that is divided (Recipe::overlap). `explained`: null, or where
  // terms go.
  static StepPrice PriceHalves(const Bound& bound, const StepLoad& load,
                               Launch launch, std::vector<Term>* explained);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fabricwise
