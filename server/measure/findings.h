// SPDX-License-Identifier: Apache-2.0
//
// A probe, read by somebody who has seen many nodes. Pure.
#pragma once

#include <vector>

#include "fabricwise/worker/v1/worker.pb.h"
#include "server/domain/finding.h"

namespace fabricwise {

// Worst first. `probe` is one that FingerprintOf takes. The facts read are
//   of a GPU: pcie_width=N, pcie_best=genGxN, nvlinks_down=N, mig=on
//   of the node: acs=redirect, iommu=on
// any of which may be absent.
std::vector<NodeFinding> Diagnose(const worker::v1::Probe& probe);

}  // namespace fabricwise
