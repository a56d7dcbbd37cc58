// SPDX-License-Identifier: Apache-2.0
//
// What engines ask of the GPUs that a plan would run on. `gpus` are indices
// into node.gpus; nullopt: the node does not say.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "server/domain/fingerprint.h"

namespace fabricwise {

// Whether every two of `gpus` are joined by NVLink.
std::optional<bool> NvlinkComplete(const Fingerprint& node,
                                   absl::Span<const int> gpus);

// Whether the node's NVLinks go through a switch, which is what multicast
// needs, rather than over bridges from GPU to GPU. Of two GPUs alone it cannot
// be told.
std::optional<bool> NvlinkSwitched(const Fingerprint& node);

// Whether copies between every two of `gpus` work. False as well where the
// node's NCCL is told to do without (NCCL_P2P_DISABLE): an engine is started
// with the environment that the curves were measured in.
std::optional<bool> PeerAccessComplete(const Fingerprint& node,
                                       absl::Span<const int> gpus);

// Whether copies between some of `gpus` do not work although the driver may
// promise them: NVLinks join the two, bridges or the IOMMU redirect peer
// traffic, or NCCL is told to do without. Engines that trust the driver hang
// there, or compute garbage.
bool PeerCopiesBroken(const Fingerprint& node, absl::Span<const int> gpus);

// 90 for sm_90, of all `gpus`; by their name where it was not recorded.
// nullopt as well where they differ.
std::optional<int> ComputeCapability(const Fingerprint& node,
                                     absl::Span<const int> gpus);

// Memory of the smallest of `gpus`.
std::optional<int64_t> SmallestMemoryBytes(const Fingerprint& node,
                                           absl::Span<const int> gpus);

// Whether `of(node, group)` holds for every tensor-parallel group of `tp` GPUs
// within `gpus`, which are in rank order (Placement); nullopt where it fails
// for none but some do not say.
template <typename Of>
std::optional<bool> OfEveryGroup(const Fingerprint& node,
                                 absl::Span<const int> gpus, int tp, Of of) {
  std::optional<bool> all = true;
  const auto size = static_cast<size_t>(tp);
  for (size_t first = 0; first < gpus.size(); first += size) {
    const std::optional<bool> one = of(node, gpus.subspan(first, size));
    if (one == false) return false;
    if (!one.has_value()) all = std::nullopt;
  }
  return all;
}

}  // namespace fabricwise
