// SPDX-License-Identifier: Apache-2.0
//
// Any file that is offered for import: refused with a status or taken whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/profile/import.h"
#include "server/profile/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto profile = fabricwise::AssembleProfile(
      {.name = "fuzz", .system = "a", .int4_group_size = 32},
      {{.name = "fuzz", .content = content}});
  if (profile.ok() && !fabricwise::Profile::Build(*profile).ok()) {
    std::abort();  // what an importer lets in must make a profile
  }
  return 0;
}
