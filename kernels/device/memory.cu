// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/device/memory.h"

namespace fabricwise {
namespace {

constexpr int kThreads = 512;
// Independent 16-byte loads of a thread in flight: by Little's law about 40 KB
// for each multiprocessor keep 4.8 TB/s busy over 132 of them at 1 us.
constexpr int kUnroll = 4;
constexpr int kBlocksPerMultiprocessor = 4;

int Blocks(size_t vectors, int multiprocessors) {
  const size_t wanted =
      (vectors + kThreads * kUnroll - 1) / (kThreads * kUnroll);
  return static_cast<int>(std::clamp<size_t>(
      wanted, 1,
      static_cast<size_t>(multiprocessors) * kBlocksPerMultiprocessor));
}

__device__ uint4 Load(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

__global__ void __launch_bounds__(kThreads)
    Read(const uint4* data, size_t vectors, uint32_t* sum) {
  const size_t step = static_cast<size_t>(gridDim.x) * kThreads;
  size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  uint32_t total = 0;
  for (; i + (kUnroll - 1) * step < vectors; i += kUnroll * step) {
    uint4 value[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) value[j] = Load(data + i + j * step);
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      total += value[j].x + value[j].y + value[j].z + value[j].w;
    }
  }
  for (; i < vectors; i += step) {
    const uint4 value = Load(data + i);
    total += value.x + value.y + value.z + value.w;
  }
  for (int lane = 16; lane > 0; lane /= 2) {
    total += __shfl_down_sync(~0u, total, lane);
  }
  if (threadIdx.x % 32 == 0) atomicAdd(sum, total);
}

__global__ void __launch_bounds__(kThreads)
    Copy(uint4* to, const uint4* from, size_t vectors) {
  const size_t step = static_cast<size_t>(gridDim.x) * kThreads;
  size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * step < vectors; i += kUnroll * step) {
    uint4 value[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) value[j] = Load(from + i + j * step);
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) to[i + j * step] = value[j];
  }
  for (; i < vectors; i += step) to[i] = Load(from + i);
}

}  // namespace

cudaError_t LaunchRead(const void* data, size_t bytes, uint32_t* sum,
                       int multiprocessors, cudaStream_t stream) {
  const size_t vectors = bytes / sizeof(uint4);
  Read<<<Blocks(vectors, multiprocessors), kThreads, 0, stream>>>(
      static_cast<const uint4*>(data), vectors, sum);
  return cudaGetLastError();
}

cudaError_t LaunchCopy(void* to, const void* from, size_t bytes,
                       int multiprocessors, cudaStream_t stream) {
  const size_t vectors = bytes / sizeof(uint4);
  Copy<<<Blocks(vectors, multiprocessors), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), vectors);
  return cudaGetLastError();
}

}  // namespace fabricwise
