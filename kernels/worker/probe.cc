// SPDX-License-Identifier: Apache-2.0
#include "kernels/worker/probe.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cases/check.h"
#include "kernels/cuda.h"
#include "kernels/device/data.h"
#include "kernels/node.h"

extern char** environ;

namespace fabricwise {
namespace {

// Enough for every lane of a link, small enough for a millisecond.
constexpr int64_t kCopyElements = int64_t{1} << 20;

std::string Version(int number) {
  // CUDA and NCCL both write major, minor, patch as 1000s, 10s or as 10000s,
  // 100s, 1s.
  return absl::StrCat(number / 1000, ".", number % 1000 / 10);
}

std::string NcclVersion() {
  int number = 0;
  if (ncclGetVersion(&number) != ncclSuccess) return "";
  return absl::StrCat(number / 10000, ".", number % 10000 / 100, ".",
                      number % 100);
}

// Whether a copy of random data from `from` to `to`, over the access that the
// driver allows, arrives.
absl::StatusOr<bool> PeerCopyWorks(Node& node, int from, int to) {
  CurrentDevice current(from);
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
  cudaGetLastError();
  if (enabled != cudaSuccess && enabled != cudaErrorPeerAccessAlreadyEnabled) {
    return false;
  }
  const size_t bytes = kCopyElements * sizeof(__nv_bfloat16);
  ASSIGN_OR_RETURN(const DeviceBuffer source,
                   DeviceBuffer::Create(from, bytes));
  ASSIGN_OR_RETURN(const DeviceBuffer target, DeviceBuffer::Create(to, bytes));
  const uint64_t seed = std::random_device()();
  const cudaStream_t stream = node.stream(from);
  RETURN_IF_CUDA_ERROR(LaunchFill(source.as<__nv_bfloat16>(), kCopyElements,
                                  seed, 0, 0, stream));
  {
    CurrentDevice there(to);
    RETURN_IF_CUDA_ERROR(cudaMemset(target.data(), kPoison, bytes));
    RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  }
  RETURN_IF_CUDA_ERROR(cudaMemcpyPeerAsync(target.data(), to, source.data(),
                                           from, bytes, stream));
  RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
  WrongCount wrong;
  RETURN_IF_ERROR(wrong.Check(
      to, node.stream(to), [&](unsigned long long* count, cudaStream_t on) {
        return LaunchCheckCopy(target.as<__nv_bfloat16>(), kCopyElements, seed,
                               0, 0, count, on);
      }));
  return wrong.Verdict("peer copy").ok();
}

std::string Lower(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// Bus ids come with four or eight digits of domain, upper or lower case.
bool SameBus(const std::string& a, const std::string& b) {
  const auto tail = [](const std::string& id) {
    const size_t colon = id.find(':');
    return Lower(colon == std::string::npos ? id : id.substr(colon));
  };
  return tail(a) == tail(b);
}

// NVLinks from a GPU to each. Links into a switch reach every GPU that has a
// link into one.
std::vector<std::vector<int>> NvlinkMatrix(
    const Nvml& nvml, const std::vector<std::string>& bus_ids) {
  const size_t count = bus_ids.size();
  std::vector<std::vector<int>> links(count, std::vector<int>(count, 0));
  std::vector<int> into_switch(count, 0);
  for (size_t i = 0; i < count; ++i) {
    for (const std::string& peer : nvml.NvlinkPeers(bus_ids[i])) {
      const auto found = std::find_if(
          bus_ids.begin(), bus_ids.end(),
          [&](const std::string& id) { return SameBus(id, peer); });
      if (found == bus_ids.end()) {
        ++into_switch[i];
      } else {
        ++links[i][static_cast<size_t>(found - bus_ids.begin())];
      }
    }
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      if (i != j) links[i][j] += std::min(into_switch[i], into_switch[j]);
    }
  }
  return links;
}

std::string ReadFirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Whether any PCI bridge redirects peer requests to the root: the access
// control services' control register, in the extended configuration space that
// only root may read.
std::string AcsState() {
  constexpr size_t kExtendedSpace = 0x100, kSpace = 4096;
  constexpr uint32_t kAcsCapability = 0x0D;
  constexpr uint16_t kRequestRedirect = 1 << 2, kCompletionRedirect = 1 << 3;
  std::error_code error;
  bool read = false, redirect = false;
  for (const auto& entry :
       std::filesystem::directory_iterator("/sys/bus/pci/devices", error)) {
    std::ifstream file(entry.path() / "config", std::ios::binary);
    const std::string config{std::istreambuf_iterator<char>(file), {}};
    if (config.size() < kSpace) continue;
    read = true;
    size_t at = kExtendedSpace;
    // A list that loops ends with the space's number of headers.
    for (size_t step = 0; step < kSpace / 4 && at != 0; ++step) {
      uint32_t header = 0;
      std::memcpy(&header, config.data() + at, sizeof(header));
      if ((header & 0xFFFF) == kAcsCapability) {
        constexpr size_t kControl = 6;
        uint16_t control = 0;
        std::memcpy(&control, config.data() + at + kControl, sizeof(control));
        redirect = redirect ||
                   (control & (kRequestRedirect | kCompletionRedirect)) != 0;
      }
      at = header >> 20;
      if (at + 8 > kSpace) break;
    }
  }
  if (!read) return "unknown";
  return redirect ? "redirect" : "off";
}

std::string IommuState() {
  std::error_code error;
  const std::filesystem::directory_iterator groups("/sys/kernel/iommu_groups",
                                                   error);
  if (error) return "unknown";
  return groups == std::filesystem::directory_iterator() ? "off" : "on";
}

std::string NumaNode(const std::string& bus_id) {
  return ReadFirstLine(std::filesystem::path("/sys/bus/pci/devices") /
                       Lower(bus_id) / "numa_node");
}

std::vector<std::string> NcclEnvironment() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (absl::StartsWith(*entry, "NCCL_")) found.emplace_back(*entry);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string BusId(int device) {
  std::array<char, 32> text{};
  if (cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()),
                            device) != cudaSuccess) {
    return "";
  }
  return text.data();
}

absl::StatusOr<worker::v1::Probe> ProbeNode(const Nvml* nvml) {
  worker::v1::Probe probe;
  int count = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count));
  std::vector<std::string> bus_ids;
  for (int i = 0; i < count; ++i) bus_ids.push_back(BusId(i));

  for (int i = 0; i < count; ++i) {
    const std::string& bus_id = bus_ids[static_cast<size_t>(i)];
    worker::v1::Probe::Gpu& gpu = *probe.add_gpus();
    // Before a context of our own is there to be counted.
    if (nvml != nullptr)
      gpu.set_foreign_process_count(nvml->ProcessCount(bus_id));
    cudaDeviceProp properties{};
    RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, i));
    gpu.set_name(properties.name);
    gpu.set_memory_bytes(static_cast<int64_t>(properties.totalGlobalMem));
    gpu.set_compute_capability(properties.major * 10 + properties.minor);
    gpu.add_facts(absl::StrCat("bus=", bus_id));
    const std::string numa = NumaNode(bus_id);
    if (!numa.empty()) gpu.add_facts(absl::StrCat("numa=", numa));
    if (nvml == nullptr) continue;
    gpu.set_uuid(nvml->Uuid(bus_id));
    const PcieState pcie = nvml->Pcie(bus_id);
    // The link sleeps at a lower generation when idle: only width and best
    // stay equal.
    gpu.add_facts(absl::StrCat("pcie_width=", pcie.width));
    gpu.add_facts(absl::StrCat("pcie_best=gen", pcie.best_generation, "x",
                               pcie.best_width));
    gpu.add_facts(
        absl::StrCat("power_cap_watts=", nvml->PowerCapWatts(bus_id)));
    if (const auto ecc = nvml->Ecc(bus_id)) {
      gpu.add_facts(*ecc ? "ecc=on" : "ecc=off");
    }
    if (const auto mig = nvml->Mig(bus_id)) {
      gpu.add_facts(*mig ? "mig=on" : "mig=off");
    }
    gpu.add_facts(absl::StrCat("nvlinks_down=", nvml->NvlinksDown(bus_id)));
  }

  // Checking copies takes a context and memory of every GPU: not beside a job.
  std::unique_ptr<Node> node;
  if (std::none_of(probe.gpus().begin(), probe.gpus().end(),
                   [](const worker::v1::Probe::Gpu& gpu) {
                     return gpu.foreign_process_count() > 0;
                   })) {
    ASSIGN_OR_RETURN(node, Node::Create({}));
  }
  std::vector<std::vector<int>> links;
  if (nvml != nullptr) links = NvlinkMatrix(*nvml, bus_ids);
  for (int i = 0; i < count; ++i) {
    worker::v1::Probe::Peers& peers = *probe.add_peers();
    for (int j = 0; j < count; ++j) {
      bool access = true;
      if (i != j) {
        int allowed = 0;
        RETURN_IF_CUDA_ERROR(cudaDeviceCanAccessPeer(&allowed, i, j));
        access = allowed != 0;
        if (access && node != nullptr) {
          ASSIGN_OR_RETURN(access, PeerCopyWorks(*node, i, j));
        }
      }
      peers.add_access(access);
      if (!links.empty()) {
        peers.add_nvlinks(
            links[static_cast<size_t>(i)][static_cast<size_t>(j)]);
      }
    }
  }

  if (nvml != nullptr) probe.set_driver_version(nvml->DriverVersion());
  int cuda = 0;
  RETURN_IF_CUDA_ERROR(cudaRuntimeGetVersion(&cuda));
  probe.set_cuda_version(Version(cuda));
  probe.set_nccl_version(NcclVersion());
  for (std::string& entry : NcclEnvironment()) {
    probe.add_nccl_environment(std::move(entry));
  }
  probe.add_facts(absl::StrCat("acs=", AcsState()));
  probe.add_facts(absl::StrCat("iommu=", IommuState()));
  return probe;
}

std::string ProbeText(const worker::v1::Probe& probe) {
  std::string text = absl::StrCat(
      "driver ",
      probe.driver_version().empty() ? "unknown" : probe.driver_version(),
      ", CUDA ", probe.cuda_version(), ", NCCL ", probe.nccl_version(), "\n");
  for (int i = 0; i < probe.gpus_size(); ++i) {
    const worker::v1::Probe::Gpu& gpu = probe.gpus(i);
    absl::StrAppend(
        &text, "GPU ", i, "  ", gpu.name(), "  sm_", gpu.compute_capability(),
        "  ", gpu.memory_bytes() / (int64_t{1} << 20), " MiB  ", gpu.uuid(),
        "\n       ", absl::StrJoin(gpu.facts(), "  "), "\n");
    if (gpu.foreign_process_count() > 0) {
      absl::StrAppend(&text, "       ", gpu.foreign_process_count(),
                      " processes are on it\n");
    }
  }
  for (int i = 0; i < probe.peers_size(); ++i) {
    absl::StrAppend(&text, "peers of ", i, " ");
    for (int j = 0; j < probe.peers(i).access_size(); ++j) {
      if (i == j) {
        absl::StrAppend(&text, "  -");
        continue;
      }
      absl::StrAppend(&text, "  ", probe.peers(i).access(j) ? "P2P" : "no P2P");
      if (j < probe.peers(i).nvlinks_size()) {
        absl::StrAppend(&text, ", ", probe.peers(i).nvlinks(j), " NVLinks");
      }
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, absl::StrJoin(probe.facts(), "  "), "\n");
  if (probe.nccl_environment_size() > 0) {
    absl::StrAppend(&text, absl::StrJoin(probe.nccl_environment(), "  "), "\n");
  }
  return text;
}

}  // namespace fabricwise
