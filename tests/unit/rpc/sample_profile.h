// SPDX-License-Identifier: Apache-2.0
//
// A small node for tests of what is built upon profiles.
#pragma once

#include <memory>
#include <string>

#include "server/profile/profile.h"

namespace fabricwise {

// Two "NVIDIA H200" with 141 GB; the all-reduce and all-to-all curves of two
// GPUs, with a cliff on the latter, one GEMM, one experts and one attention
// point, memory and launch. Measured on 2026-11-29; one kReference point.
ProfileData SampleProfileData(std::string name);

// The same, built.
std::shared_ptr<const Profile> SampleProfile(std::string name);

}  // namespace fabricwise
