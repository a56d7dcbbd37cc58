// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/placement.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/random_model.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

using Gpus = std::vector<int>;

// A node with so many NVLinks between each two GPUs, one way and the other.
Topology Linked(int gpus, const std::function<int(int, int)>& links) {
  Fingerprint node;
  node.gpus.resize(static_cast<size_t>(gpus));
  node.nvlinks.resize(node.gpus.size());
  for (int i = 0; i < gpus; ++i) {
    for (int j = 0; j < gpus; ++j) {
      node.nvlinks[static_cast<size_t>(i)].push_back(i == j ? 0 : links(i, j));
    }
  }
  return Topology::Of(node, [](int, int) { return nullptr; });
}

Topology Alike(int gpus) {
  return Linked(gpus, [](int, int) { return 18; });
}

std::vector<Gpus> Place(const Plan& plan, int gpus,
                        const std::function<int(int, int)>& links) {
  return Place(plan, Linked(gpus, links)).replicas;
}

TEST(Place, TakesGpusThatAreAlikeInTheNodesOrder) {
  const Plan plan{.replicas = 2, .pipeline = 2, .attention_tp = 2};
  EXPECT_THAT(Place(plan, Alike(8)).replicas,
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(Place({.attention_tp = 2}, Alike(8)).replicas,
              ElementsAre(ElementsAre(0, 1)));
}

// 2 + 2: bridges between 0 and 2 and between 1 and 3.
int Bridges(int i, int j) { return i % 2 == j % 2 ? 4 : 0; }

TEST(Place, OnTwoBridgesKeepsTensorParallelGroupsOnThem) {
  EXPECT_THAT(Place({.attention_tp = 2}, 4, Bridges),
              ElementsAre(ElementsAre(0, 2)));
  EXPECT_THAT(Place({.replicas = 2, .attention_tp = 2}, 4, Bridges),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(Place({.pipeline = 2, .attention_tp = 2}, 4, Bridges),
              ElementsAre(ElementsAre(0, 2, 1, 3)));
  EXPECT_THAT(Place({.attention_dp = 2, .attention_tp = 2}, 4, Bridges),
              ElementsAre(ElementsAre(0, 2, 1, 3)));
  EXPECT_THAT(Place({.attention_tp = 4}, 4, Bridges),
              ElementsAre(UnorderedElementsAre(0, 1, 2, 3)));
  // Two stages of one GPU meet over a bridge.
  EXPECT_THAT(Place({.replicas = 2, .pipeline = 2}, 4, Bridges),
              ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
}

// 4 + 4: even GPUs on one switch, odd ones on another.
int Switches(int i, int j) { return i % 2 == j % 2 ? 18 : 0; }

TEST(Place, OnTwoSwitchesKeepsGroupsAndStagesOnOneEach) {
  const auto even = ElementsAre(0, 2, 4, 6), odd = ElementsAre(1, 3, 5, 7);
  EXPECT_THAT(Place({.attention_tp = 4}, 8, Switches), ElementsAre(even));
  EXPECT_THAT(Place({.replicas = 2, .attention_tp = 4}, 8, Switches),
              ElementsAre(even, odd));
  EXPECT_THAT(Place({.pipeline = 2, .attention_tp = 4}, 8, Switches),
              ElementsAre(ElementsAre(0, 2, 4, 6, 1, 3, 5, 7)));
  EXPECT_THAT(Place({.attention_dp = 2, .attention_tp = 4}, 8, Switches),
              ElementsAre(ElementsAre(0, 2, 4, 6, 1, 3, 5, 7)));
  // With few GPUs whole replicas stay on a switch.
  EXPECT_THAT(Place({.attention_dp = 4}, 8, Switches), ElementsAre(even));
  EXPECT_THAT(Place({.pipeline = 2, .attention_tp = 2}, 8, Switches),
              ElementsAre(even));
  EXPECT_THAT(
      Place({.replicas = 2, .pipeline = 2, .attention_tp = 2}, 8, Switches),
      ElementsAre(even, odd));
  // One of seven boundaries crosses.
  const Gpus line = Place({.pipeline = 8}, 8, Switches)[0];
  int crossings = 0;
  for (size_t i = 1; i < line.size(); ++i) {
    crossings += line[i] % 2 != line[i - 1] % 2 ? 1 : 0;
  }
  EXPECT_EQ(crossings, 1);
}

TEST(Place, AvoidsALinkThatIsBrokenOneWay) {
  const auto broken = [](int i, int j) { return i == 1 && j == 0 ? 0 : 18; };
  EXPECT_THAT(Place({.attention_tp = 2}, 8, broken),
              ElementsAre(ElementsAre(0, 2)));
  EXPECT_THAT(Place({.attention_tp = 4}, 8, broken),
              ElementsAre(ElementsAre(0, 2, 3, 4)));
  for (const Gpus& replica :
       Place({.replicas = 2, .attention_tp = 4}, 8, broken)) {
    EXPECT_NE(std::count(replica.begin(), replica.end(), 0),
              std::count(replica.begin(), replica.end(), 1));
  }
}

TEST(Place, SpendsAPoorlyConnectedGpuWhereItHurtsLeast) {
  // Half of GPU 3's links are down.
  const auto down = [](int i, int j) { return i == 3 || j == 3 ? 9 : 18; };
  EXPECT_THAT(Place({.attention_tp = 4}, 8, down),
              ElementsAre(ElementsAre(0, 1, 2, 4)));
  // One of the replicas must have it: that one is judged.
  const auto replicas = Place({.replicas = 4, .attention_tp = 2}, 8, down);
  EXPECT_THAT(replicas[0], ::testing::Contains(3));
  EXPECT_EQ(replicas.size(), 4);
  // As a stage of its own it holds back no group.
  const Gpus stages = Place({.pipeline = 7, .attention_tp = 1}, 8, down)[0];
  EXPECT_THAT(stages, ::testing::Not(::testing::Contains(3)));
}

TEST(Place, FollowsTheLinksOfAPipeline) {
  // A ring 0 - 2 - 1 - 3 - 0 less its last link.
  const std::set<std::pair<int, int>> linked = {{0, 2}, {1, 2}, {1, 3}};
  const auto line = [&](int i, int j) {
    return linked.count(std::minmax(i, j)) > 0 ? 1 : 0;
  };
  EXPECT_THAT(Place({.pipeline = 4}, 4, line),
              ElementsAre(ElementsAre(0, 2, 1, 3)));
}

TEST(Place, GoesBySixteenGpusInTheNodesOrder) {
  EXPECT_THAT(Place({.attention_tp = 2}, kMostPlacedGpus + 1, Switches),
              ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(Place({.attention_tp = 2}, kMostPlacedGpus, Switches),
              ElementsAre(ElementsAre(0, 2)));
}

TEST(Place, OfSixteenGpusKeepsGroupsOnTheirSwitch) {
  const auto four = [](int i, int j) { return i % 4 == j % 4 ? 18 : 0; };
  for (const Gpus& replica :
       Place({.replicas = 4, .attention_tp = 4}, 16, four)) {
    for (int gpu : replica) EXPECT_EQ(gpu % 4, replica[0] % 4);
  }
}

// How many groups are held back by each kind of link, and the links in them,
// the worst kind first; by the definition, for all orders of the GPUs.
using Score = std::vector<std::vector<int>>;

Score ScoreOf(const Plan& plan, const Topology& topology, const Gpus& gpus) {
  Score score(5, std::vector<int>(Topology::kMostKinds));
  const auto count = [&](size_t what, int kind) {
    if (kind > 0) {
      ++score[what][static_cast<size_t>(Topology::kMostKinds - kind)];
    }
  };
  const auto groups = [&](size_t what, int size) {
    for (size_t first = 0; first < gpus.size();
         first += static_cast<size_t>(size)) {
      int worst = 0;
      for (size_t i = first; i < first + static_cast<size_t>(size); ++i) {
        for (size_t j = first; j < i; ++j) {
          const int kind = topology.Kind(gpus[i], gpus[j]);
          count(what + 1, kind);
          worst = std::max(worst, kind);
        }
      }
      count(what, worst);
    }
  };
  groups(0, plan.attention_tp);
  if (plan.attention_dp > 1) groups(2, plan.stage_gpus());
  const auto stage = static_cast<size_t>(plan.stage_gpus());
  const size_t replica = stage * static_cast<size_t>(plan.pipeline);
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (i % replica >= stage) {
      count(4, topology.Kind(gpus[i], gpus[i - stage]));
    }
  }
  return score;
}

TEST(Place, FindsTheBestOfAllPlacementsOfSixGpusOnAnyLinks) {
  std::mt19937 random(61);
  for (int round = 0; round < 60; ++round) {
    const int gpus = static_cast<int>(RandomBetween(random, 2, 6));
    const int kinds = static_cast<int>(RandomBetween(random, 1, 3));
    std::vector<int> links(36);
    for (int& link : links) {
      link = static_cast<int>(RandomBetween(random, 0, kinds));
    }
    const Topology topology = Linked(gpus, [&](int i, int j) {
      return links[static_cast<size_t>(6 * std::min(i, j) + std::max(i, j))];
    });
    Plan plan;
    do {
      plan.replicas = static_cast<int>(RandomBetween(random, 1, 3));
      plan.pipeline = static_cast<int>(RandomBetween(random, 1, 3));
      plan.attention_dp = static_cast<int>(RandomBetween(random, 1, 3));
      plan.attention_tp = static_cast<int>(RandomBetween(random, 1, 4));
    } while (plan.gpus() > gpus);

    Gpus order(static_cast<size_t>(gpus));
    std::iota(order.begin(), order.end(), 0);
    Score least;
    do {
      const Gpus taken(order.begin(), order.begin() + plan.gpus());
      const Score score = ScoreOf(plan, topology, taken);
      if (least.empty() || score < least) least = score;
    } while (std::next_permutation(order.begin(), order.end()));

    Gpus placed;
    Score poorest;
    const auto replicas = Place(plan, topology).replicas;
    for (const Gpus& replica : replicas) {
      placed.insert(placed.end(), replica.begin(), replica.end());
      poorest = std::max(poorest, ScoreOf(plan, topology, replica));
    }
    EXPECT_EQ(ScoreOf(plan, topology, placed), least) << round;
    EXPECT_EQ(ScoreOf(plan, topology, replicas[0]), poorest) << round;
    EXPECT_EQ(std::set<int>(placed.begin(), placed.end()).size(),
              static_cast<size_t>(plan.gpus()));
  }
}

// Eight GPUs on two switches, with messages between two of them measured.
ProfileData WithAPair() {
  ProfileData data = SyntheticProfileData({});
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      data.fingerprint.nvlinks[i][j] =
          Switches(static_cast<int>(i), static_cast<int>(j));
    }
  }
  Measurement& pair = data.measurements.emplace_back();
  pair.key = CollectiveKey{.op = CollectiveOp::kSendRecv,
                           .group = {.size = 2, .members = "0,1"},
                           .size_bytes = 4096};
  pair.statistics.median_seconds = 10e-6;
  return data;
}

TEST(SiteOf, NamesThePoorestGroupsOfMeasuredSizes) {
  const auto profile = BuildOrDie(WithAPair());
  const Plan plan{.pipeline = 2, .attention_tp = 2};
  const Site site = SiteOf(plan, {0, 2, 4, 1}, *profile);
  // 0 and 2 are on one switch, and so are 0 and 4.
  EXPECT_EQ(site.tensor_group.members, "1,4");
  EXPECT_EQ(site.stage.members, "1,4");
  EXPECT_EQ(site.neighbours.members, "1,2");
  EXPECT_EQ(
      SiteOf({.attention_tp = 4}, {0, 2, 4, 6}, *profile).tensor_group.members,
      "");
}

TEST(SiteOf, TellsGroupsThatAreLinkedOtherwiseThanTheFirstGpus) {
  // 0 and 1 are on two switches.
  const auto profile = BuildOrDie(WithAPair());
  const auto otherwise = [&](std::vector<int> gpus) {
    return SiteOf({.attention_tp = static_cast<int>(gpus.size())}, gpus,
                  *profile)
        .stage.linked_otherwise;
  };
  EXPECT_TRUE(otherwise({0, 2}));
  EXPECT_FALSE(otherwise({4, 7}));
  EXPECT_TRUE(otherwise({1, 3, 5, 7}));
  EXPECT_FALSE(otherwise({4, 5, 6, 7}));
}

TEST(SiteOf, NamesNoGroupWhereNoneWasMeasuredOrLinksAreAlike) {
  const Plan plan{.attention_tp = 2};
  ProfileData data = WithAPair();
  data.measurements.pop_back();
  EXPECT_EQ(
      SiteOf(plan, {0, 1}, *BuildOrDie(std::move(data))).tensor_group.members,
      "");
  data = WithAPair();
  data.fingerprint.nvlinks.clear();
  EXPECT_EQ(
      SiteOf(plan, {0, 1}, *BuildOrDie(std::move(data))).tensor_group.members,
      "");
}

TEST(Placer, SharesThePlacementOfPlansThatDifferInExpertsOnly) {
  const Topology node = Linked(8, Switches);
  Placer placer(node);
  const Placement& first = placer.At({.attention_tp = 8, .moe_tp = 8});
  EXPECT_EQ(&placer.At({.attention_tp = 8, .expert_parallel = 8}), &first);
  const Placement& other = placer.At({.replicas = 2, .attention_tp = 4});
  EXPECT_NE(&other, &first);
  EXPECT_EQ(other, Place({.replicas = 2, .attention_tp = 4}, node));
}

TEST(Placer, TakesOnlyTheGpusThatAreNamed) {
  // The order of the names is no matter.
  const auto pairs = [](int i, int j) { return i / 2 == j / 2 ? 4 : 0; };
  Placer bridged(Linked(8, pairs), {7, 2, 3, 6, 5});
  EXPECT_THAT(bridged.At({.attention_tp = 2}).replicas,
              ElementsAre(ElementsAre(2, 3)));
  EXPECT_THAT(bridged.At({.replicas = 2, .attention_tp = 2}).replicas,
              UnorderedElementsAre(ElementsAre(2, 3), ElementsAre(6, 7)));
  EXPECT_THAT(bridged.At({.attention_tp = 5}).replicas,
              ElementsAre(UnorderedElementsAre(2, 3, 5, 6, 7)));
  Placer alike(Alike(8), {6, 4, 1});
  EXPECT_THAT(alike.At({.attention_tp = 2}).replicas,
              ElementsAre(ElementsAre(1, 4)));
}

}  // namespace
}  // namespace fabricwise
