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

__global__ void FillScales(float* data, int64_t count, uint64_t seed,
                           int rank) {
  for (int64_t i = First(); i < count; i += Step()) {
    data[i] = 1 + Element(seed, rank, i) / 2;
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

struct NoScale {
  __device__ float operator()(int64_t) const { return 1; }
};

// Of terms a[i] x b[i] x scale(i). All of a warp together; the first lane has
// the answer.
template <typename T, typename Scale = NoScale>
__device__ Terms Dot(const T* a, const T* b, int64_t k, Scale scale = {}) {
  float sum = 0, square = 0;
  for (int64_t i = threadIdx.x % kWarp; i < k; i += kWarp) {
    const float term = AsFloat(a[i]) * AsFloat(b[i]) * scale(i);
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

// Of a row with the weights of an expert's column, gate and other side by side.
template <typename T>
__device__ Terms GroupedDot(const GroupedProduct& of, int64_t row,
                            int64_t expert, int64_t column) {
  const int64_t weight = expert * (of.gated ? 2 : 1) * of.columns + column;
  const T* a = static_cast<const T*>(of.in) + row * of.k;
  const T* b = static_cast<const T*>(of.weights) + weight * of.k;
  if (!of.fp8_block) return Dot(a, b, of.k);
  return Dot(a, b, of.k, [&](int64_t i) {
    const int64_t block = i / kFp8BlockSide;
    return of.in_scales[block * of.rows + row] *
           of.weight_scales[weight / kFp8BlockSide * (of.k / kFp8BlockSide) +
                            block];
  });
}

template <typename T>
__global__ void CheckGrouped(GroupedProduct of, const int32_t* expert_of,
                             int64_t samples, uint64_t seed, float tolerance,
                             unsigned long long* wrong) {
  for (int64_t i = First() / kWarp; i < samples; i += Step() / kWarp) {
    const Sample at = Draw(seed, i, of.rows, of.columns);
    const int64_t expert = expert_of[at.row];
    const __nv_bfloat16 value = of.out[at.row * of.columns + at.column];
    const Terms first = GroupedDot<T>(of, at.row, expert, at.column);
    if (!of.gated) {
      CheckNear(value, first.sum, tolerance * first.norm, wrong);
      continue;
    }
    const Terms other =
        GroupedDot<T>(of, at.row, expert, of.columns + at.column);
    const float silu = first.sum / (1.0f + expf(-first.sum));
    CheckNear(
        value, silu * other.sum,
        tolerance * (fabsf(silu) * other.norm + first.norm * fabsf(other.sum)),
        wrong);
  }
}

// A thread a block of a row.
__global__ void CheckQuantised(const __nv_bfloat16* in,
                               const __nv_fp8_e4m3* out, const float* scales,
                               int64_t rows, int64_t columns,
                               unsigned long long* wrong) {
  // Half a step between neighbours of e4m3, which has three bits behind the
  // first, or of its smallest; and of fp32, in the scale.
  constexpr float kHalfStep = 1.0f / 16, kSmallest = 1.0f / 512,
                  kRounding = 1e-5f;
  const int64_t blocks = columns / kFp8BlockSide;
  for (int64_t i = First(); i < rows * blocks; i += Step()) {
    const float scale = scales[i % blocks * rows + i / blocks];
    float largest = 0;
    for (int64_t j = i * kFp8BlockSide; j < (i + 1) * kFp8BlockSide; ++j) {
      const float value = AsFloat(in[j]);
      largest = fmaxf(largest, fabsf(value));
      const float room = fmaxf(fabsf(value) * kHalfStep, scale * kSmallest / 2);
      if (!(fabsf(AsFloat(out[j]) * scale - value) <= room * (1 + kRounding))) {
        atomicAdd(wrong, 1ull);
      }
    }
    if (!(fabsf(scale * kFp8Largest - largest) <= largest * kRounding)) {
      atomicAdd(wrong, 1ull);
    }
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

// One query's attention over `tokens` rows of keys and values, so far apart.
struct QueryRow {
  const __nv_bfloat16 *q, *k, *v, *out;
  int64_t tokens, k_stride, v_stride;
  int qk_dim, value_dim;
  float scale;
};

// All of a block together: first the sum of the softmax, then the values by it.
// Scores of random inputs stay within some tens: their exponentials need no
// maximum.
__device__ void CheckQuery(const QueryRow& of, float tolerance,
                           unsigned long long* wrong) {
  __shared__ float expected[kMostValueDim], square[kMostValueDim], scratch;
  const int lane = threadIdx.x % kWarp;
  const auto weight = [&](int64_t token) {
    const Terms terms = Dot(of.q, of.k + token * of.k_stride, of.qk_dim);
    return expf(of.scale * __shfl_sync(~0u, terms.sum, 0));
  };
  for (int i = threadIdx.x; i < of.value_dim; i += kThreads) {
    expected[i] = square[i] = 0;
  }
  float own = 0;
  for (int64_t token = threadIdx.x / kWarp; token < of.tokens;
       token += kThreads / kWarp) {
    const float of_token = weight(token);
    if (lane == 0) own += of_token;
  }
  const float sum = BlockSum(own, &scratch);
  for (int64_t token = threadIdx.x / kWarp; token < of.tokens;
       token += kThreads / kWarp) {
    const float share = weight(token) / sum;
    for (int i = lane; i < of.value_dim; i += kWarp) {
      const float term = share * AsFloat(of.v[token * of.v_stride + i]);
      atomicAdd(&expected[i], term);
      atomicAdd(&square[i], term * term);
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < of.value_dim; i += kThreads) {
    const float miss = fabsf(AsFloat(of.out[i]) - expected[i]);
    if (!(miss <= tolerance * (sqrtf(square[i]) + fabsf(expected[i])))) {
      atomicAdd(wrong, 1ull);
    }
  }
}

// A block a head.
__global__ void CheckAttention(DecodeAttention attention, int value_dim,
                               uint64_t seed, float tolerance,
                               unsigned long long* wrong) {
  const AttentionShape& shape = attention.shape;
  const Sample at = Draw(seed, blockIdx.x, shape.batch, shape.q_heads);
  const int64_t kv_head = at.column / (shape.q_heads / shape.kv_heads);
  const int64_t head = at.row * shape.q_heads + at.column;
  const int64_t stride = static_cast<int64_t>(shape.kv_heads) * shape.qk_dim;
  const int64_t first =
      at.row * shape.context_tokens * stride + kv_head * shape.qk_dim;
  CheckQuery({.q = attention.q + head * shape.qk_dim,
              .k = attention.k + first,
              .v = (shape.latent ? attention.k : attention.v) + first,
              .out = attention.out + head * value_dim,
              .tokens = shape.context_tokens,
              .k_stride = stride,
              .v_stride = stride,
              .qk_dim = shape.qk_dim,
              .value_dim = value_dim,
              .scale = attention.scale},
             tolerance, wrong);
}

// A block a head of a token of a prompt.
__global__ void CheckPromptAttention(PromptAttention attention, uint64_t seed,
                                     float tolerance,
                                     unsigned long long* wrong) {
  const PromptShape& shape = attention.shape;
  const Sample which = Draw(seed, blockIdx.x, shape.batch, shape.q_heads);
  const int64_t query =
      blockIdx.x == 0   ? 0
      : blockIdx.x == 1 ? shape.query_tokens - 1
                        : Draw(~seed, blockIdx.x, shape.query_tokens, 1).row;
  const int64_t kv_head = which.column / (shape.q_heads / shape.kv_heads);
  const int64_t head =
      (which.row * shape.query_tokens + query) * shape.q_heads + which.column;
  const int64_t first_row =
      which.row * shape.context_tokens * shape.kv_heads + kv_head;
  CheckQuery({.q = attention.q + head * shape.qk_dim,
              .k = attention.k + first_row * shape.qk_dim,
              .v = attention.v + first_row * shape.v_dim,
              .out = attention.out + head * shape.v_dim,
              .tokens = shape.context_tokens - shape.query_tokens + query + 1,
              .k_stride = static_cast<int64_t>(shape.kv_heads) * shape.qk_dim,
              .v_stride = static_cast<int64_t>(shape.kv_heads) * shape.v_dim,
              .qk_dim = shape.qk_dim,
              .value_dim = shape.v_dim,
              .scale = attention.scale},
             tolerance, wrong);
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

cudaError_t LaunchFillScales(float* data, int64_t count, uint64_t seed,
                             int rank, cudaStream_t stream) {
  FillScales<<<Blocks(count), kThreads, 0, stream>>>(data, count, seed, rank);
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

cudaError_t LaunchCheckGrouped(const GroupedProduct& product,
                               const int32_t* expert_of, int64_t samples,
                               uint64_t seed, float tolerance,
                               unsigned long long* wrong, cudaStream_t stream) {
  const int blocks = Blocks(samples * kWarp);
  if (product.fp8_block) {
    CheckGrouped<__nv_fp8_e4m3><<<blocks, kThreads, 0, stream>>>(
        product, expert_of, samples, seed, tolerance, wrong);
  } else {
    CheckGrouped<__nv_bfloat16><<<blocks, kThreads, 0, stream>>>(
        product, expert_of, samples, seed, tolerance, wrong);
  }
  return cudaGetLastError();
}

cudaError_t LaunchCheckQuantised(const __nv_bfloat16* in, const void* out,
                                 const float* scales, int64_t rows,
                                 int64_t columns, unsigned long long* wrong,
                                 cudaStream_t stream) {
  CheckQuantised<<<Blocks(rows * columns / kFp8BlockSide), kThreads, 0,
                   stream>>>(in, static_cast<const __nv_fp8_e4m3*>(out), scales,
                             rows, columns, wrong);
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

cudaError_t LaunchCheckPromptAttention(const PromptAttention& attention,
                                       int samples, uint64_t seed,
                                       float tolerance,
                                       unsigned long long* wrong,
                                       cudaStream_t stream) {
  if (attention.shape.v_dim > kMostValueDim) return cudaErrorInvalidValue;
  CheckPromptAttention<<<samples, kThreads, 0, stream>>>(attention, seed,
                                                         tolerance, wrong);
  return cudaGetLastError();
}

cudaError_t LaunchCheckWritten(const __nv_bfloat16* data, int64_t count,
                               unsigned long long* wrong, cudaStream_t stream) {
  CheckWritten<<<Blocks(count), kThreads, 0, stream>>>(data, count, wrong);
  return cudaGetLastError();
}

}  // namespace fabricwise
