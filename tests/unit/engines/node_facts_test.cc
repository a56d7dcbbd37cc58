// SPDX-License-Identifier: Apache-2.0
#include "server/engines/node_facts.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

// Four GPUs, bridged in pairs: 0 with 1, 2 with 3.
Fingerprint Bridged() {
  Fingerprint node = Node(4, false);
  for (const auto& [i, j] : {std::pair(0, 1), std::pair(2, 3)}) {
    node.nvlinks[i][j] = node.nvlinks[j][i] = 4;
    node.peer_access[i][j] = node.peer_access[j][i] = true;
  }
  return node;
}

const std::vector<int> kAll = {0, 1, 2, 3};

TEST(NvlinkComplete, AsksOnlyAboutTheGpusInQuestion) {
  const Fingerprint node = Bridged();
  EXPECT_EQ(NvlinkComplete(node, {0, 1}), true);
  EXPECT_EQ(NvlinkComplete(node, {3, 2}), true);
  EXPECT_EQ(NvlinkComplete(node, {1, 2}), false);
  EXPECT_EQ(NvlinkComplete(node, kAll), false);
  EXPECT_EQ(NvlinkComplete(node, {2}), true);
  EXPECT_EQ(NvlinkComplete(Node(8), kAll), true);
}

TEST(NvlinkComplete, IsUnknownWhereTheNodeDoesNotSay) {
  Fingerprint node = Node(4);
  node.nvlinks.clear();
  EXPECT_EQ(NvlinkComplete(node, kAll), std::nullopt);
  node = Node(4);
  node.nvlinks[3].pop_back();
  EXPECT_EQ(NvlinkComplete(node, kAll), std::nullopt);
}

TEST(NvlinkSwitched, TellsASwitchFromBridges) {
  EXPECT_EQ(NvlinkSwitched(Node(8)), true);
  EXPECT_EQ(NvlinkSwitched(Node(3)), true);
  EXPECT_EQ(NvlinkSwitched(Bridged()), false);
  Fingerprint mesh = Node(4);  // six links to each of three
  for (auto& row : mesh.nvlinks) row.assign(4, 6);
  for (size_t i = 0; i < 4; ++i) mesh.nvlinks[i][i] = 0;
  EXPECT_EQ(NvlinkSwitched(mesh), false);
  EXPECT_EQ(NvlinkSwitched(Node(8, false)), false);
  EXPECT_EQ(NvlinkSwitched(Node(2)), std::nullopt);
  EXPECT_EQ(NvlinkSwitched(Node(2, false)), false);
  mesh.nvlinks.clear();
  EXPECT_EQ(NvlinkSwitched(mesh), std::nullopt);
}

TEST(PeerAccessComplete, AsksOnlyAboutTheGpusInQuestion) {
  Fingerprint node = Bridged();
  EXPECT_EQ(PeerAccessComplete(node, {0, 1}), true);
  EXPECT_EQ(PeerAccessComplete(node, {1, 2}), false);
  EXPECT_EQ(PeerAccessComplete(node, {1}), true);
  node.peer_access.clear();
  EXPECT_EQ(PeerAccessComplete(node, {0, 1}), std::nullopt);
}

TEST(PeerAccessComplete, IsFalseWhereNcclIsToldToDoWithout) {
  Fingerprint node = Node(4);
  node.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  EXPECT_EQ(PeerAccessComplete(node, kAll), false);
  EXPECT_EQ(PeerAccessComplete(node, {1}), true);
}

TEST(PeerCopiesBroken, IsMoreThanMissingPeerAccess) {
  // Cards of the consumer series: the driver promises nothing.
  Fingerprint node = Node(4, false);
  EXPECT_FALSE(PeerCopiesBroken(node, kAll));
  EXPECT_FALSE(PeerCopiesBroken(Node(4), kAll));
  for (const char* fact : {"acs=redirect", "iommu=on"}) {
    node.facts = {fact};
    EXPECT_TRUE(PeerCopiesBroken(node, kAll)) << fact;
    EXPECT_FALSE(PeerCopiesBroken(node, {2})) << fact;
  }
  node.facts = {"acs=off", "iommu=off"};
  EXPECT_FALSE(PeerCopiesBroken(node, kAll));

  Fingerprint told = Node(4);
  told.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  EXPECT_TRUE(PeerCopiesBroken(told, kAll));

  Fingerprint damaged = Bridged();
  EXPECT_FALSE(PeerCopiesBroken(damaged, kAll));
  damaged.peer_access[2][3] = false;
  EXPECT_TRUE(PeerCopiesBroken(damaged, {2, 3}));
  EXPECT_FALSE(PeerCopiesBroken(damaged, {0, 1}));

  // Redirected, but the copies were checked and arrive.
  Fingerprint redirected = Node(4);
  redirected.facts = {"acs=redirect"};
  EXPECT_FALSE(PeerCopiesBroken(redirected, kAll));
}

TEST(ComputeCapability, IsThatOfAllOrUnknown) {
  Fingerprint node = Node(4);
  EXPECT_EQ(ComputeCapability(node, kAll), 90);
  node.gpus[3].compute_capability = 100;
  EXPECT_EQ(ComputeCapability(node, kAll), std::nullopt);
  EXPECT_EQ(ComputeCapability(node, {0, 1, 2}), 90);
}

TEST(ComputeCapability, FollowsFromTheNameWhereItWasNotRecorded) {
  struct Row {
    const char* name;
    int capability;
  };
  constexpr Row kRows[] = {
      {"NVIDIA A100-SXM4-80GB", 80},
      {"NVIDIA A800-SXM4-80GB", 80},
      {"NVIDIA A10", 86},
      {"NVIDIA RTX A6000", 86},
      {"NVIDIA GeForce RTX 3090", 86},
      {"NVIDIA L4", 89},
      {"NVIDIA L40S", 89},
      {"NVIDIA GeForce RTX 4090", 89},
      {"NVIDIA RTX 5880 Ada Generation", 89},
      {"NVIDIA H100 80GB HBM3", 90},
      {"NVIDIA H20", 90},
      {"NVIDIA H200", 90},
      {"NVIDIA GH200 480GB", 90},
      {"NVIDIA B200", 100},
      {"NVIDIA GB200", 100},
      {"NVIDIA B300 SXM6 AC", 103},
      {"NVIDIA GB300", 103},
      {"NVIDIA GeForce RTX 5090", 120},
      {"NVIDIA RTX PRO 6000 Blackwell Server Edition", 120},
      {"Tesla V100-SXM2-32GB", 70},
      {"Tesla T4", 75},
  };
  for (const Row& row : kRows) {
    Fingerprint node = Node(1);
    node.gpus[0] = {.name = row.name};
    EXPECT_EQ(ComputeCapability(node, {0}), row.capability) << row.name;
  }
  Fingerprint node = Node(1);
  node.gpus[0] = {.name = "Something else"};
  EXPECT_EQ(ComputeCapability(node, {0}), std::nullopt);
}

TEST(SmallestMemoryBytes, IsOfTheGpusInQuestion) {
  Fingerprint node = Node(4);
  node.gpus[3].memory_bytes = 1000;
  EXPECT_EQ(SmallestMemoryBytes(node, kAll), 1000);
  EXPECT_EQ(SmallestMemoryBytes(node, {0, 1}), 141'000'000'000);
  node.gpus[1].memory_bytes = 0;
  EXPECT_EQ(SmallestMemoryBytes(node, {0, 1}), std::nullopt);
}

TEST(OfEveryGroup, IsTrueOnlyWhereEveryGroupIs) {
  const Fingerprint node = Bridged();
  EXPECT_EQ(OfEveryGroup(node, kAll, 2, NvlinkComplete), true);
  EXPECT_EQ(OfEveryGroup(node, {0, 2, 1, 3}, 2, NvlinkComplete), false);
  EXPECT_EQ(OfEveryGroup(node, kAll, 4, NvlinkComplete), false);
  const auto unknown_first = [](const Fingerprint&,
                                absl::Span<const int> gpus) {
    return gpus.front() == 0 ? std::optional<bool>() : gpus.front() != 2;
  };
  EXPECT_EQ(OfEveryGroup(node, {0, 1}, 2, unknown_first), std::nullopt);
  EXPECT_EQ(OfEveryGroup(node, kAll, 2, unknown_first), false);
}

}  // namespace
}  // namespace fabricwise
