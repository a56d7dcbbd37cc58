// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/device/data.h"

namespace fabricwise {
namespace {

constexpr int kThreads = 256;

int Blocks(int64_t count) {
  constexpr int64_t kMost = 4096;
  return static_cast<int>(
      std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, kMost));
}

// splitmix64's finalizer: every bit of the input moves every bit out.
__device__ uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// A multiple of 1/128 in [-1, 1): seven bits and a sign, exact in bf16.
__device__ float Element(uint64_t seed, int rank, int64_t index) {
  const uint64_t bits =
      Mix(seed + static_cast<uint64_t>(rank) * 0x9E3779B97F4A7C15ull +
          Mix(static_cast<uint64_t>(index)));
  return static_cast<float>(static_cast<int>(bits & 255) - 128) / 128.0f;
}

__device__ int64_t First() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ int64_t Step() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

__global__ void Fill(__nv_bfloat16* data, int64_t count, uint64_t seed,
                     int rank, int64_t offset) {
  for (int64_t i = First(); i < count; i += Step()) {
    data[i] = __float2bfloat16(Element(seed, rank, offset + i));
  }
}

__global__ void FillFp8(__nv_fp8_e4m3* data, int64_t count, uint64_t seed,
                        int rank) {
  for (int64_t i = First(); i < count; i += Step()) {
    data[i] = __nv_fp8_e4m3(Element(seed, rank, i));
  }
}

__global__ void CheckSum(const __nv_bfloat16* data, int64_t count,
                         uint64_t seed, int ranks, int64_t offset,
                         float tolerance, unsigned long long* wrong) {
  for (int64_t i = First(); i < count; i += Step()) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      sum += Element(seed, rank, offset + i);
    }
    // Written so that a NaN counts as wrong.
    if (!(fabsf(__bfloat162float(data[i]) - sum) <= tolerance)) {
      atomicAdd(wrong, 1ull);
    }
  }
}

__global__ void CheckCopy(const __nv_bfloat16* data, int64_t count,
                          uint64_t seed, int rank, int64_t offset,
                          unsigned long long* wrong) {
  for (int64_t i = First(); i < count; i += Step()) {
    if (!(__bfloat162float(data[i]) == Element(seed, rank, offset + i))) {
      atomicAdd(wrong, 1ull);
    }
  }
}

template <typename T>
__device__ float AsFloat(T value) {
  return static_cast<float>(value);
}

// A warp an element.
template <typename T>
__global__ void CheckProduct(const T* a, const T* w, const __nv_bfloat16* out,
                             int64_t m, int64_t n, int64_t k, int64_t samples,
                             uint64_t seed, float tolerance,
                             unsigned long long* wrong) {
  constexpr int kWarp = 32;
  const int lane = threadIdx.x % kWarp;
  for (int64_t sample = First() / kWarp; sample < samples;
       sample += Step() / kWarp) {
    const uint64_t bits = Mix(seed + static_cast<uint64_t>(sample));
    const int64_t row = static_cast<int64_t>(bits % static_cast<uint64_t>(m));
    const int64_t column =
        static_cast<int64_t>((bits >> 20) % static_cast<uint64_t>(n));
    float sum = 0, square = 0;
    for (int64_t i = lane; i < k; i += kWarp) {
      const float term = AsFloat(a[row * k + i]) * AsFloat(w[column * k + i]);
      sum += term;
      square += term * term;
    }
    for (int step = kWarp / 2; step > 0; step /= 2) {
      sum += __shfl_down_sync(~0u, sum, step);
      square += __shfl_down_sync(~0u, square, step);
    }
    if (lane != 0) continue;
    const float miss = fabsf(__bfloat162float(out[row * n + column]) - sum);
    if (!(miss <= tolerance * sqrtf(square))) atomicAdd(wrong, 1ull);
  }
}

}  // namespace

cudaError_t LaunchFill(__nv_bfloat16* data, int64_t count, uint64_t seed,
                       int rank, int64_t offset, cudaStream_t stream) {
  Fill<<<Blocks(count), kThreads, 0, stream>>>(data, count, seed, rank, offset);
  return cudaGetLastError();
}

cudaError_t LaunchFillFp8(void* data, int64_t count, uint64_t seed, int rank,
                          cudaStream_t stream) {
  FillFp8<<<Blocks(count), kThreads, 0, stream>>>(
      static_cast<__nv_fp8_e4m3*>(data), count, seed, rank);
  return cudaGetLastError();
}

cudaError_t LaunchCheckSum(const __nv_bfloat16* data, int64_t count,
                           uint64_t seed, int ranks, int64_t offset,
                           float tolerance, unsigned long long* wrong,
                           cudaStream_t stream) {
  CheckSum<<<Blocks(count), kThreads, 0, stream>>>(data, count, seed, ranks,
                                                   offset, tolerance, wrong);
  return cudaGetLastError();
}

cudaError_t LaunchCheckCopy(const __nv_bfloat16* data, int64_t count,
                            uint64_t seed, int rank, int64_t offset,
                            unsigned long long* wrong, cudaStream_t stream) {
  CheckCopy<<<Blocks(count), kThreads, 0, stream>>>(data, count, seed, rank,
                                                    offset, wrong);
  return cudaGetLastError();
}

cudaError_t LaunchCheckProduct(const void* a, const void* w,
                               const __nv_bfloat16* out, int64_t m, int64_t n,
                               int64_t k, bool fp8, int64_t samples,
                               uint64_t seed, float tolerance,
                               unsigned long long* wrong, cudaStream_t stream) {
  const int blocks = Blocks(samples * 32);
  if (fp8) {
    CheckProduct<<<blocks, kThreads, 0, stream>>>(
        static_cast<const __nv_fp8_e4m3*>(a),
        static_cast<const __nv_fp8_e4m3*>(w), out, m, n, k, samples, seed,
        tolerance, wrong);
  } else {
    CheckProduct<<<blocks, kThreads, 0, stream>>>(
        static_cast<const __nv_bfloat16*>(a),
        static_cast<const __nv_bfloat16*>(w), out, m, n, k, samples, seed,
        tolerance, wrong);
  }
  return cudaGetLastError();
}

}  // namespace fabricwise
