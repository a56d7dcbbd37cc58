// SPDX-License-Identifier: Apache-2.0
//
// Model shapes as a table.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "client/render/style.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

std::string RenderModels(const Style& style,
                         absl::Span<const ModelShape> models);

}  // namespace fabricwise
