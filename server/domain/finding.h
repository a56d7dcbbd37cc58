// SPDX-License-Identifier: Apache-2.0
//
// What is not as it should be on a node, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/domain/fingerprint.h"

namespace fabricwise {

enum class FindingKind {
  kBusy,             // other processes are on GPUs: nothing can be measured
  kPeerAccess,       // peer copies do not work, or arrive damaged
  kNvlink,           // NVLinks are down, or fewer between some GPUs
  kPcieWidth,        // a GPU's link runs at less than its width
  kAccessControl,    // PCI bridges send peer traffic to the root
  kIommu,            // peer traffic is translated
  kEnvironment,      // NCCL is told to do without a path that is there
  kPartition,        // MIG divides a GPU
  kUnequal,          // GPUs of one node differ
  kCustomAllReduce,  // vLLM would not use its own all-reduce here
};

// "busy", "peer_access", "nvlink", ...
absl::string_view ToString(FindingKind kind);

enum class Severity {
  kNote,     // good to know when advice surprises
  kWarning,  // costs performance
  kError,    // wrong results, or no measuring
};

struct NodeFinding {
  FindingKind kind = FindingKind::kBusy;
  Severity severity = Severity::kNote;
  std::string subject;  // "GPU 3", "GPU 0 to 1", "node"
  std::string detail;   // what was seen
  std::string remedy;   // what to do; empty: nothing needs to be done

  friend bool operator==(const NodeFinding&, const NodeFinding&) = default;
};

// A look at the node.
struct NodeProbe {
  absl::Time time = absl::UnixEpoch();
  Fingerprint fingerprint;
  bool busy = false;                  // a process not of ours is on a GPU
  std::vector<NodeFinding> findings;  // worst first
};

}  // namespace fabricwise
