// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as the name of a mode: refused, or a plan of that very name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/domain/plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string mode(reinterpret_cast<const char*>(data), size);
  for (const bool is_moe : {false, true}) {
    const auto plan = fabricwise::ParseMode(mode, is_moe);
    if (!plan.ok()) {
      if (!absl::IsInvalidArgument(plan.status())) std::abort();
    } else if (fabricwise::ModeName(*plan) != mode) {
      std::abort();
    }
  }
  return 0;
}
