// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace fabricwise {

void ExpectGolden(const std::string& name, const std::string& actual) {
  const std::string path = "tests/data/client/" + name;
  if (std::getenv("FABRICWISE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << actual;
    ADD_FAILURE() << path << " written; look at it, then run again";
    return;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path << " is missing";
  std::ostringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(actual, expected.str()) << "differs from " << path;
}

}  // namespace fabricwise
