// SPDX-License-Identifier: Apache-2.0
#include "server/engines/node_facts.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace fabricwise {
namespace {

// The most NVLinks of one GPU: 18 since sm_90, 12 before.
constexpr int kMostNvlinks = 18;

// Compute capability by a word of the product's name (CUDA GPU list of NVIDIA,
// 2026). The first that matches counts.
struct NamedCapability {
  absl::string_view word;
  int capability;
};
constexpr NamedCapability kCapabilities[] = {
    {"GB300", 103}, {"B300", 103},    {"GB200", 100},  {"B200", 100},
    {"B100", 100},  {"H100", 90},     {"H200", 90},    {"H800", 90},
    {"H20", 90},    {"GH200", 90},    {"A100", 80},    {"A800", 80},
    {"A30", 80},    {"RTX A", 86},    {"A40", 86},     {"A10", 86},
    {"RTX 30", 86}, {"RTX PRO", 120}, {"RTX 50", 120}, {"L40", 89},
    {"L4", 89},     {"L20", 89},      {"RTX 40", 89},  {"Ada", 89},
    {"V100", 70},   {"T4", 75},
};

int CapabilityOf(const Gpu& gpu) {
  if (gpu.compute_capability != 0) return gpu.compute_capability;
  for (const NamedCapability& known : kCapabilities) {
    if (absl::StrContains(gpu.name, known.word)) return known.capability;
  }
  return 0;
}

template <typename T>
bool IsSquare(const std::vector<std::vector<T>>& matrix, size_t count) {
  return matrix.size() == count &&
         std::all_of(matrix.begin(), matrix.end(),
                     [&](const auto& row) { return row.size() == count; });
}

// Calls `of(i, j)` for every ordered pair of `gpus` until it is false.
template <typename Of>
bool AllPairs(absl::Span<const int> gpus, Of of) {
  for (const int i : gpus) {
    for (const int j : gpus) {
      if (i != j && !of(static_cast<size_t>(i), static_cast<size_t>(j))) {
        return false;
      }
    }
  }
  return true;
}

bool Says(const std::vector<std::string>& list, absl::string_view entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

bool WithoutPeerCopies(const Fingerprint& node) {
  return Says(node.nccl_environment, "NCCL_P2P_DISABLE=1");
}

}  // namespace

std::optional<bool> NvlinkComplete(const Fingerprint& node,
                                   absl::Span<const int> gpus) {
  if (!IsSquare(node.nvlinks, node.gpus.size())) return std::nullopt;
  return AllPairs(gpus,
                  [&](size_t i, size_t j) { return node.nvlinks[i][j] > 0; });
}

std::optional<bool> NvlinkSwitched(const Fingerprint& node) {
  if (!IsSquare(node.nvlinks, node.gpus.size())) return std::nullopt;
  bool any = false;
  for (size_t i = 0; i < node.nvlinks.size(); ++i) {
    int sum = 0;
    for (size_t j = 0; j < node.nvlinks.size(); ++j) {
      if (i != j) sum += node.nvlinks[i][j];
    }
    // A switch brings all links of a GPU to each of its peers.
    if (sum > kMostNvlinks) return true;
    any = any || sum > 0;
  }
  if (any && node.gpus.size() == 2) return std::nullopt;
  return false;
}

std::optional<bool> PeerAccessComplete(const Fingerprint& node,
                                       absl::Span<const int> gpus) {
  if (WithoutPeerCopies(node)) return gpus.size() < 2;
  if (!IsSquare(node.peer_access, node.gpus.size())) return std::nullopt;
  return AllPairs(gpus,
                  [&](size_t i, size_t j) { return node.peer_access[i][j]; });
}

bool PeerCopiesBroken(const Fingerprint& node, absl::Span<const int> gpus) {
  if (PeerAccessComplete(node, gpus) != false) return false;
  if (WithoutPeerCopies(node) || Says(node.facts, "acs=redirect") ||
      Says(node.facts, "iommu=on")) {
    return true;
  }
  const bool links_known = IsSquare(node.nvlinks, node.gpus.size());
  return links_known && !AllPairs(gpus, [&](size_t i, size_t j) {
           return node.peer_access[i][j] || node.nvlinks[i][j] == 0;
         });
}

std::optional<int> ComputeCapability(const Fingerprint& node,
                                     absl::Span<const int> gpus) {
  int common = 0;
  const Gpu* last = nullptr;
  for (const int i : gpus) {
    const Gpu& gpu = node.gpus[static_cast<size_t>(i)];
    // Names take a while to search, and are mostly all the same.
    if (last != nullptr && gpu.name == last->name &&
        gpu.compute_capability == last->compute_capability) {
      continue;
    }
    last = &gpu;
    const int one = CapabilityOf(gpu);
    if (one == 0 || (common != 0 && one != common)) return std::nullopt;
    common = one;
  }
  if (common == 0) return std::nullopt;
  return common;
}

std::optional<int64_t> SmallestMemoryBytes(const Fingerprint& node,
                                           absl::Span<const int> gpus) {
  int64_t least = 0;
  for (const int i : gpus) {
    const int64_t one = node.gpus[static_cast<size_t>(i)].memory_bytes;
    if (one == 0) return std::nullopt;
    least = least == 0 ? one : std::min(least, one);
  }
  if (least == 0) return std::nullopt;
  return least;
}

}  // namespace fabricwise
