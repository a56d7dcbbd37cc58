// SPDX-License-Identifier: Apache-2.0
//
// What the cases' verifications have in common.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda.h"

namespace fabricwise {

// A byte that makes NaN of every float format when repeated.
inline constexpr int kPoison = 0xFF;

// Sums of `ranks` elements below 1, added in bf16 (8 significant bits) in any
// order: at most ranks - 1 roundings of values below `ranks`, half a unit in
// the eighth bit each.
inline float SumTolerance(int ranks) {
  return static_cast<float>(ranks * ranks) / 256.0f;
}

// Elements found wrong over all devices.
class WrongCount {
 public:
  // Runs `launch` on the device's stream with a zeroed counter, waits, adds.
  absl::Status Check(int device, cudaStream_t stream,
                     const std::function<cudaError_t(unsigned long long*,
                                                     cudaStream_t)>& launch) {
    CurrentDevice current(device);
    ASSIGN_OR_RETURN(const DeviceBuffer counter,
                     DeviceBuffer::Create(device, sizeof(unsigned long long)));
    RETURN_IF_CUDA_ERROR(
        cudaMemsetAsync(counter.data(), 0, counter.size(), stream));
    RETURN_IF_CUDA_ERROR(launch(counter.as<unsigned long long>(), stream));
    unsigned long long wrong = 0;
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(&wrong, counter.data(), sizeof(wrong),
                                         cudaMemcpyDeviceToHost, stream));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
    wrong_ += wrong;
    return absl::OkStatus();
  }

  // OK, or DATA_LOSS.
  absl::Status Verdict(const std::string& what) const {
    if (wrong_ == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(what, ": ", wrong_, " elements are wrong"));
  }

 private:
  unsigned long long wrong_ = 0;
};

}  // namespace fabricwise
