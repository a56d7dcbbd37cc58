// SPDX-License-Identifier: Apache-2.0
#include "client/model.h"

#include "client/file.h"
#include "server/base/status_macros.h"
#include "server/profile/model_config.h"
#include "server/profile/preset.h"

namespace fabricwise {

absl::StatusOr<ModelShape> FindShape(const std::string& preset,
                                     const std::string& config_path) {
  if (preset.empty() == config_path.empty()) {
    return absl::InvalidArgumentError(
        "one model is required, as a preset or by --config");
  }
  if (!preset.empty()) {
    ASSIGN_OR_RETURN(const ModelShape* shape, FindPreset(preset));
    return *shape;
  }
  ASSIGN_OR_RETURN(std::string config, ReadFile(config_path, kMostConfigBytes));
  return ParseHuggingFaceConfig(config, "");
}

}  // namespace fabricwise
