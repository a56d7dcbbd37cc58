// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

// A bound socket; listening only if asked to.
int Bind(const std::string& path, bool listening) {
  const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(bind(s, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  if (listening) {
    EXPECT_EQ(listen(s, 1), 0);
  }
  return s;
}

class UnixSocketTest : public testing::Test {
 protected:
  TempFolder folder_;
  const std::string path_ = folder_.File("x.sock");
};

TEST_F(UnixSocketTest, NothingThereIsFine) {
  EXPECT_TRUE(ClearStaleSocket(path_).ok());
}

TEST_F(UnixSocketTest, SocketOfADeadProcessIsRemoved) {
  close(Bind(path_, true));
  ASSERT_TRUE(std::filesystem::exists(path_));
  const absl::Status status = ClearStaleSocket(path_);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, SocketOfALivingProcessIsLeftAlone) {
  const int s = Bind(path_, true);
  const absl::Status status = ClearStaleSocket(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "another process listens on " + path_ +
                                  "; stop it or listen elsewhere");
  EXPECT_TRUE(std::filesystem::exists(path_));
  close(s);
}

TEST_F(UnixSocketTest, WhatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "precious";
  const absl::Status status = ClearStaleSocket(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not a socket"));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(UnixSocketTest, MissingFolderIsNamed) {
  const absl::Status status = ClearStaleSocket(folder_.File("no/x.sock"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("there is no folder " + folder_.File("no")));
}

}  // namespace
}  // namespace fabricwise
