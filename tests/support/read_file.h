// SPDX-License-Identifier: Apache-2.0
//
// Whole files for tests, which run in the root of the source tree.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace fabricwise {

// Empty where there is no such file.
inline std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace fabricwise
