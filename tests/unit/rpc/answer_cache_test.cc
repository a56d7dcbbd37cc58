// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/answer_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fabricwise {
namespace {

AnswerBytes Bytes(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

constexpr int64_t kAmple = 1 << 20;

TEST(AnswerCacheTest, FindsWhatWasInsertedForTheSameSnapshotOnly) {
  AnswerCache cache(kAmple);
  EXPECT_EQ(cache.Find("question", 1), nullptr);
  cache.Insert("question", 1, Bytes("answer"));
  ASSERT_NE(cache.Find("question", 1), nullptr);
  EXPECT_EQ(*cache.Find("question", 1), "answer");
  EXPECT_EQ(cache.Find("question", 2), nullptr);
  EXPECT_EQ(cache.Find("question?", 1), nullptr);
}

TEST(AnswerCacheTest, ANewerSnapshotReplacesAndAnOlderOneIsNotKept) {
  AnswerCache cache(kAmple);
  cache.Insert("question", 1, Bytes("old"));
  cache.Insert("question", 2, Bytes("new"));
  ASSERT_NE(cache.Find("question", 2), nullptr);
  EXPECT_EQ(*cache.Find("question", 2), "new");
  cache.Insert("question", 1, Bytes("late"));
  EXPECT_EQ(cache.Find("question", 1), nullptr);
  EXPECT_EQ(*cache.Find("question", 2), "new");
}

TEST(AnswerCacheTest, RequestsMayHoldAnyBytes) {
  AnswerCache cache(kAmple);
  const std::string with_nul("a\0b", 3);
  cache.Insert(with_nul, 1, Bytes("1"));
  cache.Insert("", 1, Bytes("2"));
  EXPECT_EQ(*cache.Find(with_nul, 1), "1");
  EXPECT_EQ(*cache.Find("", 1), "2");
  EXPECT_EQ(cache.Find("a", 1), nullptr);
}

TEST(AnswerCacheTest, StaysWithinItsBoundAndKeepsTheRecentlyUsed) {
  constexpr int64_t kCapacity = 64 << 10;
  AnswerCache cache(kCapacity);
  const std::string kilobyte(1024, 'x');
  cache.Insert("in use", 1, Bytes(kilobyte));
  for (int i = 0; i < 1000; ++i) {
    cache.Insert(std::to_string(i), 1, Bytes(kilobyte));
    ASSERT_LE(cache.size_bytes(), kCapacity);
    ASSERT_NE(cache.Find("in use", 1), nullptr) << "after " << i;
  }
  EXPECT_GT(cache.size_bytes(), kCapacity / 2);
  EXPECT_EQ(cache.Find("0", 1), nullptr);
  EXPECT_NE(cache.Find("999", 1), nullptr);
}

TEST(AnswerCacheTest, AnAnswerTooBigIsNotKeptAndEvictsNothing) {
  AnswerCache cache(64 << 10);
  cache.Insert("small", 1, Bytes("s"));
  cache.Insert("big", 1, Bytes(std::string(64 << 10, 'x')));
  EXPECT_EQ(cache.Find("big", 1), nullptr);
  EXPECT_NE(cache.Find("small", 1), nullptr);
}

TEST(AnswerCacheTest, NoCapacityKeepsNothing) {
  AnswerCache cache(0);
  cache.Insert("question", 1, Bytes(""));
  EXPECT_EQ(cache.Find("question", 1), nullptr);
  EXPECT_EQ(cache.size_bytes(), 0);
}

TEST(AnswerCacheTest, AnAnswerInHandOutlivesItsEviction) {
  AnswerCache cache(kAmple);
  cache.Insert("question", 1, Bytes("answer"));
  const AnswerBytes held = cache.Find("question", 1);
  cache.Insert("question", 2, Bytes("new"));
  EXPECT_EQ(*held, "answer");
}

TEST(AnswerCacheTest, ThreadsNeverSeeAnAnswerOfAnotherQuestionOrSnapshot) {
  AnswerCache cache(32 << 10);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 5000; ++i) {
        const std::string question = std::to_string((i * 7 + t) % 200);
        const int64_t snapshot = 1 + i / 1000;
        const std::string right = question + "@" + std::to_string(snapshot);
        const AnswerBytes found = cache.Find(question, snapshot);
        if (found != nullptr) {
          EXPECT_EQ(*found, right);
        } else {
          cache.Insert(question, snapshot, Bytes(right));
        }
      }
    });
  }
}

}  // namespace
}  // namespace fabricwise
