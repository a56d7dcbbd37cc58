// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/device/group_product.cuh"
#include "kernels/device/mma.cuh"
#include "kernels/device/prompt_attention.h"

namespace fabricwise {
namespace {

constexpr int kGroupWarps = 4;
constexpr int kFragmentRows = 16;  // query rows of a warp
// Tiles lie in blocks of 64 columns: rows of 128 bytes, which eight threads
// copy whole.
constexpr int kBlockColumns = 64;
constexpr int kBlockChunks = kBlockColumns / kChunkElements;
constexpr int kRowBytes = kBlockColumns * sizeof(__nv_bfloat16);
constexpr int kMaxGrid = 65535;  // blocks in the second and third dimension
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.4426950408889634f;

// A warp has sixteen query rows and all columns; tiles of kTokens keys and
// values, two of each in shared memory. kGroup: by products of whole warp
// groups, where the chip has them.
template <int kQk_, int kV_, int kWarps_, int kTokens_, bool kGroup_>
struct Shape {
  static constexpr int kQk = kQk_, kV = kV_, kWarps = kWarps_,
                       kTokens = kTokens_;
  static constexpr bool kGroup = kGroup_;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kRows = kWarps * kFragmentRows;
  static constexpr int kQueryBytes = kRows * kQk * 2;
  static constexpr int kKeyBytes = kTokens * kQk * 2;
  static constexpr int kValueBytes = kTokens * kV * 2;
  static constexpr int kSharedBytes =
      kQueryBytes + 2 * (kKeyBytes + kValueBytes);
  static constexpr int kScores = kTokens / 8;  // fragments across
  // Of the output, in as many parts as one product takes.
  static constexpr int kParts = kV > 128 ? kV / 128 : 1;
  static constexpr int kValues = kV / kParts / 8;
  static_assert(kQk % kBlockColumns == 0 && kV % kBlockColumns == 0);
  static_assert(kTokens % 16 == 0);
  static_assert(!kGroup || kWarps % kGroupWarps == 0);
  static_assert(!kGroup || kScores == 8 || kScores == 16);
};

__device__ float RowMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ float RowSum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}
__device__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ uint32_t Pack(float x, float y) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// Byte offset of a chunk in a tile of kTileRows rows.
template <int kTileRows>
__device__ uint32_t InTile(int row, int chunk) {
  return static_cast<uint32_t>(chunk / kBlockChunks * kTileRows * kRowBytes) +
         Swizzled<kBlockChunks>(row, chunk % kBlockChunks);
}

// Begins to copy kTileRows rows of kColumns from rows `first`.. of `from`, so
// far apart; rows from `end` on become zeros.
template <int kTileRows, int kColumns, int kThreads>
__device__ void CopyTile(uint32_t to, const __nv_bfloat16* from, int64_t stride,
                         int first, int end) {
  constexpr int kRowsEach = kThreads / kBlockChunks;
  const int chunk = threadIdx.x % kBlockChunks;
  const int row = threadIdx.x / kBlockChunks;
#pragma unroll
  for (int at = 0; at < kTileRows; at += kRowsEach) {
    const bool real = first + at + row < end;
    const __nv_bfloat16* of =
        from + (real ? first + at + row : 0) * stride + chunk * kChunkElements;
#pragma unroll
    for (int block = 0; block < kColumns / kBlockColumns; ++block) {
      CopyChunk(to + InTile<kTileRows>(at + row, block * kBlockChunks + chunk),
                of + block * kBlockColumns, real);
    }
  }
}

// Products of a warp's queries with a tile of keys: begun, by the warp group.
template <typename S>
__device__ void ScoreByGroup(float (&score)[S::kScores][4], uint32_t queries,
                             uint32_t keys) {
  const int group = threadIdx.x / (kGroupWarps * kWarp);
  const uint32_t own =
      queries +
      static_cast<uint32_t>(group * kGroupWarps * kFragmentRows * kRowBytes);
  BeginGroupProducts();
#pragma unroll
  for (int at = 0; at < S::kQk; at += 16) {
    const int block = at / kBlockColumns;
    const uint32_t within = at % kBlockColumns * sizeof(__nv_bfloat16);
    MultiplyGroup(score,
                  GroupOperand(own + block * S::kRows * kRowBytes + within),
                  GroupOperand(keys + block * S::kTokens * kRowBytes + within));
  }
  CommitGroupProducts();
}

// The same, done, by the warp.
template <typename S>
__device__ void ScoreByWarp(float (&score)[S::kScores][4], uint32_t queries,
                            uint32_t keys) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
  for (int at = 0; at < S::kQk / kChunkElements; at += 2) {
    uint32_t a[4];
    LoadFour(a, queries + InTile<S::kRows>(warp * kFragmentRows + lane % 16,
                                           at + lane / 16));
#pragma unroll
    for (int j = 0; j < S::kScores; j += 2) {
      uint32_t b[4];
      LoadFour(b, keys + InTile<S::kTokens>(j * 8 + lane % 8 + lane / 16 * 8,
                                            at + lane / 8 % 2));
      Multiply(score[j], a, b[0], b[1]);
      Multiply(score[j + 1], a, b[2], b[3]);
    }
  }
}

template <typename S>
using Output = float[S::kParts][S::kValues][4];

// Adds the values by their probabilities: begins to, by the warp group.
template <typename S>
__device__ void AddValuesByGroup(Output<S>& out,
                                 const uint32_t (&weight)[S::kTokens / 16][4],
                                 uint32_t values) {
  constexpr uint32_t kBlockBytes = S::kTokens * kRowBytes;
  constexpr uint32_t kPartBytes = S::kValues * 8 / kBlockColumns * kBlockBytes;
  BeginGroupProducts();
#pragma unroll
  for (int at = 0; at < S::kTokens / 16; ++at) {
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) {
      MultiplyGroupHeld(
          out[part], weight[at],
          GroupOperandAcross(values + part * kPartBytes + at * 16 * kRowBytes,
                             kBlockBytes));
    }
  }
  CommitGroupProducts();
}

// The same, done, by the warp.
template <typename S>
__device__ void AddValuesByWarp(Output<S>& out,
                                const uint32_t (&weight)[S::kTokens / 16][4],
                                uint32_t values) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int at = 0; at < S::kTokens / 16; ++at) {
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) {
#pragma unroll
      for (int j = 0; j < S::kValues; j += 2) {
        uint32_t b[4];
        LoadFourTransposed(
            b, values + InTile<S::kTokens>(at * 16 + lane % 16,
                                           part * S::kValues + j + lane / 16));
        Multiply(out[part][j], weight[at], b[0], b[1]);
        Multiply(out[part][j + 1], weight[at], b[2], b[3]);
      }
    }
  }
}

// What runs along a warp's rows lane / 4 and, eight on: maximum, in powers of
// two, and this thread's share of the sum.
struct Softmax {
  float maximum[2] = {-kInfinity, -kInfinity};
  float sum[2] = {};

  // Scores become probabilities over the maximum so far; `fade` is by how much
  // what came before shrinks. Tokens from `end` on are seen by no row, and from
  // `first_end` + i on not by the i-th of this thread's rows.
  template <int kScores>
  __device__ void Take(float (&score)[kScores][4], float scale, bool masked,
                       int first_end, int end, float (&fade)[2]) {
    if (masked) {
      const int lane = threadIdx.x % kWarp;
#pragma unroll
      for (int j = 0; j < kScores; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = j * 8 + lane % 4 * 2 + i % 2;
          if (token >= min(first_end + i / 2 * 8, end)) {
            score[j][i] = -kInfinity;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float highest = fmaxf(score[0][2 * i], score[0][2 * i + 1]);
#pragma unroll
      for (int j = 1; j < kScores; ++j) {
        highest = fmaxf(highest, fmaxf(score[j][2 * i], score[j][2 * i + 1]));
      }
      const float now = fmaxf(maximum[i], RowMax(highest) * scale);
      fade[i] = Exp2(maximum[i] - now);
      maximum[i] = now;
      float added = 0;
#pragma unroll
      for (int j = 0; j < kScores; ++j) {
#pragma unroll
        for (int k = 2 * i; k < 2 * i + 2; ++k) {
          score[j][k] = Exp2(fmaf(score[j][k], scale, -now));
          added += score[j][k];
        }
      }
      sum[i] = sum[i] * fade[i] + added;
    }
  }
};

template <int kScores>
__device__ void PackWeights(const float (&score)[kScores][4],
                            uint32_t (&weight)[kScores / 2][4]) {
#pragma unroll
  for (int at = 0; at < kScores / 2; ++at) {
    const float(&low)[4] = score[2 * at];
    const float(&high)[4] = score[2 * at + 1];
    weight[at][0] = Pack(low[0], low[1]);
    weight[at][1] = Pack(low[2], low[3]);
    weight[at][2] = Pack(high[0], high[1]);
    weight[at][3] = Pack(high[2], high[3]);
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    Prompt(PromptAttention attention) {
  extern __shared__ __align__(1024) char shared[];
  constexpr bool kByGroup = S::kGroup && kHasGroupProduct;
  const PromptShape& shape = attention.shape;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  // Side by side run the heads and queries that share keys and values, of them
  // first the last queries, which see most.
  const int group = shape.q_heads / shape.kv_heads;
  const int kv_head = blockIdx.y;
  const int head = kv_head * group + static_cast<int>(blockIdx.x) % group;
  const int first_query =
      static_cast<int>(gridDim.x - 1 - blockIdx.x) / group * S::kRows;
  const int64_t sequence = blockIdx.z;
  const int queries_left = shape.query_tokens - first_query;
  // Tokens that the block's first query sees, and all together.
  const int seen_first =
      shape.context_tokens - shape.query_tokens + first_query + 1;
  const int seen = seen_first + min(S::kRows, queries_left) - 1;
  const int tiles = (seen + S::kTokens - 1) / S::kTokens;

  const int64_t q_stride = static_cast<int64_t>(shape.q_heads) * S::kQk;
  const int64_t k_stride = static_cast<int64_t>(shape.kv_heads) * S::kQk;
  const int64_t v_stride = static_cast<int64_t>(shape.kv_heads) * S::kV;
  const int64_t first_row = sequence * shape.query_tokens + first_query;
  const __nv_bfloat16* k = attention.k +
                           sequence * shape.context_tokens * k_stride +
                           static_cast<int64_t>(kv_head) * S::kQk;
  const __nv_bfloat16* v = attention.v +
                           sequence * shape.context_tokens * v_stride +
                           static_cast<int64_t>(kv_head) * S::kV;
  const uint32_t queries = SharedAddress(shared);
  const auto keys = [&](int tile) {
    return queries + S::kQueryBytes + tile % 2 * S::kKeyBytes;
  };
  const auto values = [&](int tile) {
    return queries + S::kQueryBytes + 2 * S::kKeyBytes +
           tile % 2 * S::kValueBytes;
  };
  const auto copy_keys = [&](int tile) {
    if (tile < tiles) {
      CopyTile<S::kTokens, S::kQk, S::kThreads>(keys(tile), k, k_stride,
                                                tile * S::kTokens, seen);
    }
  };
  const auto copy_values = [&](int tile) {
    if (tile < tiles) {
      CopyTile<S::kTokens, S::kV, S::kThreads>(values(tile), v, v_stride,
                                               tile * S::kTokens, seen);
    }
  };

  CopyTile<S::kRows, S::kQk, S::kThreads>(
      queries,
      attention.q + first_row * q_stride + static_cast<int64_t>(head) * S::kQk,
      q_stride, 0, queries_left);
  copy_keys(0);
  CommitCopies();
  copy_keys(1);
  copy_values(0);
  CommitCopies();

  const int own_row = warp * kFragmentRows + lane / 4;
  const float scale = attention.scale * kLog2E;
  Output<S> out = {};
  float score[S::kScores][4] = {};
  uint32_t weight[S::kTokens / 16][4];
  Softmax softmax;
  float fade[2];
  const auto take = [&](int tile) {
    const int first_end = seen_first + own_row - tile * S::kTokens;
    softmax.Take(score, scale, (tile + 1) * S::kTokens > seen_first, first_end,
                 seen - tile * S::kTokens, fade);
  };

  AwaitCopies<1>();
  ShowCopies();
  __syncthreads();
  if constexpr (kByGroup) {
    ScoreByGroup<S>(score, queries, keys(0));
    AwaitGroupProducts();
    HoldSums(score);
  } else {
    ScoreByWarp<S>(score, queries, keys(0));
  }
  take(0);
  PackWeights(score, weight);

  // While a tile's values are added, the scores of the next become weights.
  const auto next_stage = [&](int tile) {
    AwaitCopies<0>();
    ShowCopies();
    __syncthreads();  // all have left the buffers that are filled next
    copy_keys(tile + 2);
    copy_values(tile + 1);
    CommitCopies();
  };
  for (int tile = 0; tile + 1 < tiles; ++tile) {
    next_stage(tile);
#pragma unroll
    for (int j = 0; j < S::kScores; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) score[j][i] = 0;
    }
    if constexpr (kByGroup) {
      HoldSums(score);
      ScoreByGroup<S>(score, queries, keys(tile + 1));
      AddValuesByGroup<S>(out, weight, values(tile));
      AwaitGroupProducts<1>();
      HoldSums(score);
      take(tile + 1);
      AwaitGroupProducts();
#pragma unroll
      for (int part = 0; part < S::kParts; ++part) HoldSums(out[part]);
    } else {
      AddValuesByWarp<S>(out, weight, values(tile));
      ScoreByWarp<S>(score, queries, keys(tile + 1));
      take(tile + 1);
    }
    PackWeights(score, weight);
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) {
#pragma unroll
      for (int j = 0; j < S::kValues; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[part][j][i] *= fade[i / 2];
      }
    }
  }
  next_stage(tiles - 1);
  if constexpr (kByGroup) {
    AddValuesByGroup<S>(out, weight, values(tiles - 1));
    AwaitGroupProducts();
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) HoldSums(out[part]);
  } else {
    AddValuesByWarp<S>(out, weight, values(tiles - 1));
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float whole = 1 / RowSum(softmax.sum[i]);
    if (own_row + i * 8 >= queries_left) continue;
    __nv_bfloat16* to =
        attention.out +
        ((first_row + own_row + i * 8) * shape.q_heads + head) * S::kV +
        lane % 4 * 2;
#pragma unroll
    for (int part = 0; part < S::kParts; ++part) {
#pragma unroll
      for (int j = 0; j < S::kValues; ++j) {
        *reinterpret_cast<uint32_t*>(to + (part * S::kValues + j) * 8) =
            Pack(out[part][j][2 * i] * whole, out[part][j][2 * i + 1] * whole);
      }
    }
  }
}

template <typename S>
cudaError_t LaunchShape(const PromptAttention& attention, cudaStream_t stream) {
  const PromptShape& shape = attention.shape;
  const int tiles = (shape.query_tokens + S::kRows - 1) / S::kRows;
  if (shape.kv_heads > kMaxGrid || shape.batch > kMaxGrid ||
      shape.query_tokens > shape.context_tokens) {
    return cudaErrorInvalidValue;
  }
  if (const cudaError_t error = cudaFuncSetAttribute(
          Prompt<S>, cudaFuncAttributeMaxDynamicSharedMemorySize,
          S::kSharedBytes);
      error != cudaSuccess) {
    return error;
  }
  const dim3 grid(static_cast<unsigned>(tiles) *
                      static_cast<unsigned>(shape.q_heads / shape.kv_heads),
                  static_cast<unsigned>(shape.kv_heads),
                  static_cast<unsigned>(shape.batch));
  Prompt<S><<<grid, S::kThreads, S::kSharedBytes, stream>>>(attention);
  return cudaGetLastError();
}

// For each pair of widths one kernel by warp groups, which takes most of a
// large shared memory, and one that fits into 99 KiB, the least of the GPUs
// that this is for.
template <int kQk, int kV>
struct Kernels;
template <>
struct Kernels<64, 64> {
  using Large = Shape<64, 64, 8, 128, true>;
  using Small = Shape<64, 64, 8, 64, false>;
};
template <>
struct Kernels<128, 128> {
  using Large = Shape<128, 128, 8, 128, true>;
  using Small = Shape<128, 128, 8, 64, false>;
};
template <>
struct Kernels<192, 128> {
  using Large = Shape<192, 128, 8, 128, true>;
  using Small = Shape<192, 128, 4, 32, false>;
};
template <>
struct Kernels<256, 256> {
  using Large = Shape<256, 256, 8, 64, true>;
  using Small = Shape<256, 256, 4, 32, false>;
};

// Calls `use` with the shape's kernels, where there are some.
template <typename Use>
auto WithKernels(const PromptShape& shape, const Use& use)
    -> decltype(use(Kernels<64, 64>())) {
  const auto is = [&](int qk_dim, int v_dim) {
    return shape.qk_dim == qk_dim && shape.v_dim == v_dim;
  };
  if (is(64, 64)) return use(Kernels<64, 64>());
  if (is(128, 128)) return use(Kernels<128, 128>());
  if (is(192, 128)) return use(Kernels<192, 128>());
  if (is(256, 256)) return use(Kernels<256, 256>());
  return {};
}

}  // namespace

size_t PromptSharedBytes(const PromptShape& shape, int variant) {
  return WithKernels(shape, [&](auto kernels) -> size_t {
    using Of = decltype(kernels);
    return variant == 0 ? Of::Large::kSharedBytes : Of::Small::kSharedBytes;
  });
}

cudaError_t LaunchPromptAttention(const PromptAttention& attention, int variant,
                                  cudaStream_t stream) {
  if (PromptSharedBytes(attention.shape, variant) == 0) {
    return cudaErrorInvalidValue;
  }
  return WithKernels(attention.shape, [&](auto kernels) {
    using Of = decltype(kernels);
    return variant == 0 ? LaunchShape<typename Of::Large>(attention, stream)
                        : LaunchShape<typename Of::Small>(attention, stream);
  });
}

}  // namespace fabricwise
