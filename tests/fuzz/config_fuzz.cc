// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a configuration file: refused with its place, or options that
// are written and read back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "server/daemon/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using fabricwise::Config;
  static const auto& defaults = *new Config(fabricwise::DefaultConfig(
      {.root = true, .variable = [](const char*) { return std::string(); }}));
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = fabricwise::ParseConfigFile("f", text, defaults);
  if (!config.ok()) {
    if (!absl::IsInvalidArgument(config.status()) ||
        !absl::StartsWith(config.status().message(), "f:")) {
      std::abort();
    }
    return 0;
  }
  const std::string written = fabricwise::ConfigFileText(*config);
  const auto again = fabricwise::ParseConfigFile("f", written, defaults);
  if (!again.ok() || fabricwise::ConfigFileText(*again) != written ||
      !fabricwise::Changes(*config, *again).empty()) {
    std::abort();
  }
  return 0;
}
