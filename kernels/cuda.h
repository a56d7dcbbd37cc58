// SPDX-License-Identifier: Apache-2.0
//
// CUDA and NCCL errors as Status; streams, events, graphs and memory that free
// themselves.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/status_macros.h"

namespace fabricwise {

// INTERNAL with CUDA's or NCCL's own words; RESOURCE_EXHAUSTED for memory,
// UNAVAILABLE where there is no driver or no GPU.
absl::Status ToStatus(cudaError_t error, absl::string_view what);
absl::Status ToStatus(ncclResult_t error, absl::string_view what);

// Runs `call`, a CUDA or NCCL call, and returns its error from the function.
#define RETURN_IF_CUDA_ERROR(call) \
  RETURN_IF_ERROR(::fabricwise::ToStatus((call), #call))

// Makes `device` current for as long as it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~CurrentDevice() { cudaSetDevice(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

// A handle with one owner, freed by `kFree` on its device.
template <typename Handle, auto kFree>
class Owned {
 public:
  Owned() = default;
  Owned(int device, Handle handle) : device_(device), handle_(handle) {}
  ~Owned() { Reset(); }
  Owned(Owned&& other) noexcept { *this = std::move(other); }
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      Reset();
      device_ = other.device_;
      handle_ = std::exchange(other.handle_, Handle{});
    }
    return *this;
  }

  Handle get() const { return handle_; }

 private:
  void Reset() {
    if (handle_ == Handle{}) return;
    CurrentDevice current(device_);
    kFree(handle_);
    handle_ = Handle{};
  }

  int device_ = 0;
  Handle handle_{};
};

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using Event = Owned<cudaEvent_t, cudaEventDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

absl::StatusOr<Stream> MakeStream(int device);
absl::StatusOr<Event> MakeEvent(int device);

// Memory of one GPU, by plain cudaMalloc.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // RESOURCE_EXHAUSTED where there is not so much.
  static absl::StatusOr<DeviceBuffer> Create(int device, size_t bytes);

  void* data() const { return memory_.get(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  size_t size() const { return size_; }

 private:
  Owned<void*, cudaFree> memory_;
  size_t size_ = 0;
};

}  // namespace fabricwise
