// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/ranking.h"

#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

Contestant OnGpus(int gpus, int complexity = 1) {
  return {.plan = {.attention_tp = gpus, .moe_tp = complexity},
          .gpus = gpus,
          .complexity = complexity};
}

Score Takes(double seconds) { return {.runs = true, .seconds = seconds}; }
Score MissesAt(double seconds) {
  return {.runs = true, .misses = true, .seconds = seconds};
}

TEST(First, IsTheShortest) {
  EXPECT_THAT(First({OnGpus(8), OnGpus(8)}, {Takes(2), Takes(1)}),
              Optional(Eq(1u)));
}

TEST(First, IsNoneWhereNoneRuns) {
  EXPECT_EQ(First({OnGpus(8)}, {Score{}}), std::nullopt);
  EXPECT_EQ(First({}, {}), std::nullopt);
}

TEST(First, OfATieTakesFewestGpusThenTheSimplestThenTheShortest) {
  EXPECT_THAT(First({OnGpus(8), OnGpus(4)}, {Takes(1), Takes(1.009)}),
              Optional(Eq(1u)));
  EXPECT_THAT(First({OnGpus(8), OnGpus(4)}, {Takes(1), Takes(1.011)}),
              Optional(Eq(0u)));
  EXPECT_THAT(First({OnGpus(8, 2), OnGpus(8, 1)}, {Takes(1), Takes(1.009)}),
              Optional(Eq(1u)));
  EXPECT_THAT(First({OnGpus(8), OnGpus(8)}, {Takes(1.001), Takes(1)}),
              Optional(Eq(1u)));
}

TEST(First, MissesALimitOnlyWhereAllDo) {
  EXPECT_THAT(First({OnGpus(8), OnGpus(8)}, {MissesAt(1), Takes(5)}),
              Optional(Eq(1u)));
  EXPECT_THAT(First({OnGpus(8), OnGpus(8)}, {MissesAt(5), MissesAt(1)}),
              Optional(Eq(1u)));
}

TEST(First, StaysWithTheRunningOneWithinTheMargin) {
  Contestant running = OnGpus(8, 3);
  running.running = true;
  EXPECT_THAT(First({OnGpus(4), running}, {Takes(1), Takes(1.049)}),
              Optional(Eq(1u)));
  EXPECT_THAT(First({OnGpus(4), running}, {Takes(1), Takes(1.051)}),
              Optional(Eq(0u)));
}

TEST(First, IsTheHeldOneWithinATie) {
  Contestant held = OnGpus(8, 3);
  EXPECT_THAT(First({OnGpus(4), held}, {Takes(1), Takes(1.009)}, &held.plan),
              Optional(Eq(1u)));
  EXPECT_THAT(First({OnGpus(4), held}, {Takes(1), Takes(1.011)}, &held.plan),
              Optional(Eq(0u)));
  EXPECT_THAT(First({OnGpus(4), held}, {Takes(1), MissesAt(1)}, &held.plan),
              Optional(Eq(0u)));
  EXPECT_THAT(First({OnGpus(4), held}, {Takes(1), Score{}}, &held.plan),
              Optional(Eq(0u)));
}

TEST(First, IsTheRunningOneBeforeTheHeldOne) {
  Contestant held = OnGpus(8, 3), running = OnGpus(8, 2);
  running.running = true;
  EXPECT_THAT(First({held, running}, {Takes(1), Takes(1.049)}, &held.plan),
              Optional(Eq(1u)));
}

// Made-up contestants, none of which gets shorter as concurrency grows.
class Field {
 public:
  Field(std::mt19937& random, int count) {
    for (int i = 0; i < count; ++i) {
      Runner runner;
      Contestant& contestant = contestants.emplace_back(
          OnGpus(1 << Below(random, 4), static_cast<int>(Below(random, 3))));
      contestant.plan.replicas = i + 1;
      contestant.running = i == 0 && Below(random, 3) == 0;
      runner.ranks = int64_t{1} << Below(random, 4);
      runner.fixed = 1 + 0.02 * static_cast<double>(Below(random, 40));
      runner.each = 0.0003 * static_cast<double>(Below(random, 30));
      if (Below(random, 4) == 0) {
        runner.last = Below(random, 300);
      } else if (Below(random, 6) == 0) {
        runner.begins = Below(random, 40);
      }
      if (Below(random, 4) == 0) {
        // A twin of the one before, but for one part.
        contestant.parts = {2 * i + 1, 0, 2 * i + 2};
        if (i > 0) {
          contestants[static_cast<size_t>(i) - 1].parts = contestant.parts;
          runner.ranks = runners_.back().ranks;
          runner.fixed = runners_.back().fixed;
        }
      }
      runners_.push_back(runner);
    }
    if (Below(random, 3) == 0) {
      limit_ = 1 + 0.1 * static_cast<double>(Below(random, 20));
    }
  }

  Score At(size_t index, int64_t concurrency) {
    ++asked;
    const Runner& runner = runners_[index];
    if (concurrency > runner.last || concurrency < runner.begins) return {};
    const int64_t each = (concurrency + runner.ranks - 1) / runner.ranks;
    const auto sequences = static_cast<double>(each);
    Score score{.runs = true};
    score.part_seconds = {runner.fixed / 2, runner.each * sequences,
                          runner.fixed / 2 + 0.001 * sequences};
    for (double part : score.part_seconds) score.seconds += part;
    score.misses = score.seconds > limit_;
    return score;
  }

  // Of a look at every one.
  std::optional<size_t> FirstAt(int64_t concurrency,
                                std::optional<size_t> held = std::nullopt) {
    std::vector<Score> scores;
    for (size_t i = 0; i < contestants.size(); ++i) {
      scores.push_back(At(i, concurrency));
    }
    return First(contestants, scores,
                 held.has_value() ? &contestants[*held].plan : nullptr);
  }

  std::vector<Change> Find(int64_t low, int64_t high) {
    return FindChanges(contestants, low, high,
                       [this](size_t index, int64_t concurrency) {
                         return At(index, concurrency);
                       });
  }

  std::vector<Contestant> contestants;
  int64_t asked = 0;

 private:
  struct Runner {
    int64_t ranks = 1;
    int64_t begins = 1, last = std::numeric_limits<int64_t>::max();
    double fixed = 1, each = 0;
  };

  static int64_t Below(std::mt19937& random, uint32_t end) {
    return static_cast<int64_t>(random() % end);
  }

  std::vector<Runner> runners_;
  double limit_ = std::numeric_limits<double>::infinity();
};

TEST(FindChanges, IsWhatALookAtEveryConcurrencyFinds) {
  std::mt19937 random(5);
  int64_t changes = 0, misplaced = 0, others = 0, concurrencies = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    Field field(random, 2 + round % 12);
    const int64_t low = 1 + round % 3, high = round % 10 == 0 ? 3000 : 300;
    const std::vector<Change> found = field.Find(low, high);
    auto next = found.begin();
    std::optional<size_t> said = field.FirstAt(low);
    for (int64_t at = low + 1; at <= high; ++at) {
      const std::optional<size_t> now = field.FirstAt(at, said);
      if (next != found.end() && next->concurrency == at) {
        misplaced += next->from == said && next->to == now ? 0 : 1;
        said = next->to;
        ++next;
      }
      others += said == now ? 0 : 1;
    }
    EXPECT_EQ(next, found.end());
    changes += static_cast<int64_t>(found.size());
    concurrencies += high - low;
  }
  EXPECT_GT(changes, 300);
  // What is held may be beaten for a few sequences only, where ranks fill
  // unevenly.
  EXPECT_LE(misplaced, changes / 100);
  EXPECT_LE(others, concurrencies / 1000);
}

// They take turns within a tie; then the other is ahead by more.
TEST(FindChanges, HoldsOneOfEquals) {
  std::vector<Contestant> contestants = {OnGpus(8), OnGpus(8)};
  contestants[1].plan.replicas = 2;
  const auto changes = FindChanges(
      contestants, 1, 1000, [](size_t contestant, int64_t concurrency) {
        if (contestant == 0) return Takes(1);
        if (concurrency >= 700) return Takes(0.98);
        return Takes(concurrency % 2 == 0 ? 0.995 : 1.005);
      });
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].concurrency, 700);
  EXPECT_THAT(changes[0].from, Optional(Eq(0u)));
  EXPECT_THAT(changes[0].to, Optional(Eq(1u)));
}

TEST(FindChanges, LooksAtFewOfTheConcurrencies) {
  std::mt19937 random(7);
  Field field(random, 50);
  constexpr int64_t kHigh = 1024;
  field.Find(1, kHigh);
  EXPECT_LT(field.asked, 50 * kHigh / 10);
}

TEST(FindChanges, SeesOneThatStopsAfterTheFirstGotSlow) {
  // The first falls off a cliff at 304; the other fits up to 639.
  std::vector<Contestant> contestants = {OnGpus(8), OnGpus(8)};
  contestants[1].plan.replicas = 2;
  const auto changes = FindChanges(
      contestants, 1, 1024, [](size_t contestant, int64_t concurrency) {
        const double seconds =
            contestant == 1 ? 1.2 : (concurrency < 304 ? 1 : 1.5);
        return Score{.runs = contestant == 0 || concurrency < 640,
                     .seconds = seconds};
      });
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].concurrency, 304);
  EXPECT_THAT(changes[0].to, Optional(Eq(1u)));
  EXPECT_EQ(changes[1].concurrency, 640);
  EXPECT_THAT(changes[1].to, Optional(Eq(0u)));
}

TEST(FindChanges, OfOneConcurrencyIsNothing) {
  std::mt19937 random(8);
  EXPECT_THAT(Field(random, 5).Find(7, 7), IsEmpty());
}

// However the two did before.
TEST(FindChanges, NamesTheEarlierOfTwoThatAreAlikeInAll) {
  std::vector<Contestant> contestants(3, OnGpus(8));
  for (int i = 0; i < 3; ++i) {
    contestants[static_cast<size_t>(i)].plan.replicas = i + 1;
  }
  const auto score = [](size_t index, int64_t concurrency) {
    if (index == 2) return Takes(concurrency < 10 ? 1 : 4);
    return Takes(concurrency < 10 && index == 0 ? 2.08 : 2);
  };
  const auto changes = FindChanges(contestants, 1, 20, score);
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].concurrency, 10);
  EXPECT_EQ(changes[0].to, 0u);
}

TEST(FindChanges, TakesContestantsOfOnePlanForOne) {
  std::vector<Contestant> contestants = {OnGpus(8), OnGpus(8)};
  const auto score = [](size_t index, int64_t concurrency) {
    return Takes((index == 0) == (concurrency < 10) ? 1 : 2);
  };
  EXPECT_THAT(FindChanges(contestants, 1, 20, score), IsEmpty());
  contestants[1].plan.replicas = 2;
  EXPECT_THAT(FindChanges(contestants, 1, 20, score), SizeIs(1));
}

}  // namespace
}  // namespace fabricwise
