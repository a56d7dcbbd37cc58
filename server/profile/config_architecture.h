// SPDX-License-Identifier: Apache-2.0
//
// Whether a Hugging Face config.json is of a model that a shape can say at all.
// Internal to its reading.
#pragma once

#include "absl/status/status.h"
#include "server/profile/config_keys.h"

namespace fabricwise::config_json {

// OK: a decoder that writes text, of layers with attention, softmax or linear.
// INVALID_ARGUMENT naming the key that says otherwise, its value and what is
// allowed. `family`: the model_type's, nullptr where it is not known: then
// every key must be one that the plain reading understands.
absl::Status CheckArchitecture(const Keys& keys, const Family* family);

}  // namespace fabricwise::config_json
