// SPDX-License-Identifier: Apache-2.0
//
// The worker's Probe as values of the domain. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "fabricwise/worker/v1/worker.pb.h"
#include "server/domain/finding.h"
#include "server/domain/fingerprint.h"

namespace fabricwise {

// GPU facts get their GPU's name before them: "gpu0.ecc=on". The fabric is
// named "net" or "shm" where NCCL's environment forces one of these, else
// "nvlink" where NVLinks join every pair, "pcie" where peer access does, "shm"
// where neither; "single" for one GPU. INTERNAL naming what is off: no GPUs, or
// a matrix that is neither empty nor square.
absl::StatusOr<Fingerprint> FingerprintOf(const worker::v1::Probe& probe);

// The whole look, findings included; `time` is when it was taken. Errors as
// FingerprintOf.
absl::StatusOr<NodeProbe> ReadProbe(const worker::v1::Probe& probe,
                                    absl::Time time);

}  // namespace fabricwise
