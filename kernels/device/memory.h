// SPDX-License-Identifier: Apache-2.0
//
// Streaming over GPU memory. Floor: the bytes over the memory's bandwidth;
// reading moves `bytes`, copying twice as many.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fabricwise {

// Reads `bytes` (a multiple of 16) and adds a checksum of all 32-bit words to
// *sum, so that no load can be dropped.
cudaError_t LaunchRead(const void* data, size_t bytes, uint32_t* sum,
                       int multiprocessors, cudaStream_t stream);

// Copies `bytes` (a multiple of 16).
cudaError_t LaunchCopy(void* to, const void* from, size_t bytes,
                       int multiprocessors, cudaStream_t stream);

}  // namespace fabricwise
