// SPDX-License-Identifier: Apache-2.0
//
// Bare layers: the kernels that the worker measures, one after another in a
// CUDA graph, without a serving engine's rules. Every plan that divides is
// allowed.
#include <array>

#include "server/engines/divisibility.h"
#include "server/engines/engines.h"
#include "server/engines/recipe_builder.h"

namespace fabricwise {
namespace {

class Reference final : public Engine {
 public:
  EngineId id() const override { return EngineId::kReference; }
  absl::string_view version() const override { return "1"; }

  absl::Span<const ExpertTransport> Transports(
      int attention_dp) const override {
    static constexpr std::array kReplicated = {ExpertTransport::kNone,
                                               ExpertTransport::kNcclAllToAll};
    static constexpr std::array kSplit = {
        ExpertTransport::kAllGatherReduceScatter,
        ExpertTransport::kNcclAllToAll};
    if (attention_dp > 1) return kSplit;
    return kReplicated;
  }

  std::optional<std::string> Refusal(const ModelShape& model, const Plan& plan,
                                     const Fingerprint&,
                                     absl::Span<const int>) const override {
    if (plan.two_batch_overlap || plan.fp8_dispatch) {
      return "bare layers run in one batch and in the model's own format";
    }
    return CommonRefusal(model, plan);
  }

  Recipe MakeRecipe(const ModelShape& model, const Plan& plan,
                    const Fingerprint&, absl::Span<const int>) const override {
    return BuildRecipe(model, plan, {.edges = false});
  }

  LaunchAdvice Launch(const ModelShape&, const Plan&, const Workload&,
                      const Fingerprint&, const Placement&) const override {
    return {.engine_version = std::string(version())};
  }
};

}  // namespace

const Engine& ReferenceEngine() {
  static const Reference engine;
  return engine;
}

}  // namespace fabricwise
