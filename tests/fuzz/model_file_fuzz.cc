// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a model file: refused with INVALID_ARGUMENT, or a valid shape
// that prints to a text that parses to it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "server/profile/model_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto shape = fabricwise::ParseModelFile(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!shape.ok()) {
    if (!absl::IsInvalidArgument(shape.status())) std::abort();
    return 0;
  }
  const auto again =
      fabricwise::ParseModelFile(fabricwise::PrintModelFile(*shape));
  if (!again.ok() || *again != *shape) std::abort();
  return 0;
}
