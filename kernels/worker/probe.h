// SPDX-License-Identifier: Apache-2.0
//
// What the node is: GPUs, how they reach each other, versions, environment.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "fabricwise/worker/v1/worker.pb.h"
#include "kernels/worker/gpu_management.h"

namespace fabricwise {

// `nvml` may be null: then what only it knows stays empty. Peer access is true
// only where a copy over it arrived intact. UNAVAILABLE: no driver or no GPU.
absl::StatusOr<worker::v1::Probe> ProbeNode(const Nvml* nvml);

// The PCI bus id of a CUDA device, as the driver writes it.
std::string BusId(int device);

// For people.
std::string ProbeText(const worker::v1::Probe& probe);

}  // namespace fabricwise
