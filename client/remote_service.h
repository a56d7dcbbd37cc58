// SPDX-License-Identifier: Apache-2.0
//
// A daemon, asked over gRPC.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/service.h"

namespace fabricwise {

// Connects on the first call. `target`: "HOST:PORT" or "unix:///path"; any
// other form is INVALID_ARGUMENT, and so is a part of `tls` without what
// belongs to it. Files that cannot be read are ReadFile's errors. A daemon that
// cannot be reached, or shows no certificate that `tls` trusts, is UNAVAILABLE,
// naming `target`.
absl::StatusOr<std::unique_ptr<Service>> ConnectTo(const std::string& target,
                                                   const TlsIdentity& tls,
                                                   absl::Duration deadline);

// Where a daemon listens that nobody told otherwise: its UNIX socket where
// there is one, else loopback.
std::string DefaultTarget();

}  // namespace fabricwise
