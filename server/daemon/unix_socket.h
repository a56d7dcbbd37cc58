// SPDX-License-Identifier: Apache-2.0
//
// A UNIX socket: its place before it is listened on, its group afterwards.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace fabricwise {

// Removes the socket that a dead daemon left at `path`. OK where there is
// nothing. FAILED_PRECONDITION: a living process listens there, or it is not a
// socket. PERMISSION_DENIED: it may not be removed. NOT_FOUND: no such folder.
absl::Status ClearStaleSocket(const std::string& path);

// A group of this machine, by its name or its number; nullopt: none.
std::optional<gid_t> FindGroup(const std::string& name);

// Gives the socket at `path` to the group `name`. NOT_FOUND: no such group.
// PERMISSION_DENIED: this user may not, as it is not in the group.
absl::Status GiveToGroup(const std::string& path, const std::string& name);

}  // namespace fabricwise
