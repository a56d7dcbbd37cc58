// SPDX-License-Identifier: Apache-2.0
//
// Model shapes as a table.
#pragma once

#include <string>
#include <vector>

#include "client/render/style.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

std::string RenderModels(const Style& style,
                         const std::vector<ModelShape>& models);

}  // namespace fabricwise
