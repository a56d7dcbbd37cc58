// SPDX-License-Identifier: Apache-2.0
//
// Any profile file: refused with a status, or read, and then written and read
// again as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/profile/profile_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto first = fabricwise::ReadProfile("fuzz", text);
  if (!first.ok()) return 0;
  const auto second =
      fabricwise::ReadProfile("fuzz", fabricwise::WriteProfile(*first));
  if (!second.ok() || second->measurements != first->measurements ||
      second->fingerprint != first->fingerprint) {
    std::abort();
  }
  return 0;
}
