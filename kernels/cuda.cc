// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda.h"

#include "absl/strings/str_cat.h"

namespace fabricwise {

absl::Status ToStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat(what, ": ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
      cudaGetLastError();  // it would stick to later calls
      return absl::ResourceExhaustedError(message);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status ToStatus(ncclResult_t error, absl::string_view what) {
  if (error == ncclSuccess || error == ncclInProgress) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", ncclGetErrorString(error),
                                          " (", ncclGetLastError(nullptr),
                                          ")"));
}

absl::StatusOr<Stream> MakeStream(int device) {
  CurrentDevice current(device);
  cudaStream_t stream = nullptr;
  RETURN_IF_CUDA_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(device, stream);
}

absl::StatusOr<Event> MakeEvent(int device) {
  CurrentDevice current(device);
  cudaEvent_t event = nullptr;
  RETURN_IF_CUDA_ERROR(cudaEventCreate(&event));
  return Event(device, event);
}

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(int device, size_t bytes) {
  CurrentDevice current(device);
  void* memory = nullptr;
  RETURN_IF_CUDA_ERROR(cudaMalloc(&memory, bytes));
  DeviceBuffer buffer;
  buffer.memory_ = Owned<void*, cudaFree>(device, memory);
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace fabricwise
