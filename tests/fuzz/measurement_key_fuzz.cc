// SPDX-License-Identifier: Apache-2.0
//
// Any text as a measurement key: refused, or exactly what the key prints.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "server/domain/measurement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto key = fabricwise::ParseMeasurementKey(text);
  if (key.ok() && fabricwise::ToString(*key) != text) std::abort();
  return 0;
}
