// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
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

TEST_F(UnixSocketTest, GroupsAreFoundByNameAndByNumber) {
  EXPECT_EQ(FindGroup("root"), gid_t{0});
  EXPECT_EQ(FindGroup("12345"), gid_t{12345});
  for (const char* odd : {"", "no such group", "-1", "4294967295", "1e3"}) {
    EXPECT_EQ(FindGroup(odd), std::nullopt) << odd;
  }
}

TEST_F(UnixSocketTest, SocketIsGivenToAGroup) {
  const int s = Bind(path_, true);
  // Its own: what every user may.
  EXPECT_TRUE(GiveToGroup(path_, absl::StrCat(getegid())).ok());
  EXPECT_EQ(GiveToGroup(path_, "no such group").code(),
            absl::StatusCode::kNotFound);
  const absl::Status gone =
      GiveToGroup(folder_.File("gone"), absl::StrCat(getegid()));
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("cannot give "));
  if (geteuid() == 0) {
    EXPECT_TRUE(GiveToGroup(path_, "12345").ok());
    struct stat info = {};
    EXPECT_EQ(stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_gid, gid_t{12345});
  }
  close(s);
}

}  // namespace
}  // namespace fabricwise
