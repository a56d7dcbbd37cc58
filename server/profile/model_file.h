// SPDX-License-Identifier: Apache-2.0
//
// Our own form of a model shape: a JSON object with the proto's field names,
// parts that the model does not have left out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

// Formats are objects like {"number": "int4_group", "group_size": 32}; absent
// ones are bf16, an absent v_head_dim is head_dim. INVALID_ARGUMENT naming the
// key that is unknown, of another type or out of range, with its value and what
// is allowed; every shape that comes out is valid.
absl::StatusOr<ModelShape> ParseModelFile(absl::string_view text);

// The exact inverse for a valid shape whose texts are UTF-8 (other bytes are
// replaced): indented, name first, ends with a newline.
std::string PrintModelFile(const ModelShape& shape);

}  // namespace fabricwise
