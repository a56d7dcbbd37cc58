// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/placement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;

Fingerprint Node() {
  Fingerprint node;
  node.gpus.resize(8);
  return node;
}

TEST(Place, GivesEveryReplicaItsOwnGpus) {
  const Plan plan{.replicas = 2, .pipeline = 2, .attention_tp = 2};
  EXPECT_THAT(Place(plan, Node()).replicas,
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
}

TEST(Placer, SharesThePlacementOfPlansThatDifferInExpertsOnly) {
  const Fingerprint node = Node();
  Placer placer(node);
  const Placement& first = placer.At({.attention_tp = 8, .moe_tp = 8});
  EXPECT_EQ(&placer.At({.attention_tp = 8, .expert_parallel = 8}), &first);
  const Placement& other = placer.At({.replicas = 2, .attention_tp = 4});
  EXPECT_NE(&other, &first);
  EXPECT_EQ(first, Place({.attention_tp = 8}, node));
}

}  // namespace
}  // namespace fabricwise
