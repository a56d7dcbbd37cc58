// SPDX-License-Identifier: Apache-2.0
#include "server/measure/probe.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/measure/findings.h"

namespace fabricwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using worker::v1::Probe;

// `count` idle GPUs with peer access and `links` NVLinks between each two.
Probe Node(int count, int links) {
  Probe probe;
  for (int i = 0; i < count; ++i) {
    auto* const gpu = probe.add_gpus();
    gpu->set_name("NVIDIA H200");
    gpu->set_uuid("GPU-" + std::to_string(i));
    for (const char* fact : {"pcie_width=16", "pcie_best=gen5x16", "ecc=on",
                             "mig=off", "nvlinks_down=0"}) {
      gpu->add_facts(fact);
    }
    auto* const peers = probe.add_peers();
    for (int j = 0; j < count; ++j) {
      peers->add_access(true);
      peers->add_nvlinks(i == j ? 0 : links);
    }
  }
  probe.add_facts("iommu=off");
  probe.add_facts("acs=off");
  return probe;
}

std::vector<FindingKind> Kinds(const Probe& probe) {
  std::vector<FindingKind> kinds;
  for (const NodeFinding& finding : Diagnose(probe))
    kinds.push_back(finding.kind);
  return kinds;
}

TEST(ProbeTest, BecomesAFingerprint) {
  Probe probe = Node(2, 18);
  probe.set_driver_version("580.1");
  probe.add_nccl_environment("NCCL_B=2");
  probe.add_nccl_environment("NCCL_A=1");
  const auto node = FingerprintOf(probe);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->gpus.size(), 2u);
  EXPECT_EQ(node->gpus[1].uuid, "GPU-1");
  EXPECT_EQ(node->driver_version, "580.1");
  EXPECT_THAT(node->nccl_environment, ElementsAre("NCCL_A=1", "NCCL_B=2"));
  EXPECT_EQ(node->peer_access[0][1], true);
  EXPECT_EQ(node->nvlinks[1][0], 18);
  EXPECT_TRUE(std::is_sorted(node->facts.begin(), node->facts.end()));
  EXPECT_THAT(node->facts, testing::Contains("gpu1.ecc=on"));
  EXPECT_THAT(node->facts, testing::Contains("iommu=off"));
}

TEST(ProbeTest, AProcessOnAGpuIsNoPartOfTheFingerprint) {
  Probe probe = Node(2, 18);
  const auto idle = ReadProbe(probe, absl::UnixEpoch());
  probe.mutable_gpus(1)->set_foreign_process_count(3);
  const auto busy = ReadProbe(probe, absl::UnixEpoch());
  EXPECT_FALSE(idle->busy);
  EXPECT_TRUE(busy->busy);
  EXPECT_EQ(FingerprintId(idle->fingerprint), FingerprintId(busy->fingerprint));
}

TEST(ProbeTest, NamesTheFabric) {
  const auto fabric = [](Probe probe, std::vector<const char*> environment) {
    for (const char* entry : environment) probe.add_nccl_environment(entry);
    return FingerprintOf(probe)->fabric;
  };
  Probe without_access = Node(2, 0);
  without_access.mutable_peers(0)->set_access(1, false);
  EXPECT_EQ(fabric(Node(8, 18), {}), "nvlink");
  EXPECT_EQ(fabric(Node(2, 0), {}), "pcie");
  EXPECT_EQ(fabric(without_access, {}), "shm");
  EXPECT_EQ(fabric(without_access, {"NCCL_SHM_DISABLE=1"}), "net");
  EXPECT_EQ(fabric(Node(2, 18), {"NCCL_P2P_DISABLE=1"}), "shm");
  EXPECT_EQ(fabric(Node(2, 18), {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1"}),
            "net");
  EXPECT_EQ(fabric(Node(2, 18), {"NCCL_P2P_DISABLE=0"}), "nvlink");
  EXPECT_EQ(fabric(Node(1, 0), {}), "single");
}

TEST(ProbeTest, OneThatDoesNotAddUpIsRefused) {
  EXPECT_EQ(FingerprintOf(Probe()).status(),
            absl::InternalError("the probe names no GPU"));
  Probe short_row = Node(3, 18);
  short_row.mutable_peers(1)->mutable_access()->RemoveLast();
  EXPECT_EQ(FingerprintOf(short_row).status(),
            absl::InternalError("the probe's peer access is not 3 rows of 3"));
  Probe short_matrix = Node(3, 18);
  short_matrix.mutable_peers()->RemoveLast();
  EXPECT_EQ(FingerprintOf(short_matrix).status().code(),
            absl::StatusCode::kInternal);
  Probe silent = Node(2, 18);
  silent.clear_peers();
  EXPECT_TRUE(FingerprintOf(silent).ok()) << "a matrix may be unknown";
}

TEST(Findings, AHealthyNodeHasNone) {
  EXPECT_THAT(Diagnose(Node(8, 18)), IsEmpty());
  EXPECT_THAT(Diagnose(Node(1, 0)), IsEmpty());
}

TEST(Findings, LinksThatAreThereAndDoNotWorkAreTheWorst) {
  Probe probe = Node(2, 18);
  probe.mutable_gpus(0)->set_foreign_process_count(1);
  probe.mutable_peers(1)->set_access(0, false);
  const std::vector<NodeFinding> findings = Diagnose(probe);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].kind, FindingKind::kPeerAccess);
  EXPECT_EQ(findings[0].severity, Severity::kError);
  EXPECT_EQ(findings[0].subject, "GPU 1 to 0");
  EXPECT_THAT(findings[0].remedy, HasSubstr("ACS"));
  EXPECT_THAT(Kinds(probe),
              ElementsAre(FindingKind::kPeerAccess, FindingKind::kBusy,
                          FindingKind::kCustomAllReduce));
}

TEST(Findings, ManyBrokenPairsAreNamedInShort) {
  Probe probe = Node(8, 0);
  for (auto& peers : *probe.mutable_peers()) {
    for (int j = 0; j < 8; ++j) peers.set_access(j, false);
  }
  const std::vector<NodeFinding> findings = Diagnose(probe);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].severity, Severity::kWarning) << "no link is broken";
  EXPECT_THAT(findings[0].subject, HasSubstr(" and 48 more"));
}

TEST(Findings, AreReadFromFacts) {
  const auto with_gpu_fact = [](const char* fact) {
    Probe probe = Node(2, 18);
    for (auto& gpu : *probe.mutable_gpus()) {
      gpu.clear_facts();
      gpu.add_facts("pcie_best=gen5x16");
      gpu.add_facts(fact);
    }
    return Kinds(probe);
  };
  EXPECT_THAT(with_gpu_fact("nvlinks_down=2"),
              ElementsAre(FindingKind::kNvlink, FindingKind::kNvlink));
  EXPECT_THAT(with_gpu_fact("pcie_width=8"),
              ElementsAre(FindingKind::kPcieWidth, FindingKind::kPcieWidth));
  EXPECT_THAT(with_gpu_fact("mig=on"),
              ElementsAre(FindingKind::kPartition, FindingKind::kPartition));
  for (const char* harmless : {"nvlinks_down=", "pcie_width=x", "pcie_width=16",
                               "pcie_width=0", "mig=off", "nvlinks_down=0"}) {
    EXPECT_THAT(with_gpu_fact(harmless), IsEmpty()) << harmless;
  }
}

TEST(Findings, AccessControlAndIommuMatterWherePcieCarriesThePeers) {
  const auto node = [](int links) {
    Probe probe = Node(2, links);
    probe.clear_facts();
    probe.add_facts("acs=redirect");
    probe.add_facts("iommu=on");
    return Diagnose(probe);
  };
  for (const NodeFinding& finding : node(18)) {
    EXPECT_EQ(finding.severity, Severity::kNote);
    EXPECT_EQ(finding.remedy, "");
  }
  ASSERT_EQ(node(0).size(), 2u);
  for (const NodeFinding& finding : node(0)) {
    EXPECT_EQ(finding.severity, Severity::kWarning);
    EXPECT_NE(finding.remedy, "");
  }
}

TEST(Findings, TellWhatTheEnvironmentForbids) {
  Probe probe = Node(2, 18);
  probe.add_nccl_environment("NCCL_P2P_DISABLE=1");
  probe.add_nccl_environment("NCCL_DEBUG=INFO");
  EXPECT_THAT(Kinds(probe), ElementsAre(FindingKind::kEnvironment));
  EXPECT_THAT(Diagnose(probe)[0].detail, HasSubstr("NCCL_P2P_DISABLE=1"));
}

TEST(Findings, UnequalGpusHoldUpAStep) {
  Probe probe = Node(2, 18);
  probe.mutable_gpus(1)->set_name("NVIDIA H100");
  probe.mutable_gpus(1)->set_facts(2, "ecc=off");
  ASSERT_THAT(Kinds(probe), ElementsAre(FindingKind::kUnequal));
  EXPECT_THAT(Diagnose(probe)[0].detail, HasSubstr("model, ecc"));
}

TEST(Findings, VllmsAllReduceWantsNvlinkOverTwoRanks) {
  EXPECT_THAT(Kinds(Node(2, 0)), IsEmpty());
  EXPECT_THAT(Kinds(Node(4, 0)), ElementsAre(FindingKind::kCustomAllReduce));
}

TEST(Findings, EveryKindHasAName) {
  for (int kind = 0; kind <= static_cast<int>(FindingKind::kCustomAllReduce);
       ++kind) {
    EXPECT_NE(ToString(static_cast<FindingKind>(kind)), "");
  }
}

}  // namespace
}  // namespace fabricwise
