// SPDX-License-Identifier: Apache-2.0
//
// Answers in this process, from a profile file, by the daemon's own code.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/service.h"
#include "server/profile/profile.h"

namespace fabricwise {

// The profile in the file `name`, or the shipped one of that name.
// NOT_FOUND: neither exists (names the shipped ones). INVALID_ARGUMENT: the
// file cannot be read or is no profile of this version.
absl::StatusOr<std::shared_ptr<const Profile>> LoadProfile(
    const std::string& name);

// Never null.
std::unique_ptr<Service> AnswerFrom(std::shared_ptr<const Profile> profile);

}  // namespace fabricwise
