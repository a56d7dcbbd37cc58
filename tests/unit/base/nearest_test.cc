// SPDX-License-Identifier: Apache-2.0
#include "server/base/nearest.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NearestNames, AreThoseWithTheFewestEdits) {
  const std::vector<std::string> names = {"listen", "log-level", "log-format",
                                          "metrics-listen"};
  EXPECT_THAT(NearestNames("lissten", names, 1), ElementsAre("listen"));
  EXPECT_THAT(NearestNames("LOG-FORMAT", names, 1), ElementsAre("log-format"));
  EXPECT_THAT(NearestNames("log-leval", names, 2),
              ElementsAre("log-level", "log-format"));
  EXPECT_THAT(NearestNames("listen", {"list", "listen-address"}, 2),
              ElementsAre("list", "listen-address"))
      << "what is missing at the end counts least";
}

TEST(NearestNames, AreNoMoreThanThereAre) {
  EXPECT_THAT(NearestNames("a", {}, 3), IsEmpty());
  EXPECT_THAT(NearestNames("", {"b", "a"}, 3), ElementsAre("b", "a"));
  EXPECT_THAT(NearestNames(std::string(1 << 20, 'x'), {"y", "x"}, 1),
              ElementsAre("x"));
}

}  // namespace
}  // namespace fabricwise
