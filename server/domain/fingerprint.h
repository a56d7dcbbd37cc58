// SPDX-License-Identifier: Apache-2.0
//
// What must stay equal for a node's curves to stay valid.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fabricwise {

struct Gpu {
  std::string name;            // as NVML gives it, "NVIDIA H200"
  std::string uuid;            // empty where not known (imported profiles)
  int64_t memory_bytes = 0;    // 0: not known
  int compute_capability = 0;  // 90 for sm_90; 0: not known

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct Fingerprint {
  std::vector<Gpu> gpus;
  std::string driver_version;
  std::string cuda_version;
  std::string nccl_version;
  std::vector<std::string> nccl_environment;  // "NCCL_P2P_DISABLE=1", sorted
  // A name for how GPUs reach each other: "nvlink", "pcie", or, where NCCL's
  // environment forces a path, "shm" or "net". A label only: no rule reads it.
  std::string fabric;
  std::vector<std::vector<bool>> peer_access;  // [i][j]; empty: not known
  std::vector<std::vector<int>> nvlinks;       // links i to j; empty: not known
  // Everything else that a probe saw and that must stay equal ("ecc=on",
  // "iommu=off", "pcie0=gen5x16"), sorted.
  std::vector<std::string> facts;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// 16 hex digits, equal for equal fingerprints, stable over versions of this
// program as long as the fields are: FNV-1a over all fields in the order above,
// integers as eight bytes (least significant first), texts and lists behind
// their length.
std::string FingerprintId(const Fingerprint& fingerprint);

}  // namespace fabricwise
