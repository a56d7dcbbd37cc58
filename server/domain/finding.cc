// SPDX-License-Identifier: Apache-2.0
#include "server/domain/finding.h"

namespace fabricwise {

absl::string_view ToString(FindingKind kind) {
  switch (kind) {
    case FindingKind::kBusy:
      return "busy";
    case FindingKind::kPeerAccess:
      return "peer_access";
    case FindingKind::kNvlink:
      return "nvlink";
    case FindingKind::kPcieWidth:
      return "pcie_width";
    case FindingKind::kAccessControl:
      return "access_control";
    case FindingKind::kIommu:
      return "iommu";
    case FindingKind::kEnvironment:
      return "environment";
    case FindingKind::kPartition:
      return "partition";
    case FindingKind::kUnequal:
      return "unequal";
    case FindingKind::kCustomAllReduce:
      return "custom_all_reduce";
  }
  return "";
}

}  // namespace fabricwise
