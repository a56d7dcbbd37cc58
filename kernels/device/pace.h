// SPDX-License-Identifier: Apache-2.0
//
// Kernels that keep time rather than work: a gate that holds streams until all
// are loaded, a known delay to test the ruler with, and nothing at all.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fabricwise {

// Waits until `*open` (host memory that the GPU can read) is not 0, or
// `timeout_nanoseconds` have passed.
cudaError_t LaunchGate(const uint32_t* open, uint64_t timeout_nanoseconds,
                       cudaStream_t stream);

// Waits `nanoseconds` by the GPU's own timer.
cudaError_t LaunchDelay(uint64_t nanoseconds, cudaStream_t stream);

// One block of one warp that does nothing: what a kernel node costs at least.
cudaError_t LaunchNothing(cudaStream_t stream);

}  // namespace fabricwise
