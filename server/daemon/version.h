// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace fabricwise {

// The version of the daemon, as CMake's project() says it.
inline constexpr char kVersion[] = FABRICWISE_VERSION;

}  // namespace fabricwise
