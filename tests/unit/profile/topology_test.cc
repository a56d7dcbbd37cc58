// SPDX-License-Identifier: Apache-2.0
#include "server/profile/topology.h"

#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

Fingerprint Node(int gpus) {
  Fingerprint node;
  node.gpus.resize(static_cast<size_t>(gpus));
  return node;
}

using Matrix = std::vector<std::vector<int>>;

Matrix Links(int gpus, const std::function<int(int, int)>& links) {
  Matrix matrix(static_cast<size_t>(gpus));
  for (int i = 0; i < gpus; ++i) {
    for (int j = 0; j < gpus; ++j) {
      matrix[static_cast<size_t>(i)].push_back(i == j ? 0 : links(i, j));
    }
  }
  return matrix;
}

Topology Unmeasured(const Fingerprint& node) {
  return Topology::Of(node, [](int, int) { return nullptr; });
}

TEST(Topology, OfANodeThatSaysNothingHasOneKind) {
  const Topology topology = Unmeasured(Node(4));
  EXPECT_EQ(topology.gpu_count(), 4);
  EXPECT_EQ(topology.kind_count(), 1);
  EXPECT_EQ(topology.Kind(0, 3), 0);
  EXPECT_EQ(Topology().gpu_count(), 0);
  EXPECT_EQ(Unmeasured(Node(1)).kind_count(), 1);
}

TEST(Topology, TellsBridgedPairsFromTheRest) {
  Fingerprint node = Node(4);
  node.nvlinks = Links(4, [](int i, int j) { return i / 2 == j / 2 ? 4 : 0; });
  const Topology topology = Unmeasured(node);
  EXPECT_EQ(topology.kind_count(), 2);
  EXPECT_EQ(topology.Kind(0, 1), 0);
  EXPECT_EQ(topology.Kind(3, 2), 0);
  EXPECT_EQ(topology.Kind(1, 2), 1);
}

TEST(Topology, TakesTheWorseDirectionOfALink) {
  Fingerprint node = Node(3);
  node.nvlinks =
      Links(3, [](int i, int j) { return i == 2 && j == 0 ? 9 : 18; });
  EXPECT_EQ(Unmeasured(node).Kind(0, 2), 1);
  EXPECT_EQ(Unmeasured(node).Kind(0, 1), 0);
  node.nvlinks.clear();
  node.peer_access.assign(3, std::vector<bool>(3, true));
  node.peer_access[1][0] = false;
  EXPECT_EQ(Unmeasured(node).Kind(0, 1), 1);
  EXPECT_EQ(Unmeasured(node).Kind(0, 2), 0);
}

TEST(Topology, AsksForTheNumaNodeOnlyWhereThereIsNoNvlink) {
  Fingerprint node = Node(4);
  node.facts = {"gpu0.numa=0", "gpu1.numa=0", "gpu2.numa=1", "gpu3.numa=1"};
  EXPECT_EQ(Unmeasured(node).kind_count(), 2);
  EXPECT_EQ(Unmeasured(node).Kind(2, 3), 0);
  EXPECT_EQ(Unmeasured(node).Kind(1, 2), 1);
  node.nvlinks = Links(4, [](int, int) { return 18; });
  EXPECT_EQ(Unmeasured(node).kind_count(), 1);
}

TEST(Topology, LeavesAMatrixOfAnotherSizeAside) {
  Fingerprint node = Node(3);
  node.nvlinks = Links(2, [](int, int) { return 18; });
  node.peer_access.resize(3);
  EXPECT_EQ(Unmeasured(node).kind_count(), 1);
}

TEST(Topology, HasAtMostSoManyKinds) {
  Fingerprint node = Node(16);
  node.nvlinks = Links(16, [](int i, int j) { return i + j; });
  const Topology topology = Unmeasured(node);
  EXPECT_EQ(topology.kind_count(), Topology::kMostKinds);
  EXPECT_EQ(topology.Kind(14, 15), 0);
  EXPECT_EQ(topology.Kind(0, 1), Topology::kMostKinds - 1);
}

// Eight GPUs without a word on their links, and messages between each two that
// take `factor` times as long as on the synthetic fabric.
ProfileData WithPairs(const std::function<double(int, int)>& factor) {
  ProfileData data = SyntheticProfileData({});
  data.fingerprint.nvlinks.clear();
  data.fingerprint.peer_access.clear();
  for (int i = 0; i < 8; ++i) {
    for (int j = i + 1; j < 8; ++j) {
      for (int64_t size : {4 << 10, 1 << 20, 64 << 20}) {
        Measurement& pair = data.measurements.emplace_back();
        pair.key = CollectiveKey{
            .op = CollectiveOp::kSendRecv,
            .group = {.size = 2, .members = absl::StrCat(i, ",", j)},
            .size_bytes = size};
        pair.statistics.median_seconds =
            factor(i, j) * (10e-6 + static_cast<double>(size) / 300e9);
      }
    }
  }
  return data;
}

TEST(Topology, OrdersPairsByWhatMessagesBetweenThemTake) {
  const auto profile = BuildOrDie(
      WithPairs([](int i, int j) { return i / 4 == j / 4 ? 1 : 3; }));
  EXPECT_EQ(profile->topology().kind_count(), 2);
  EXPECT_EQ(profile->topology().Kind(0, 3), 0);
  EXPECT_EQ(profile->topology().Kind(3, 4), 1);
}

TEST(Topology, TakesNoiseForOneKind) {
  const auto profile = BuildOrDie(
      WithPairs([](int i, int j) { return 1 + 0.02 * ((i * 3 + j) % 5); }));
  EXPECT_EQ(profile->topology().kind_count(), 1);
}

TEST(Topology, BelievesMeasurementsBeforeWhatLinksAreThere) {
  // Bridges that are there, but half of them slower than the way around.
  ProfileData data = WithPairs([](int i, int j) {
    return i / 2 != j / 2 ? 2 : i < 4 ? 1 : 8;
  });
  data.fingerprint.nvlinks =
      Links(8, [](int i, int j) { return i / 2 == j / 2 ? 4 : 0; });
  const auto profile = BuildOrDie(std::move(data));
  EXPECT_EQ(profile->topology().kind_count(), 3);
  EXPECT_EQ(profile->topology().Kind(0, 1), 0);
  EXPECT_EQ(profile->topology().Kind(1, 2), 1);
  EXPECT_EQ(profile->topology().Kind(6, 7), 2);
}

TEST(Topology, NeedsEveryPairMeasuredToCompareThem) {
  ProfileData data =
      WithPairs([](int i, int j) { return i / 4 == j / 4 ? 1 : 3; });
  data.measurements.erase(
      std::remove_if(data.measurements.begin(), data.measurements.end(),
                     [](const Measurement& measurement) {
                       const auto* key =
                           std::get_if<CollectiveKey>(&measurement.key);
                       return key != nullptr && key->group.members == "2,6";
                     }),
      data.measurements.end());
  EXPECT_EQ(BuildOrDie(std::move(data))->topology().kind_count(), 1);
}

TEST(Topology, AmongSomeKeepsTheirLinks) {
  Fingerprint node = Node(6);
  node.nvlinks = Links(6, [](int i, int j) { return i / 2 == j / 2 ? 4 : 0; });
  const Topology whole = Unmeasured(node);
  const Topology some = whole.Among({1, 4, 5});
  EXPECT_EQ(some.gpu_count(), 3);
  EXPECT_EQ(some.kind_count(), 2);
  EXPECT_EQ(some.Kind(0, 1), 1);
  EXPECT_EQ(some.Kind(1, 2), 0);
  EXPECT_EQ(some.Kind(2, 1), 0);
  // No two of these are bridged: all alike.
  EXPECT_EQ(whole.Among({0, 2, 4}).kind_count(), 1);
  EXPECT_EQ(whole.Among({3}).kind_count(), 1);
}

}  // namespace
}  // namespace fabricwise
