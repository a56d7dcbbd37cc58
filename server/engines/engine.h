// SPDX-License-Identifier: Apache-2.0
//
// What a serving engine would really run: which plans it allows, what one step
// of a plan consists of, and how to start it. One file an engine, each with the
// version it describes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/domain/fingerprint.h"
#include "server/domain/model_shape.h"
#include "server/domain/placement.h"
#include "server/domain/plan.h"
#include "server/domain/recipe.h"
#include "server/domain/workload.h"

namespace fabricwise {

struct LaunchAdvice {
  std::vector<std::string> commands;     // one per server
  std::vector<std::string> environment;  // "NAME=value", for all of them
  std::string engine_version;
};

// Stateless; safe to use from any thread.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual EngineId id() const = 0;
  virtual absl::string_view version() const = 0;
  // What to doubt in its rules, a literal; empty: nothing, they were read from
  // one version.
  virtual absl::string_view caveat() const { return {}; }

  // How expert tokens may travel where a stage has `attention_dp` ranks, in
  // order of preference; empty: not at all.
  virtual absl::Span<const ExpertTransport> Transports(
      int attention_dp) const = 0;

  // Whether there is something to ask for, with experts' tokens travelling by
  // `transport`: steps in two half batches that overlap, tokens sent in 8 bits.
  // What an engine does unasked is no option.
  virtual bool OffersTwoBatchOverlap(ExpertTransport) const { return false; }
  virtual bool OffersFp8Dispatch(ExpertTransport) const { return false; }

  // Why this engine would not run `plan` on `gpus`, the GPUs of one replica in
  // rank order (Placement), with the failing dimension in numbers; nullopt
  // where it would. The plan is consistent in itself (e * m = t * d for a MoE
  // model, e = m = 1 for a dense one), and `gpus` are as many as it asks for.
  virtual std::optional<std::string> Refusal(
      const ModelShape& model, const Plan& plan, const Fingerprint& node,
      absl::Span<const int> gpus) const = 0;

  // What one step of one replica runs on `gpus`, for a plan that is not
  // refused there.
  virtual Recipe MakeRecipe(const ModelShape& model, const Plan& plan,
                            const Fingerprint& node,
                            absl::Span<const int> gpus) const = 0;

  // How to start a plan that is not refused, for `concurrency` sequences on
  // all replicas together. The model is called by its repository, or MODEL
  // where that is not known.
  virtual LaunchAdvice Launch(const ModelShape& model, const Plan& plan,
                              const Workload& workload, const Fingerprint& node,
                              const Placement& placement) const = 0;
};

// Never fails: every EngineId has one, living for the whole process.
const Engine& GetEngine(EngineId id);

// Every engine that there is.
absl::Span<const EngineId> AllEngines();

// Those that serve: what a question that names no engine is about. Bare layers
// (kReference) leave out what a serving engine must do, and would always win.
absl::Span<const EngineId> ServingEngines();

}  // namespace fabricwise
