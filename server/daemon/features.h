// SPDX-License-Identifier: Apache-2.0
//
// What a cluster may choose nodes by, as a file that Node Feature Discovery
// turns into labels of the node.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/metrics/outlook.h"
#include "server/profile/profile.h"

namespace fabricwise {

// Lines of NAME=VALUE:
//
//   fabricwise.fabric=nvlink            as the profile's fingerprint has it
//   fabricwise.fingerprint=0123456789abcdef
//   fabricwise.mode.SCENARIO=TP8.EP8    for each scenario that is answered,
//   fabricwise.engine.SCENARIO=vllm     with what a label's value may not hold
//                                       as '.'
//
// What is not known has no line.
std::string NodeFeatures(const Profile& profile, const Outlook& outlook);

// Makes `text` the whole of the file: whoever reads it reads the old text or
// the new one. A hidden file beside it, which feature discovery passes over, is
// what is written. Errors name the path. FAILED_PRECONDITION: it is no plain
// file.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

}  // namespace fabricwise
