// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/pace.h"

namespace fabricwise {
namespace {

__device__ uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void Gate(const volatile uint32_t* open, uint64_t timeout) {
  const uint64_t start = Nanoseconds();
  while (*open == 0 && Nanoseconds() - start < timeout) {
  }
}

__global__ void Delay(uint64_t nanoseconds) {
  const uint64_t start = Nanoseconds();
  while (Nanoseconds() - start < nanoseconds) {
  }
}

__global__ void Nothing() {}

}  // namespace

cudaError_t LaunchGate(const uint32_t* open, uint64_t timeout_nanoseconds,
                       cudaStream_t stream) {
  Gate<<<1, 1, 0, stream>>>(open, timeout_nanoseconds);
  return cudaGetLastError();
}

cudaError_t LaunchDelay(uint64_t nanoseconds, cudaStream_t stream) {
  Delay<<<1, 1, 0, stream>>>(nanoseconds);
  return cudaGetLastError();
}

cudaError_t LaunchNothing(cudaStream_t stream) {
  Nothing<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace fabricwise
