// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <vector>

namespace fabricwise {
namespace {

TEST(ExecutorTest, RunsInOrderAndFinishesWhatIsQueuedBeforeItEnds) {
  std::vector<int> ran;
  {
    Executor executor(/*threads=*/1, /*max_queued=*/100);
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(executor.TrySubmit([&ran, i] { ran.push_back(i); }));
    }
  }
  ASSERT_EQ(ran.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
}

TEST(ExecutorTest, RefusesWhenTooManyWaitButNotForThoseWhoBoundThemselves) {
  std::atomic<int> ran = 0;
  {
    std::promise<void> started, release;
    Executor executor(/*threads=*/1, /*max_queued=*/2);
    executor.Submit([&] {
      started.set_value();
      release.get_future().wait();
    });
    started.get_future().wait();
    EXPECT_TRUE(executor.TrySubmit([&] { ++ran; }));
    EXPECT_TRUE(executor.TrySubmit([&] { ++ran; }));
    EXPECT_FALSE(executor.TrySubmit([&] { ++ran; }));
    executor.Submit([&] { ++ran; });
    release.set_value();
  }
  EXPECT_EQ(ran, 3);
}

TEST(ExecutorTest, TasksRunSideBySideOnSeveralThreads) {
  std::promise<void> first, second, both;
  Executor executor(/*threads=*/2, /*max_queued=*/2);
  // Each waits for the other: with one thread this would not end.
  executor.Submit([&] {
    first.set_value();
    second.get_future().wait();
    both.set_value();
  });
  executor.Submit([&] {
    first.get_future().wait();
    second.set_value();
  });
  both.get_future().wait();
}

TEST(ExecutorTest, LetsGoOfATaskWhenItHasRun) {
  std::promise<void> after;
  Executor executor(/*threads=*/1, /*max_queued=*/2);
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  executor.Submit([kept = std::move(held)] { ++*kept; });
  executor.Submit([&] { after.set_value(); });
  after.get_future().wait();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace fabricwise
