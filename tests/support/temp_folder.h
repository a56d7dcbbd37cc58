// SPDX-License-Identifier: Apache-2.0
//
// A folder of a test's own, gone with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace fabricwise {

class TempFolder {
 public:
  TempFolder() {
    std::string path = testing::TempDir() + "fabricwise_XXXXXX";
    if (mkdtemp(path.data()) == nullptr) std::abort();
    path_ = path;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string File(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fabricwise
