// SPDX-License-Identifier: Apache-2.0
//
// The place of a UNIX socket, before it is listened on.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace fabricwise {

// Removes the socket that a dead daemon left at `path`. OK where there is
// nothing. FAILED_PRECONDITION: a living process listens there, or it is not a
// socket. PERMISSION_DENIED: it may not be removed. NOT_FOUND: no such folder.
absl::Status ClearStaleSocket(const std::string& path);

}  // namespace fabricwise
