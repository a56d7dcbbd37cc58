// SPDX-License-Identifier: Apache-2.0
//
// A made-up node for tests of what is built upon profiles.
#pragma once

#include <memory>
#include <string>

#include "server/profile/profile.h"

namespace fabricwise {

// A node of `gpu_count` (a power of two) "NVIDIA H200" on which every plan of a
// bf16 model can be costed: each collective among 2, 4 ... all GPUs in graphs
// and eagerly, products, one shard of experts, memory, launch. The all-to-all
// has a cliff at 64 KiB. All measured at 2026-11-29 00:00 UTC, but the launch,
// which is of another node.
ProfileData SampleProfileData(std::string name, int gpu_count = 2);

// The same, built.
std::shared_ptr<const Profile> SampleProfile(std::string name,
                                             int gpu_count = 2);

}  // namespace fabricwise
