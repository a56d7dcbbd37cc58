// SPDX-License-Identifier: Apache-2.0
#include "server/engines/launch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ShellWord, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellWord("meta-llama/Llama-3.1_8B:v1"),
            "meta-llama/Llama-3.1_8B:v1");
  EXPECT_EQ(ShellWord("x; rm -rf ~"), "'x; rm -rf ~'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord("$(date)"), "'$(date)'");
  EXPECT_EQ(ShellWord(""), "''");
}

TEST(ModelWord, StandsInForARepositoryThatIsMissing) {
  EXPECT_EQ(ModelWord({.repository = "a b"}), "'a b'");
  EXPECT_EQ(ModelWord({.name = "a"}), "MODEL");
}

TEST(VisibleDevices, KeepsTheOrderOfRanks) {
  EXPECT_EQ(VisibleDevices({5, 2}), "CUDA_VISIBLE_DEVICES=5,2");
}

TEST(NcclSettings, LeavesOutWhatSetsNothing) {
  Fingerprint node;
  node.nccl_environment = {"NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=/tmp/x",
                           "NCCL_NVLS_ENABLE=0", "NCCL_VERSION=2.28.3-1",
                           "NCCL_SOCKET_IFNAME=^lo,docker"};
  EXPECT_THAT(NcclSettings(node), ElementsAre("NCCL_NVLS_ENABLE=0",
                                              "NCCL_SOCKET_IFNAME=^lo,docker"));
}

TEST(NcclSettings, LeavesOutWhatIsNoVariableOfNccl) {
  Fingerprint node;
  node.nccl_environment = {"NCCL_X;reboot;Y=1", "LD_PRELOAD=x.so", "NCCL_X",
                           "=1", "NCCL_x=1"};
  EXPECT_THAT(NcclSettings(node), IsEmpty());
}

TEST(SetVariable, SaysNothingTwice) {
  std::vector<std::string> environment = {"A=1"};
  SetVariable("A=1", environment);
  SetVariable("B=1", environment);
  EXPECT_THAT(environment, ElementsAre("A=1", "B=1"));
}

TEST(SequencesEach, RoundsUpAndIsAtLeastOne) {
  EXPECT_EQ(SequencesEach({.concurrency = 65}, 2), 33);
  EXPECT_EQ(SequencesEach({.concurrency = 64}, 2), 32);
  EXPECT_EQ(SequencesEach({.concurrency = 1}, 8), 1);
}

}  // namespace
}  // namespace fabricwise
