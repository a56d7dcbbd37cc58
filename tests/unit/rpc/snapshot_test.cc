// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/snapshot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

TEST(SnapshotHolderTest, HoldsNothingAtFirst) {
  SnapshotHolder holder;
  EXPECT_EQ(holder.Get(), nullptr);
  EXPECT_EQ(holder.number(), 0);
}

TEST(SnapshotHolderTest, GivesTheProfileSetLastAndCounts) {
  SnapshotHolder holder;
  EXPECT_EQ(holder.Set(SampleProfile("first")), 1);
  const auto kept = holder.Get();
  EXPECT_EQ(holder.Set(SampleProfile("second")), 2);
  EXPECT_EQ(holder.number(), 2);
  EXPECT_EQ(holder.Get()->number, 2);
  EXPECT_EQ(holder.Get()->profile->name(), "second");
  EXPECT_EQ(kept->profile->name(), "first") << "in use by a reader still";
}

TEST(SnapshotHolderTest, SubscribersHearOfEachSetUntilTheyEnd) {
  SnapshotHolder holder;
  int heard = 0;
  int64_t number = 0;
  {
    const auto subscription = holder.Subscribe([&] {
      ++heard;
      number = holder.number();
    });
    EXPECT_EQ(heard, 0);
    holder.Set(SampleProfile("a"));
    holder.Set(SampleProfile("b"));
    EXPECT_EQ(heard, 2);
    EXPECT_EQ(number, 2) << "the new snapshot is there when it is told of";
  }
  holder.Set(SampleProfile("c"));
  EXPECT_EQ(heard, 2);
}

TEST(SnapshotHolderTest, AMovedSubscriptionEndsOnce) {
  SnapshotHolder holder;
  int heard = 0;
  SnapshotHolder::Subscription kept;
  {
    auto made = holder.Subscribe([&] { ++heard; });
    kept = std::move(made);
  }
  holder.Set(SampleProfile("a"));
  EXPECT_EQ(heard, 1);
  kept = SnapshotHolder::Subscription();
  holder.Set(SampleProfile("b"));
  EXPECT_EQ(heard, 1);
}

TEST(SnapshotHolderTest, ReadersSeeWholeSnapshotsWhileOthersSwap) {
  SnapshotHolder holder;
  const auto profile = SampleProfile("p");
  holder.Set(profile);
  std::atomic<bool> stop = false;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      int64_t last = 0;
      do {
        const int64_t announced = holder.number();
        const auto snapshot = holder.Get();
        EXPECT_GE(snapshot->number, announced);
        EXPECT_GE(snapshot->number, last);
        EXPECT_EQ(snapshot->profile->name(), "p");
        last = snapshot->number;
      } while (!stop);
    });
  }
  for (int i = 0; i < 2000; ++i) holder.Set(profile);
  stop = true;
}

}  // namespace
}  // namespace fabricwise
