// SPDX-License-Identifier: Apache-2.0
#include "server/engines/engine.h"

#include <array>

#include "server/engines/engines.h"

namespace fabricwise {

const Engine& GetEngine(EngineId id) {
  switch (id) {
    case EngineId::kReference:
      return ReferenceEngine();
    case EngineId::kVllm:
      return VllmEngine();
    case EngineId::kSglang:
      return SglangEngine();
    case EngineId::kTrtllm:
      return TrtllmEngine();
  }
  return ReferenceEngine();
}

absl::Span<const EngineId> AllEngines() {
  static constexpr std::array kAll = {EngineId::kReference, EngineId::kVllm,
                                      EngineId::kSglang, EngineId::kTrtllm};
  return kAll;
}

absl::Span<const EngineId> ServingEngines() {
  static constexpr std::array kServing = {EngineId::kVllm, EngineId::kSglang,
                                          EngineId::kTrtllm};
  return kServing;
}

}  // namespace fabricwise
