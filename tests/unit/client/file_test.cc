// SPDX-License-Identifier: Apache-2.0
#include "client/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMostBytes = 1000;

TEST(WriteFile, ReplacesAFileAndLeavesNothingBeside) {
  const TempFolder folder;
  ASSERT_TRUE(WriteFile(folder.File("a"), "one, which is longer").ok());
  ASSERT_TRUE(WriteFile(folder.File("a"), "two").ok());
  EXPECT_EQ(ReadFile(folder.File("a"), kMostBytes).value(), "two");
  EXPECT_FALSE(std::filesystem::exists(folder.File("a.new")));
}

TEST(WriteFile, KeepsALinkAndReplacesWhatItPointsTo) {
  const TempFolder folder;
  ASSERT_TRUE(WriteFile(folder.File("a"), "one").ok());
  std::filesystem::create_symlink("a", folder.File("link"));
  ASSERT_TRUE(WriteFile(folder.File("link"), "two").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder.File("link")));
  EXPECT_EQ(ReadFile(folder.File("a"), kMostBytes).value(), "two");
}

TEST(WriteFile, WritesToAPipeAndLeavesItAPipe) {
  const TempFolder folder;
  const std::string pipe = folder.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // Open for both, so that neither side waits for the other.
  const int reader = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(WriteFile(pipe, "one").ok());
  char read_back[8] = {};
  EXPECT_EQ(read(reader, read_back, sizeof(read_back)), 3);
  EXPECT_STREQ(read_back, "one");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  close(reader);
}

TEST(WriteFile, RefusesAFolderByName) {
  const TempFolder folder;
  const absl::Status status = WriteFile(folder.path().string(), "one");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(folder.path().string() + "\": Is a directory"));
}

}  // namespace
}  // namespace fabricwise
