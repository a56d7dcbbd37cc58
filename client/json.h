// SPDX-License-Identifier: Apache-2.0
//
// Messages as JSON for programs.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"

namespace fabricwise {

enum class JsonForm {
  kIndented,
  kOneLine,
};

// The proto's JSON form with its own field names; fields at zero are written,
// absent ones are not. Ends with a newline.
absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message,
                                   JsonForm form);

}  // namespace fabricwise
