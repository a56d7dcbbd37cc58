// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/process.h"

#include <fcntl.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(Process, SeesWhatThisProcessDoes) {
  const ProcessFacts before = ReadProcessFacts().value();
  EXPECT_GE(before.threads, 1);
  EXPECT_GT(before.resident_bytes, 1 << 20);
  EXPECT_GE(before.virtual_bytes, before.resident_bytes);
  EXPECT_GE(before.open_files, 3);
  EXPECT_GE(before.max_files, before.open_files);
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  const ProcessFacts after = ReadProcessFacts().value();
  close(file);
  EXPECT_EQ(after.open_files, before.open_files + 1);
  EXPECT_GE(after.cpu_time, before.cpu_time);
}

}  // namespace
}  // namespace fabricwise
