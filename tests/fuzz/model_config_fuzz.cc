// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a config.json: refused with INVALID_ARGUMENT, or a valid shape
// that our own form keeps whole.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "server/profile/model_config.h"
#include "server/profile/model_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto shape = fabricwise::ParseHuggingFaceConfig(
      absl::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!shape.ok()) {
    if (!absl::IsInvalidArgument(shape.status())) std::abort();
    return 0;
  }
  const auto again =
      fabricwise::ParseModelFile(fabricwise::PrintModelFile(*shape));
  if (!again.ok() || *again != *shape) std::abort();
  return 0;
}
