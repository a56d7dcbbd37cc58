// SPDX-License-Identifier: Apache-2.0
//
// How the cases choose among kernels that do the same, and over how many copies
// of what they read they go round.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda.h"

namespace fabricwise {

// Copies of `bytes` that are together more than the L2 cache holds, as the
// weights and KV caches of a model's layers are.
inline size_t RotatedCopies(size_t l2_bytes, size_t bytes) {
  constexpr size_t kCaches = 2;  // times L2
  constexpr size_t kMost = 64;   // small ones are read from the cache anyway
  return std::clamp<size_t>(kCaches * l2_bytes / bytes, 1, kMost);
}

// The most that a block may have.
inline absl::StatusOr<size_t> SharedBytesOfABlock(int device) {
  int bytes = 0;
  RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(
      &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<size_t>(bytes);
}
inline absl::Status NoKernelFits(size_t shared_bytes) {
  return absl::UnimplementedError(absl::StrCat(
      "no kernel fits into ", shared_bytes, " bytes of shared memory"));
}

inline constexpr int kTrials = 3;

// Milliseconds of kTrials calls of `launch`, which queues onto `stream`; one
// more warms up.
inline absl::StatusOr<float> TimeTrials(
    int device, cudaStream_t stream,
    const std::function<absl::Status()>& launch) {
  ASSIGN_OR_RETURN(const Event start, MakeEvent(device));
  ASSIGN_OR_RETURN(const Event stop, MakeEvent(device));
  RETURN_IF_ERROR(launch());
  RETURN_IF_CUDA_ERROR(cudaEventRecord(start.get(), stream));
  for (int trial = 0; trial < kTrials; ++trial) RETURN_IF_ERROR(launch());
  RETURN_IF_CUDA_ERROR(cudaEventRecord(stop.get(), stream));
  RETURN_IF_CUDA_ERROR(cudaEventSynchronize(stop.get()));
  float milliseconds = 0;
  RETURN_IF_CUDA_ERROR(
      cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
  return milliseconds;
}

}  // namespace fabricwise
