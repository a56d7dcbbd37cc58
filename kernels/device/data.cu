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

constexpr int kWarp = 32;

struct Terms {
  float sum = 0, norm = 0;  // of the terms of a product
};

// All of a warp together; the first lane has the answer.
template <typename T>
__device__ Terms Dot(const T* a, const T* b, int64_t k) {
  float sum = 0, square = 0;
  for (int64_t i = threadIdx.x % kWarp; i < k; i += kWarp) {
    const float term = AsFloat(a[i]) * AsFloat(b[i]);
    sum += term;
    square += term * term;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    sum += __shfl_down_sync(~0u, sum, step);
    square += __shfl_down_sync(~0u, square, step);
  }
  return {sum, sqrtf(square)};
}

struct Sample {
  int64_t row, column;
};

__device__ Sample Draw(uint64_t seed, int64_t sample, int64_t m, int64_t n) {
  constexpr int kRowBits = 32;
  const uint64_t bits = Mix(seed + static_cast<uint64_t>(sample));
  return {static_cast<int64_t>((bits >> kRowBits) % static_cast<uint64_t>(m)),
          static_cast<int64_t>((bits & 0xFFFFFFFF) % static_cast<uint64_t>(n))};
}

// Written so that a NaN counts as wrong.
__device__ void CheckNear(__nv_bfloat16 value, float expected, float tolerance,
                          unsigned long long* wrong) {
  if (threadIdx.x % kWarp != 0) return;
  if (!(fabsf(__bfloat162float(value) - expected) <= tolerance)) {
    atomicAdd(wrong, 1ull);
  }
}

// A warp an element.
template <typename T>
__global__ void CheckProduct(const T* a, const T* w, const __nv_bfloat16* out,
                             int64_t m, int64_t n, int64_t k, int64_t samples,
                             uint64_t seed, float tolerance,
                             unsigned long long* wrong) {
  for (int64_t i = First() / kWarp; i < samples; i += Step() / kWarp) {
    const Sample at = Draw(seed, i, m, n);
    const Terms terms = Dot(a + at.row * k, w + at.column * k, k);
    CheckNear(out[at.row * n + at.column], terms.sum, tolerance * terms.norm,
              wrong);
  }
}

__global__ void CheckGrouped(const __nv_bfloat16* a, const __nv_bfloat16* w,
                             const __nv_bfloat16* out, const int32_t* expert_of,
                             int64_t rows, int64_t n, int64_t k, bool gated,
                             int64_t samples, uint64_t seed, float tolerance,
                             unsigned long long* wrong) {
  for (int64_t i = First() / kWarp; i < samples; i += Step() / kWarp) {
    const Sample at = Draw(seed, i, rows, n);
    const __nv_bfloat16* expert =
        w + expert_of[at.row] * (gated ? 2 : 1) * n * k;
    const __nv_bfloat16 value = out[at.row * n + at.column];
    const Terms first = Dot(a + at.row * k, expert + at.column * k, k);
    if (!gated) {
      CheckNear(value, first.sum, tolerance * first.norm, wrong);
      continue;
    }
    const Terms other = Dot(a + at.row * k, expert + (n + at.column) * k, k);
    const float silu = first.sum / (1.0f + expf(-first.sum));
    CheckNear(
        value, silu * other.sum,
        tolerance * (fabsf(silu) * other.norm + first.norm * fabsf(other.sum)),
        wrong);
  }
}

__global__ void CheckWritten(const __nv_bfloat16* data, int64_t count,
                             unsigned long long* wrong) {
  for (int64_t i = First(); i < count; i += Step()) {
    if (isnan(__bfloat162float(data[i]))) atomicAdd(wrong, 1ull);
  }
}

constexpr int kMostValueDim = 512;  // of any decode kernel

// Adds up over a block; all threads get the sum.
__device__ float BlockSum(float value, float* scratch) {
  if (threadIdx.x == 0) *scratch = 0;
  __syncthreads();
  atomicAdd(scratch, value);
  __syncthreads();
  const float sum = *scratch;
  __syncthreads();
  return sum;
}

// A block a head: first the sum of the softmax, then the values by it. Scores
// of random inputs stay within some tens: their exponentials need no maximum.
__global__ void CheckAttention(DecodeAttention attention, int value_dim,
                               uint64_t seed, float tolerance,
                               unsigned long long* wrong) {
  __shared__ float expected[kMostValueDim], square[kMostValueDim], scratch;
  const AttentionShape& shape = attention.shape;
  const Sample at = Draw(seed, blockIdx.x, shape.batch, shape.q_heads);
  const int64_t kv_head = at.column / (shape.q_heads / shape.kv_heads);
  const int64_t head = at.row * shape.q_heads + at.column;
  const int lane = threadIdx.x % kWarp;
  const auto row = [&](int64_t token) {
    return (at.row * shape.context_tokens + token) * shape.kv_heads + kv_head;
  };
  const auto weight = [&](int64_t token) {
    const Terms terms =
        Dot(attention.q + head * shape.qk_dim,
            attention.k + row(token) * shape.qk_dim, shape.qk_dim);
    return expf(attention.scale * __shfl_sync(~0u, terms.sum, 0));
  };
  for (int i = threadIdx.x; i < value_dim; i += kThreads) {
    expected[i] = square[i] = 0;
  }
  float own = 0;
  for (int64_t token = threadIdx.x / kWarp; token < shape.context_tokens;
       token += kThreads / kWarp) {
    const float of = weight(token);
    if (lane == 0) own += of;
  }
  const float sum = BlockSum(own, &scratch);
  const __nv_bfloat16* v = shape.latent ? attention.k : attention.v;
  for (int64_t token = threadIdx.x / kWarp; token < shape.context_tokens;
       token += kThreads / kWarp) {
    const float share = weight(token) / sum;
    for (int i = lane; i < value_dim; i += kWarp) {
      const float term =
          share * __bfloat162float(v[row(token) * shape.qk_dim + i]);
      atomicAdd(&expected[i], term);
      atomicAdd(&square[i], term * term);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < value_dim; i += kThreads) {
    const float miss = fabsf(
        __bfloat162float(attention.out[head * value_dim + i]) - expected[i]);
    if (!(miss <= tolerance * (sqrtf(square[i]) + fabsf(expected[i])))) {
      atomicAdd(wrong, 1ull);
    }
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
  const int blocks = Blocks(samples * kWarp);
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

cudaError_t LaunchCheckGrouped(const __nv_bfloat16* a, const __nv_bfloat16* w,
                               const __nv_bfloat16* out,
                               const int32_t* expert_of, int64_t rows,
                               int64_t n, int64_t k, bool gated,
                               int64_t samples, uint64_t seed, float tolerance,
                               unsigned long long* wrong, cudaStream_t stream) {
  CheckGrouped<<<Blocks(samples * kWarp), kThreads, 0, stream>>>(
      a, w, out, expert_of, rows, n, k, gated, samples, seed, tolerance, wrong);
  return cudaGetLastError();
}

cudaError_t LaunchCheckAttention(const DecodeAttention& attention, int samples,
                                 uint64_t seed, float tolerance,
                                 unsigned long long* wrong,
                                 cudaStream_t stream) {
  const int value_dim = ValueDim(attention.shape);
  if (value_dim > kMostValueDim) return cudaErrorInvalidValue;
  CheckAttention<<<samples, kThreads, 0, stream>>>(attention, value_dim, seed,
                                                   tolerance, wrong);
  return cudaGetLastError();
}

cudaError_t LaunchCheckWritten(const __nv_bfloat16* data, int64_t count,
                               unsigned long long* wrong, cudaStream_t stream) {
  CheckWritten<<<Blocks(count), kThreads, 0, stream>>>(data, count, wrong);
  return cudaGetLastError();
}

}  // namespace fabricwise
