// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/address.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ListenAddress Parse(absl::string_view text) {
  const auto address = ParseListenAddress("listen", text);
  EXPECT_TRUE(address.ok()) << address.status();
  return *address;
}

TEST(ListenAddress, ReadsUnixPathsInBothForms) {
  EXPECT_EQ(Parse("unix:/run/x.sock").unix_path, "/run/x.sock");
  EXPECT_EQ(Parse("unix:///run/x.sock").unix_path, "/run/x.sock");
  EXPECT_EQ(Parse("unix:x.sock").unix_path, "x.sock");
  EXPECT_EQ(Parse("unix:///run/x.sock").ToString(), "unix:/run/x.sock");
  EXPECT_TRUE(Parse("unix:x").is_local());
}

TEST(ListenAddress, ReadsTcpAddresses) {
  EXPECT_EQ(Parse("127.0.0.1:7410").ToString(), "127.0.0.1:7410");
  EXPECT_EQ(Parse("localhost:0").ToString(), "127.0.0.1:0");
  EXPECT_EQ(Parse("[::1]:65535").ToString(), "[::1]:65535");
  EXPECT_EQ(Parse("[::1]:65535").host, "::1");
}

TEST(ListenAddress, KnowsWhatOnlyThisMachineReaches) {
  EXPECT_TRUE(Parse("127.0.0.1:1").is_local());
  EXPECT_TRUE(Parse("127.255.0.9:1").is_local());
  EXPECT_TRUE(Parse("[::1]:1").is_local());
  EXPECT_FALSE(Parse("0.0.0.0:1").is_local());
  EXPECT_FALSE(Parse("128.0.0.1:1").is_local());
  EXPECT_FALSE(Parse("10.127.0.1:1").is_local());
  EXPECT_FALSE(Parse("[::]:1").is_local());
  EXPECT_FALSE(Parse("[::ffff:127.0.0.1]:1").is_local());
}

TEST(ListenAddress, RefusesWhatIsNone) {
  for (const char* text :
       {"", ":", "7410", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
        "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:99999999999", "::1:7410",
        "[::1]", "[]:1", "[127.0.0.1]:1", "127.1:1", "example.com:7410",
        "http://127.0.0.1:1", "unix-abstract:x", " 127.0.0.1:1"}) {
    const absl::Status status = ParseListenAddress("listen", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                StartsWith("listen is '" + std::string(text) +
                           "'; allowed: unix:PATH"));
  }
}

TEST(ListenAddress, RefusesUnixPathsThatTheKernelCannotHold) {
  EXPECT_TRUE(Parse("unix:" + std::string(107, 'x')).is_unix());
  for (const std::string& path : {std::string(), std::string(108, 'x')}) {
    const absl::Status status =
        ParseListenAddress("listen", "unix:" + path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("1 to 107 bytes"));
  }
}

}  // namespace
}  // namespace fabricwise
