// SPDX-License-Identifier: Apache-2.0
//
// Kills a process with SIGKILL while it appends, many times over, and looks at
// what is left.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "gtest/gtest.h"
#include "server/store/sqlite.h"
#include "server/store/store.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/store/sample.h"

namespace fabricwise {
namespace {

constexpr int kBatch = 3;

// Appends batches without end and writes the last id of each to `pipe` once
// the store has answered.
[[noreturn]] void AppendForEver(const std::string& path, int64_t profile,
                                int pipe) {
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path);
  if (!store.ok()) _exit(1);
  for (int64_t i = 1;; ++i) {
    const std::vector<Measurement> batch(kBatch, Gemm(i, 1));
    const absl::StatusOr<std::vector<int64_t>> ids =
        (*store)->Append(profile, batch);
    if (!ids.ok()) _exit(2);
    const int64_t last = ids->back();
    if (write(pipe, &last, sizeof(last)) != sizeof(last)) _exit(3);
  }
}

// The ids that could be read from `pipe` until its end: the last one.
int64_t Drain(int pipe, int64_t last) {
  int64_t id = 0;
  while (read(pipe, &id, sizeof(id)) == sizeof(id)) last = id;
  return last;
}

TEST(Kill, NothingAcknowledgedIsLost) {
  TempFolder folder;
  const std::string path = folder.File("store.db");
  StoredProfile profile = FullProfile();
  profile.measurements.clear();
  const int64_t id = Store::Open(path).value()->Import(profile).value();

  std::minstd_rand random(20261129);
  constexpr int kKills = 100;
  int64_t acknowledged = 0;
  int survived_more = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      AppendForEver(path, id, ends[1]);
    }
    close(ends[1]);
    // Death comes after some acknowledgements and then a random part of the
    // time that an append takes: in its middle, mostly.
    const int wanted = static_cast<int>(random() % 8);
    for (int i = 0; i < wanted; ++i) {
      int64_t last = 0;
      ASSERT_EQ(read(ends[0], &last, sizeof(last)),
                static_cast<ssize_t>(sizeof(last)));
      ASSERT_EQ(last, acknowledged + kBatch);
      acknowledged = last;
    }
    pollfd none = {.fd = -1};
    const timespec moment = {
        .tv_sec = 0, .tv_nsec = static_cast<long>(random() % 3'000'000)};
    ppoll(&none, 1, &moment, nullptr);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself: " << status;
    acknowledged = Drain(ends[0], acknowledged);
    close(ends[0]);

    {
      sqlite::Connection c =
          sqlite::Connection::Open(path, absl::Seconds(1)).value();
      ASSERT_EQ(c.Text("PRAGMA integrity_check").value(), "ok");
    }
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path);
    ASSERT_TRUE(store.ok()) << store.status();
    const int64_t kept = (*store)->MeasurementCount();
    // At most the batch that was under way may be there unacknowledged.
    ASSERT_GE(kept, acknowledged);
    ASSERT_LE(kept, acknowledged + kBatch);
    ASSERT_EQ(kept % kBatch, 0);
    ASSERT_EQ((*store)->CurrentProfile().value(), id);
    if (kept > acknowledged) ++survived_more;
    acknowledged = kept;
  }
  // The kills did hit appends: many batches, some cut between commit and word.
  EXPECT_GE(acknowledged, kKills);
  RecordProperty("cut_between_commit_and_word", survived_more);
}

}  // namespace
}  // namespace fabricwise
