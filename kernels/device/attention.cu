// SPDX-License-Identifier: Apache-2.0
#include <math_constants.h>

#include "kernels/device/attention.h"
#include "kernels/device/mma.cuh"

namespace fabricwise {
namespace {

constexpr int kHeadsPerFragment = 16;
constexpr int kRopeDim = 64;  // of a latent row, at its end
constexpr int kMaxGridY = 65535;
// Rows of probabilities are this much longer, against bank conflicts.
constexpr int kPadding = kChunkElements;
constexpr float kLog2E = 1.4426950408889634f;

// A block takes kHeads query heads of one KV head through its share of the
// context, kTokens at a time, kStages of them in shared memory. Of its warps
// kHeadWarps divide the heads; kSplitWarps divide first the tokens (scores),
// then the values (output).
template <int kQk_, bool kLatent_, int kTokens_, int kStages_, int kHeadWarps_,
          int kSplitWarps_>
struct Shape {
  static constexpr int kQk = kQk_, kTokens = kTokens_, kStages = kStages_,
                       kHeadWarps = kHeadWarps_, kSplitWarps = kSplitWarps_;
  static constexpr bool kLatent = kLatent_;
  static constexpr int kV = kLatent ? kQk - kRopeDim : kQk;
  static constexpr int kHeads = kHeadWarps * kHeadsPerFragment;
  static constexpr int kThreads = kHeadWarps * kSplitWarps * kWarp;
  static constexpr int kRowChunks = kQk / kChunkElements;
  static constexpr int kTileBytes = kTokens * kQk * 2;  // of keys, of values
  static constexpr int kStageBytes = kTileBytes * (kLatent ? 1 : 2);
  static constexpr int kQueryBytes = kHeads * kQk * 2;
  static constexpr int kProbabilityRow = kTokens + kPadding;
  static constexpr int kProbabilityBytes = kHeads * kProbabilityRow * 2;
  static constexpr int kMaximaBytes = kSplitWarps * kHeads * 4;
  static constexpr int kSharedBytes =
      kStages * kStageBytes + kQueryBytes + kProbabilityBytes + kMaximaBytes;
  static constexpr int kScores = kTokens / kSplitWarps / 8;
  static constexpr int kValues = kV / kSplitWarps / 8;
  static_assert(kScores >= 1 && kValues >= 2 && kValues % 2 == 0);
};

struct Arguments {
  DecodeAttention attention;
  int group = 0;         // query heads of a KV head
  int head_blocks = 0;   // blocks that they take
  int split_tokens = 0;  // context of a split
};

// A split's output is followed by its maximum and sum, in powers of two.
constexpr int kTail = 2;

__device__ float RowMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ float RowSum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}
__device__ uint32_t Pack(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads) Decode(Arguments arguments) {
  extern __shared__ __align__(128) char shared[];
  const DecodeAttention& attention = arguments.attention;
  const AttentionShape& shape = attention.shape;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int head_warp = warp % S::kHeadWarps, part = warp / S::kHeadWarps;
  const int split = blockIdx.x;
  const int head_block = blockIdx.y % arguments.head_blocks;
  const int kv_head = blockIdx.y / arguments.head_blocks % shape.kv_heads;
  const int64_t sequence = blockIdx.y / arguments.head_blocks / shape.kv_heads;
  const int first_in_group = head_block * S::kHeads;
  const int heads = min(S::kHeads, arguments.group - first_in_group);
  const int64_t first_head =
      sequence * shape.q_heads + kv_head * arguments.group + first_in_group;
  const int begin = split * arguments.split_tokens;
  const int end = min(begin + arguments.split_tokens, shape.context_tokens);

  const uint32_t stages = SharedAddress(shared);
  const uint32_t queries = stages + S::kStages * S::kStageBytes;
  char* const behind = shared + S::kStages * S::kStageBytes + S::kQueryBytes;
  auto* const probabilities = reinterpret_cast<__nv_bfloat16*>(behind);
  auto* const maxima = reinterpret_cast<float*>(behind + S::kProbabilityBytes);

  for (int i = threadIdx.x; i < S::kHeads * S::kRowChunks; i += S::kThreads) {
    const int row = i / S::kRowChunks, chunk = i % S::kRowChunks;
    const bool real = row < heads;
    CopyChunk(queries + Swizzled<S::kRowChunks>(row, chunk),
              attention.q + (first_head + (real ? row : 0)) * S::kQk +
                  chunk * kChunkElements,
              real);
  }
  const int64_t row_stride = static_cast<int64_t>(shape.kv_heads) * S::kQk;
  const int64_t first_row =
      (sequence * shape.context_tokens * shape.kv_heads + kv_head) * S::kQk;
  const auto copy_tile = [&](uint32_t to, const __nv_bfloat16* from,
                             int first) {
#pragma unroll 4
    for (int i = threadIdx.x; i < S::kTokens * S::kRowChunks;
         i += S::kThreads) {
      const int row = i / S::kRowChunks, chunk = i % S::kRowChunks;
      const bool real = first + row < end;
      CopyChunk(to + Swizzled<S::kRowChunks>(row, chunk),
                from + first_row + (real ? first + row : begin) * row_stride +
                    chunk * kChunkElements,
                real);
    }
  };
  const auto copy_stage = [&](int stage, int first) {
    const uint32_t to = stages + static_cast<uint32_t>(stage * S::kStageBytes);
    copy_tile(to, attention.k, first);
    if constexpr (!S::kLatent) {
      copy_tile(to + S::kTileBytes, attention.v, first);
    }
  };

  const int steps = (end - begin + S::kTokens - 1) / S::kTokens;
#pragma unroll
  for (int step = 0; step < S::kStages - 1; ++step) {
    if (step < steps) copy_stage(step, begin + step * S::kTokens);
    CommitCopies();
  }

  const float scale = attention.scale * kLog2E;
  float out[S::kValues][4] = {};
  // Of the rows lane / 4 and, eight on, of this warp's heads.
  float maximum[2] = {-CUDART_INF_F, -CUDART_INF_F};
  float sum[2] = {};
  const int own_row = head_warp * kHeadsPerFragment + lane / 4;
  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    AwaitCopies<S::kStages - 2>();
    __syncthreads();
    if (const int ahead = step + S::kStages - 1; ahead < steps) {
      copy_stage(stage == 0 ? S::kStages - 1 : stage - 1,
                 begin + ahead * S::kTokens);
    }
    CommitCopies();
    const uint32_t keys =
        stages + static_cast<uint32_t>(stage * S::kStageBytes);
    const uint32_t values = keys + (S::kLatent ? 0 : S::kTileBytes);
    const int query_row = head_warp * kHeadsPerFragment + lane % 16;
    const int first_token = part * S::kScores * 8;

    float score[S::kScores][4] = {};
    if constexpr (S::kScores == 1) {
      // Two sums, so that one product need not wait for the other.
      float other[4] = {};
#pragma unroll
      for (int at = 0; at < S::kRowChunks; at += 4) {
        uint32_t a[4], b[4];
        LoadFour(b, keys + Swizzled<S::kRowChunks>(first_token + lane % 8,
                                                   at + lane / 8));
        LoadFour(a,
                 queries + Swizzled<S::kRowChunks>(query_row, at + lane / 16));
        Multiply(score[0], a, b[0], b[1]);
        LoadFour(a, queries +
                        Swizzled<S::kRowChunks>(query_row, at + 2 + lane / 16));
        Multiply(other, a, b[2], b[3]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) score[0][i] += other[i];
    } else {
#pragma unroll
      for (int at = 0; at < S::kRowChunks; at += 2) {
        uint32_t a[4];
        LoadFour(a,
                 queries + Swizzled<S::kRowChunks>(query_row, at + lane / 16));
#pragma unroll
        for (int j = 0; j < S::kScores; j += 2) {
          uint32_t b[4];
          const int row = first_token + j * 8 + lane % 8 + lane / 16 * 8;
          LoadFour(b, keys + Swizzled<S::kRowChunks>(row, at + lane / 8 % 2));
          Multiply(score[j], a, b[0], b[1]);
          Multiply(score[j + 1], a, b[2], b[3]);
        }
      }
    }

    const int left = end - (begin + step * S::kTokens);
    float highest[2] = {-CUDART_INF_F, -CUDART_INF_F};
#pragma unroll
    for (int j = 0; j < S::kScores; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = first_token + j * 8 + lane % 4 * 2 + i % 2;
        score[j][i] = token < left ? score[j][i] * scale : -CUDART_INF_F;
        highest[i / 2] = fmaxf(highest[i / 2], score[j][i]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      highest[i] = RowMax(highest[i]);
      if (lane % 4 == 0) {
        maxima[part * S::kHeads + own_row + i * 8] = highest[i];
      }
    }
    __syncthreads();
    float fade[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float now = maximum[i];
#pragma unroll
      for (int p = 0; p < S::kSplitWarps; ++p) {
        now = fmaxf(now, maxima[p * S::kHeads + own_row + i * 8]);
      }
      fade[i] = exp2f(maximum[i] - now);
      maximum[i] = now;
      sum[i] *= fade[i];
    }
#pragma unroll
    for (int j = 0; j < S::kScores; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float x = exp2f(score[j][2 * i] - maximum[i]);
        const float y = exp2f(score[j][2 * i + 1] - maximum[i]);
        sum[i] += x + y;
        const int column = first_token + j * 8 + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(
            probabilities + (own_row + i * 8) * S::kProbabilityRow + column) =
            Pack(x, y);
      }
    }
#pragma unroll
    for (int j = 0; j < S::kValues; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[j][i] *= fade[i / 2];
    }
    __syncthreads();

#pragma unroll
    for (int at = 0; at < S::kTokens; at += 16) {
      uint32_t a[4];
      LoadFour(a, SharedAddress(probabilities + query_row * S::kProbabilityRow +
                                at + lane / 16 * kChunkElements));
#pragma unroll
      for (int j = 0; j < S::kValues; j += 2) {
        uint32_t b[4];
        const int chunk = part * S::kValues + j + lane / 16;
        LoadFourTransposed(
            b, values + Swizzled<S::kRowChunks>(at + lane % 16, chunk));
        Multiply(out[j], a, b[0], b[1]);
        Multiply(out[j + 1], a, b[2], b[3]);
      }
    }
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
  }

  // Every warp saw the maxima of all tokens, but the sum of its own.
  AwaitCopies<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i] = RowSum(sum[i]);
    if (lane % 4 == 0) maxima[part * S::kHeads + own_row + i * 8] = sum[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = own_row + i * 8;
    if (row >= heads) continue;
    float total = 0;
    for (int p = 0; p < S::kSplitWarps; ++p) {
      total += maxima[p * S::kHeads + row];
    }
    const float whole = total > 0 ? 1 / total : 0;
    const int column = part * S::kValues * 8 + lane % 4 * 2;
    if (attention.splits == 1) {
      __nv_bfloat16* to = attention.out + (first_head + row) * S::kV + column;
#pragma unroll
      for (int j = 0; j < S::kValues; ++j) {
        *reinterpret_cast<uint32_t*>(to + j * 8) =
            Pack(out[j][2 * i] * whole, out[j][2 * i + 1] * whole);
      }
      continue;
    }
    float* to =
        attention.partial +
        ((first_head + row) * attention.splits + split) * (S::kV + kTail);
#pragma unroll
    for (int j = 0; j < S::kValues; ++j) {
      *reinterpret_cast<float2*>(to + column + j * 8) =
          make_float2(out[j][2 * i], out[j][2 * i + 1]);
    }
    if (part == 0 && lane % 4 == 0) {
      to[S::kV] = maximum[i];
      to[S::kV + 1] = total;
    }
  }
}

// A block a head, a thread two values.
__global__ void Combine(const float* partial, __nv_bfloat16* out, int splits) {
  const int value_dim = static_cast<int>(blockDim.x) * 2;
  const int row = value_dim + kTail;
  const float* from = partial + static_cast<int64_t>(blockIdx.x) * splits * row;
  float highest = -CUDART_INF_F;
  for (int split = 0; split < splits; ++split) {
    highest = fmaxf(highest, from[split * row + value_dim]);
  }
  float total = 0, x = 0, y = 0;
  const int column = static_cast<int>(threadIdx.x) * 2;
#pragma unroll 4
  for (int split = 0; split < splits; ++split) {
    const float* of = from + split * row;
    const float weight = exp2f(of[value_dim] - highest);
    const float2 value = *reinterpret_cast<const float2*>(of + column);
    total += weight * of[value_dim + 1];
    x += weight * value.x;
    y += weight * value.y;
  }
  *reinterpret_cast<uint32_t*>(
      out + static_cast<int64_t>(blockIdx.x) * value_dim + column) =
      Pack(x / total, y / total);
}

template <typename S>
cudaError_t LaunchShape(const DecodeAttention& attention, cudaStream_t stream) {
  const AttentionShape& shape = attention.shape;
  Arguments arguments;
  arguments.attention = attention;
  arguments.group = shape.q_heads / shape.kv_heads;
  arguments.head_blocks = (arguments.group + S::kHeads - 1) / S::kHeads;
  const int tiles = (shape.context_tokens + S::kTokens - 1) / S::kTokens;
  arguments.split_tokens =
      (tiles + attention.splits - 1) / attention.splits * S::kTokens;
  const int64_t rows = static_cast<int64_t>(shape.batch) * shape.kv_heads *
                       arguments.head_blocks;
  if (rows > kMaxGridY) return cudaErrorInvalidValue;
  if (const cudaError_t error = cudaFuncSetAttribute(
          Decode<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
          S::kSharedBytes);
      error != cudaSuccess) {
    return error;
  }
  const dim3 grid(static_cast<unsigned>(attention.splits),
                  static_cast<unsigned>(rows));
  Decode<S><<<grid, S::kThreads, S::kSharedBytes, stream>>>(arguments);
  if (attention.splits > 1) {
    Combine<<<static_cast<unsigned>(shape.batch * shape.q_heads), S::kV / 2, 0,
              stream>>>(attention.partial, attention.out, attention.splits);
  }
  return cudaGetLastError();
}

// Stages for about 100 KiB a multiprocessor under way; blocks that fill its
// shared memory are alone on it, hence of many warps.
using Narrow = Shape<64, false, 64, 3, 1, 4>;
using Usual = Shape<128, false, 64, 3, 1, 4>;
using Wide = Shape<256, false, 32, 3, 1, 4>;
using Latent = Shape<576, true, 64, 2, 1, 8>;
using LatentManyHeads = Shape<576, true, 64, 2, 4, 4>;
// The same for less shared memory.
using SmallUsual = Shape<128, false, 64, 2, 1, 4>;
using SmallWide = Shape<256, false, 32, 2, 1, 4>;
using SmallLatent = Shape<576, true, 32, 2, 1, 4>;

// Calls `use` with the shape's kernel, where there is one.
template <typename Result, typename Use>
Result WithKernel(const AttentionShape& shape, int variant, Result none,
                  const Use& use) {
  const bool large = variant == 0;
  if (shape.latent) {
    if (shape.qk_dim != Latent::kQk) return none;
    if (!large) return use(SmallLatent());
    return shape.q_heads / shape.kv_heads > kHeadsPerFragment
               ? use(LatentManyHeads())
               : use(Latent());
  }
  switch (shape.qk_dim) {
    case Narrow::kQk:
      return use(Narrow());
    case Usual::kQk:
      return large ? use(Usual()) : use(SmallUsual());
    case Wide::kQk:
      return large ? use(Wide()) : use(SmallWide());
    default:
      return none;
  }
}

}  // namespace

int ValueDim(const AttentionShape& shape) {
  return shape.latent ? shape.qk_dim - kRopeDim : shape.qk_dim;
}

size_t DecodeSharedBytes(const AttentionShape& shape, int variant) {
  return WithKernel(shape, variant, size_t{0}, [](auto kernel) -> size_t {
    return decltype(kernel)::kSharedBytes;
  });
}

size_t PartialBytes(const AttentionShape& shape, int splits) {
  return sizeof(float) * static_cast<size_t>(shape.batch) *
         static_cast<size_t>(shape.q_heads) * static_cast<size_t>(splits) *
         static_cast<size_t>(ValueDim(shape) + kTail);
}

cudaError_t LaunchDecodeAttention(const DecodeAttention& attention, int variant,
                                  cudaStream_t stream) {
  if (attention.splits < 1) return cudaErrorInvalidValue;
  return WithKernel(attention.shape, variant, cudaErrorInvalidValue,
                    [&](auto kernel) {
                      return LaunchShape<decltype(kernel)>(attention, stream);
                    });
}

}  // namespace fabricwise
