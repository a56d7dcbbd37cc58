// SPDX-License-Identifier: Apache-2.0
#include "server/measure/findings.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace fabricwise {
namespace {

using worker::v1::Probe;

// The value of `name` among "name=value" facts.
template <typename Facts>
std::optional<std::string> Fact(const Facts& facts, absl::string_view name) {
  for (const std::string& fact : facts) {
    absl::string_view rest = fact;
    if (absl::ConsumePrefix(&rest, name) && absl::ConsumePrefix(&rest, "=")) {
      return std::string(rest);
    }
  }
  return std::nullopt;
}

std::optional<int> Number(absl::string_view text) {
  int number = 0;
  if (!absl::SimpleAtoi(text, &number)) return std::nullopt;
  return number;
}

std::string GpuName(int index) { return absl::StrCat("GPU ", index); }

class Doctor {
 public:
  explicit Doctor(const Probe& probe) : probe_(probe) {}

  std::vector<NodeFinding> Examine() {
    for (int i = 0; i < probe_.gpus_size(); ++i) {
      LookAtProcesses(i);
      LookAtNvlinks(i);
      LookAtPcie(i);
      LookAtPartition(i);
    }
    LookAtPeers();
    LookAtNode();
    LookAtEnvironment();
    LookAtEquality();
    LookAtCustomAllReduce();
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const NodeFinding& a, const NodeFinding& b) {
                       return a.severity > b.severity;
                     });
    return std::move(findings_);
  }

 private:
  int count() const { return probe_.gpus_size(); }

  // Empty matrices tell nothing: neither access nor the lack of it.
  std::optional<bool> Access(int from, int to) const {
    if (probe_.peers_size() != count() ||
        probe_.peers(from).access_size() != count()) {
      return std::nullopt;
    }
    return probe_.peers(from).access(to);
  }
  int Nvlinks(int from, int to) const {
    if (probe_.peers_size() != count() ||
        probe_.peers(from).nvlinks_size() != count()) {
      return 0;
    }
    return probe_.peers(from).nvlinks(to);
  }

  void LookAtProcesses(int gpu) {
    const int processes = probe_.gpus(gpu).foreign_process_count();
    if (processes == 0) return;
    findings_.push_back(
        {FindingKind::kBusy, Severity::kNote, GpuName(gpu),
         absl::StrCat(processes,
                      processes == 1 ? " process is" : " processes are",
                      " on it; it is measured when it is idle"),
         "drain the node first where fresh curves are wanted now"});
  }

  void LookAtNvlinks(int gpu) {
    const auto down = Fact(probe_.gpus(gpu).facts(), "nvlinks_down");
    if (!down || Number(*down).value_or(0) == 0) return;
    findings_.push_back(
        {FindingKind::kNvlink, Severity::kWarning, GpuName(gpu),
         absl::StrCat(*down, " of its NVLinks are down"),
         "look for Xid 74 in the kernel's log and at `nvidia-smi nvlink "
         "--status`; reset the GPU, check nvidia-fabricmanager where there is "
         "an NVSwitch; if it stays, the baseboard needs service"});
  }

  void LookAtPcie(int gpu) {
    const auto width = Fact(probe_.gpus(gpu).facts(), "pcie_width");
    const auto best = Fact(probe_.gpus(gpu).facts(), "pcie_best");
    if (!width || !best) return;
    const std::optional<int> now = Number(*width);
    const std::optional<int> most =
        Number(absl::string_view(*best).substr(best->find('x') + 1));
    if (!now || !most || *now <= 0 || *now >= *most) return;
    findings_.push_back(
        {FindingKind::kPcieWidth, Severity::kWarning, GpuName(gpu),
         absl::StrCat("its PCIe link runs ", *now, " lanes wide; it can do ",
                      *most),
         "reseat the card or its riser; see whether the slot is wired and "
         "bifurcated for the full width in the firmware's set-up"});
  }

  void LookAtPartition(int gpu) {
    if (Fact(probe_.gpus(gpu).facts(), "mig") != "on") return;
    findings_.push_back(
        {FindingKind::kPartition, Severity::kWarning, GpuName(gpu),
         "MIG is on: its instances have no peer access and no NVLink",
         "turn MIG off on nodes that serve with several GPUs"});
  }

  void LookAtPeers() {
    std::vector<std::string> broken;
    for (int i = 0; i < count(); ++i) {
      for (int j = 0; j < count(); ++j) {
        if (i == j || Access(i, j) != false) continue;
        broken.push_back(absl::StrCat(i, " to ", j));
      }
    }
    if (broken.empty()) return;
    // Links that are there and do not work are worse than none.
    bool linked = false;
    for (int i = 0; i < count(); ++i) {
      for (int j = 0; j < count(); ++j) {
        linked =
            linked || (i != j && Nvlinks(i, j) > 0 && Access(i, j) == false);
      }
    }
    constexpr size_t kMostNamed = 8;
    const size_t all = broken.size();
    std::string named = absl::StrJoin(
        broken.begin(),
        broken.begin() + static_cast<std::ptrdiff_t>(std::min(all, kMostNamed)),
        ", ");
    if (all > kMostNamed) {
      absl::StrAppend(&named, " and ", all - kMostNamed, " more");
    }
    findings_.push_back(
        {FindingKind::kPeerAccess,
         linked ? Severity::kError : Severity::kWarning,
         absl::StrCat("GPU ", named),
         absl::StrCat(
             "copies between peers are refused or arrive damaged; NCCL "
             "goes through host memory there",
             linked ? ", though NVLinks join them" : ""),
         "check `nvidia-smi topo -p2p r`; turn ACS and, on bare metal, the "
         "IOMMU off; in a virtual machine ask for one with peer access; cards "
         "of the consumer series have none"});
  }

  void LookAtNode() {
    const bool over_pcie = !NvlinkComplete();
    if (Fact(probe_.facts(), "acs") == "redirect" && count() > 1) {
      findings_.push_back(
          {FindingKind::kAccessControl,
           over_pcie ? Severity::kWarning : Severity::kNote, "node",
           "PCI bridges redirect peer traffic to the root complex (ACS)",
           over_pcie ? "turn ACS off in the firmware, or by setpci on each "
                       "bridge at boot"
                     : ""});
    }
    if (Fact(probe_.facts(), "iommu") == "on" && count() > 1) {
      findings_.push_back(
          {FindingKind::kIommu,
           over_pcie ? Severity::kWarning : Severity::kNote, "node",
           "the IOMMU is on: PCIe traffic between peers is translated, which "
           "slows it or damages it",
           over_pcie ? "boot with iommu=pt, or turn it off in the firmware"
                     : ""});
    }
  }

  void LookAtEnvironment() {
    for (const std::string& entry : probe_.nccl_environment()) {
      if (entry != "NCCL_P2P_DISABLE=1" && entry != "NCCL_SHM_DISABLE=1" &&
          entry != "NCCL_P2P_LEVEL=LOC") {
        continue;
      }
      findings_.push_back(
          {FindingKind::kEnvironment, Severity::kWarning, "node",
           absl::StrCat(entry, " keeps NCCL from a path of this node"),
           "unset it for the daemon, and for the engines, unless it is meant; "
           "curves hold only for engines with the same NCCL_* environment"});
    }
  }

  void LookAtEquality() {
    const auto differs = [&](const auto& of) {
      for (int i = 1; i < count(); ++i) {
        if (of(probe_.gpus(i)) != of(probe_.gpus(0))) return true;
      }
      return false;
    };
    std::vector<std::string> what;
    if (differs([](const auto& gpu) { return gpu.name(); })) {
      what.emplace_back("model");
    }
    for (const char* fact : {"ecc", "power_cap_watts", "pcie_best"}) {
      if (differs([&](const auto& gpu) { return Fact(gpu.facts(), fact); })) {
        what.emplace_back(fact);
      }
    }
    if (what.empty()) return;
    findings_.push_back(
        {FindingKind::kUnequal, Severity::kWarning, "node",
         absl::StrCat("its GPUs differ in ", absl::StrJoin(what, ", "),
                      "; a step waits for the slowest"),
         "set them alike, or serve from alike GPUs only"});
  }

  bool NvlinkComplete() const {
    for (int i = 0; i < count(); ++i) {
      for (int j = 0; j < count(); ++j) {
        if (i != j && Nvlinks(i, j) == 0) return false;
      }
    }
    return count() > 1;
  }

  // vllm/distributed/device_communicators/custom_all_reduce.py: 2, 4, 6 or 8
  // ranks; over two ranks only where NVLinks join all; peer access that works.
  void LookAtCustomAllReduce() {
    if (count() < 2) return;
    bool access = true;
    for (int i = 0; i < count(); ++i) {
      for (int j = 0; j < count(); ++j) {
        access = access && (i == j || Access(i, j) != false);
      }
    }
    std::string why;
    if (!access) {
      why = "copies between peers do not work";
    } else if (count() > 2 && !NvlinkComplete()) {
      why = "over two ranks it wants NVLink between all";
    } else {
      return;
    }
    findings_.push_back(
        {FindingKind::kCustomAllReduce, Severity::kNote, "node",
         absl::StrCat("vLLM would not use its own all-reduce over all ",
                      count(), " GPUs: ", why,
                      "; small all-reduces take NCCL's latency"),
         "expect tensor parallelism to pay less here than on a node of the "
         "same GPUs with NVLink"});
  }

  const Probe& probe_;
  std::vector<NodeFinding> findings_;
};

}  // namespace

std::vector<NodeFinding> Diagnose(const Probe& probe) {
  return Doctor(probe).Examine();
}

}  // namespace fabricwise
