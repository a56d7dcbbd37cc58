// SPDX-License-Identifier: Apache-2.0
//
// The model shapes that ship with the program: deploy/models/*.json, compiled
// in.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

// All presets by name, ascending without regard to case. Never destroyed;
// safe to read from any thread.
absl::Span<const ModelShape> Presets();

// Presets under the names of other repositories that hold the same shape in the
// same formats: each with that repository, and its last part for a name. As
// above.
absl::Span<const ModelShape> PresetTwins();

// The preset or twin called `name`, without regard to case: by its name, or by
// its repository on Hugging Face with or without the organisation; never null
// where OK. NOT_FOUND naming the presets whose names are nearest: nothing is
// taken for another, be it near.
absl::StatusOr<const ModelShape*> FindPreset(absl::string_view name);

}  // namespace fabricwise
