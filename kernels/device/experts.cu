// SPDX-License-Identifier: Apache-2.0
#include "kernels/device/experts.h"
#include "kernels/device/mma.cuh"

namespace fabricwise {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
// A stage is 64 values of k: rows of 128 bytes, which eight threads copy whole.
constexpr int kStageK = 64;
constexpr int kRowChunks = kStageK / kChunkElements;
constexpr int kRowsPerCopy = kThreads / kRowChunks;
constexpr int kRowBytes = kStageK * sizeof(__nv_bfloat16);
constexpr int kFragment = 16;  // weight rows of one matrix operation
// Rows of the staged output are this much longer, against bank conflicts.
constexpr int kPadding = kChunkElements;

// kWeights weight rows times kTokens token rows a block; kStages buffers;
// kWarpsAcross warps share the weight rows and divide the tokens. kGroup: by
// products of the whole warp group, where the chip has them.
template <int kWeights_, int kTokens_, int kStages_, int kWarpsAcross_,
          bool kGroup_ = false>
struct Shape {
  static constexpr bool kGroup = kGroup_;
  static constexpr int kWeights = kWeights_, kTokens = kTokens_,
                       kStages = kStages_, kWarpsAcross = kWarpsAcross_;
  static constexpr int kStageBytes = (kWeights + kTokens) * kRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static constexpr int kWarpsDown = kWarps / kWarpsAcross;
  static constexpr int kDown = kWeights / kWarpsDown / kFragment;
  static constexpr int kAcross = kTokens / kWarpsAcross / 8;
  static_assert(kDown >= 1 && kAcross >= 1);
  static_assert(!kGroup || (kAcross == 16 && kWarpsAcross == 1));
  // Sixteen weight rows: the i-th of the warps at `down`.
  __device__ static int Fragment(int down, int i) {
    return kGroup ? i * kWarpsDown + down : down * kDown + i;
  }
};

__device__ float Silu(float x) { return x / (1.0f + __expf(-x)); }

// Adds a stage's products to the sums: begins them, by the whole warp group.
template <typename S>
__device__ void MultiplyByGroup(float (&sum)[S::kDown][S::kAcross][4],
                                uint32_t weight_base, uint32_t token_base) {
  constexpr uint32_t kPartBytes = 16 * sizeof(__nv_bfloat16);
  constexpr uint32_t kGroupBytes = S::kWarpsDown * kFragment * kRowBytes;
  BeginGroupProducts();
#pragma unroll
  for (int part = 0; part < kStageK / 16; ++part) {
    const uint64_t b = GroupOperand(token_base + part * kPartBytes);
#pragma unroll
    for (int i = 0; i < S::kDown; ++i) {
      MultiplyGroup(
          sum[i],
          GroupOperand(weight_base + i * kGroupBytes + part * kPartBytes), b);
    }
  }
  CommitGroupProducts();
}

// The same, done, by every warp on its own.
template <typename S>
__device__ void MultiplyByWarp(float (&sum)[S::kDown][S::kAcross][4],
                               uint32_t weight_base, uint32_t token_base) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int down = warp % S::kWarpsDown;
  const int first = warp / S::kWarpsDown * S::kAcross * 8;
#pragma unroll
  for (int part = 0; part < kStageK / 16; ++part) {
    uint32_t a[S::kDown][4];
#pragma unroll
    for (int i = 0; i < S::kDown; ++i) {
      const int row = S::Fragment(down, i) * kFragment + lane % 16;
      LoadFour(a[i],
               weight_base + Swizzled<kRowChunks>(row, part * 2 + lane / 16));
    }
    if constexpr (S::kAcross == 1) {
      uint32_t b[2];
      LoadTwo(b, token_base + Swizzled<kRowChunks>(first + lane % 8,
                                                   part * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < S::kDown; ++i) Multiply(sum[i][0], a[i], b[0], b[1]);
    } else {
#pragma unroll
      for (int j = 0; j < S::kAcross; j += 2) {
        uint32_t b[4];
        const int row = first + j * 8 + lane % 8 + lane / 16 * 8;
        LoadFour(
            b, token_base + Swizzled<kRowChunks>(row, part * 2 + lane / 8 % 2));
#pragma unroll
        for (int i = 0; i < S::kDown; ++i) {
          Multiply(sum[i][j], a[i], b[0], b[1]);
          Multiply(sum[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }
}

// Gated, a fragment's sixteen weight rows are eight of the gate and, below, the
// eight others of the same columns: both meet in one thread.
template <typename S, bool kGated>
__global__ void __launch_bounds__(kThreads) Grouped(GroupedProduct product) {
  extern __shared__ __align__(1024) char shared[];
  constexpr int kColumns = kGated ? S::kWeights / 2 : S::kWeights;
  const ExpertTile tile = product.tiles[blockIdx.x];
  const int64_t k = product.k;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int down = warp % S::kWarpsDown, across = warp / S::kWarpsDown;

  // What this thread copies: chunk `chunk` of every kRowsPerCopy-th row.
  const int chunk = threadIdx.x % kRowChunks;
  const int copy_row = threadIdx.x / kRowChunks;
  constexpr int kColumnsPerCopy = kGated ? kRowsPerCopy / 2 : kRowsPerCopy;
  const int own_column = kGated ? copy_row % 8 : copy_row;
  const int columns_left =
      static_cast<int>(product.columns) - tile.first_column - own_column;
  const __nv_bfloat16* expert =
      product.weights + tile.expert * (kGated ? 2 : 1) * product.columns * k;
  const __nv_bfloat16* weights =
      expert +
      ((kGated && copy_row >= 8 ? product.columns : 0) + tile.first_column +
       own_column) *
          k +
      chunk * kChunkElements;
  const __nv_bfloat16* tokens =
      product.in + (tile.first_row + static_cast<int64_t>(copy_row)) * k +
      chunk * kChunkElements;
  const uint32_t base = SharedAddress(shared);

  const auto copy_stage = [&](int stage, int64_t step) {
    const uint32_t to = base + static_cast<uint32_t>(stage * S::kStageBytes);
    const int64_t at = step * kStageK;
    const bool in_k = at + chunk * kChunkElements < k;
#pragma unroll
    for (int i = 0; i < S::kWeights / kRowsPerCopy; ++i) {
      const bool real = in_k && i * kColumnsPerCopy < columns_left;
      CopyChunk(to + Swizzled<kRowChunks>(copy_row + i * kRowsPerCopy, chunk),
                real ? weights + at + i * kColumnsPerCopy * k : expert, real);
    }
#pragma unroll
    for (int i = 0; i < (S::kTokens + kRowsPerCopy - 1) / kRowsPerCopy; ++i) {
      const int row = copy_row + i * kRowsPerCopy;
      if (S::kTokens % kRowsPerCopy != 0 && row >= S::kTokens) break;
      const bool real = in_k && row < tile.rows;
      CopyChunk(to + S::kWeights * kRowBytes + Swizzled<kRowChunks>(row, chunk),
                real ? tokens + at + i * kRowsPerCopy * k : product.in, real);
    }
  };

  float sum[S::kDown][S::kAcross][4] = {};
  const int steps = static_cast<int>((k + kStageK - 1) / kStageK);
#pragma unroll
  for (int step = 0; step < S::kStages - 1; ++step) {
    if (step < steps) copy_stage(step, step);
    CommitCopies();
  }
  int stage = 0;
  for (int step = 0; step < steps; ++step) {
    AwaitCopies<S::kStages - 2>();
    if constexpr (S::kGroup) ShowCopies();
    __syncthreads();
    const uint32_t weight_base =
        base + static_cast<uint32_t>(stage * S::kStageBytes);
    const uint32_t token_base = weight_base + S::kWeights * kRowBytes;
    if constexpr (S::kGroup && kHasGroupProduct) {
      MultiplyByGroup<S>(sum, weight_base, token_base);
    }
    const int ahead = step + S::kStages - 1;
    // The buffer read in the step before, which all have left.
    if (ahead < steps) {
      copy_stage(stage == 0 ? S::kStages - 1 : stage - 1, ahead);
    }
    CommitCopies();
    if constexpr (S::kGroup && kHasGroupProduct) {
      AwaitGroupProducts();
    } else {
      MultiplyByWarp<S>(sum, weight_base, token_base);
    }
    stage = stage + 1 == S::kStages ? 0 : stage + 1;
  }

  // Through shared memory, so that rows leave whole.
  AwaitCopies<0>();
  __syncthreads();
  auto* staged = reinterpret_cast<__nv_bfloat16*>(shared);
  constexpr int kStagedRow = kColumns + kPadding;
#pragma unroll
  for (int i = 0; i < S::kDown; ++i) {
    const int fragment = S::Fragment(down, i);
#pragma unroll
    for (int j = 0; j < S::kAcross; ++j) {
      const int token = (across * S::kAcross + j) * 8 + lane % 4 * 2;
      const float* value = sum[i][j];
      if constexpr (kGated) {
        const int column = fragment * 8 + lane / 4;
        staged[token * kStagedRow + column] =
            __float2bfloat16(Silu(value[0]) * value[2]);
        staged[(token + 1) * kStagedRow + column] =
            __float2bfloat16(Silu(value[1]) * value[3]);
      } else {
        const int column = fragment * kFragment + lane / 4;
        staged[token * kStagedRow + column] = __float2bfloat16(value[0]);
        staged[(token + 1) * kStagedRow + column] = __float2bfloat16(value[1]);
        staged[token * kStagedRow + column + 8] = __float2bfloat16(value[2]);
        staged[(token + 1) * kStagedRow + column + 8] =
            __float2bfloat16(value[3]);
      }
    }
  }
  __syncthreads();
  constexpr int kOutChunks = kColumns / kChunkElements;
  for (int i = threadIdx.x; i < tile.rows * kOutChunks; i += kThreads) {
    const int row = i / kOutChunks, column = i % kOutChunks * kChunkElements;
    if (tile.first_column + column >= product.columns) continue;
    *reinterpret_cast<uint4*>(product.out +
                              (tile.first_row + static_cast<int64_t>(row)) *
                                  product.columns +
                              tile.first_column + column) =
        *reinterpret_cast<const uint4*>(staged + row * kStagedRow + column);
  }
}

// Few tokens: small tiles, many bytes under way. Many: large tiles, each weight
// fragment used sixteen times.
using Variant0 = Shape<64, 8, 6, 1>;
using Variant1 = Shape<64, 16, 6, 1>;
using Variant2 = Shape<64, 32, 5, 1>;
using Variant3 = Shape<128, 64, 4, 1>;
using Variant4 = Shape<128, 128, 3, 2>;
using Variant5 = Shape<128, 128, 3, 1, true>;

template <typename S, bool kGated>
cudaError_t LaunchShape(const GroupedProduct& product, cudaStream_t stream) {
  if (const cudaError_t error = cudaFuncSetAttribute(
          Grouped<S, kGated>, cudaFuncAttributeMaxDynamicSharedMemorySize,
          S::kSharedBytes);
      error != cudaSuccess) {
    return error;
  }
  Grouped<S, kGated><<<static_cast<unsigned>(product.tile_count), kThreads,
                       S::kSharedBytes, stream>>>(product);
  return cudaGetLastError();
}

template <typename S>
cudaError_t LaunchVariant(const GroupedProduct& product, cudaStream_t stream) {
  return product.gated ? LaunchShape<S, true>(product, stream)
                       : LaunchShape<S, false>(product, stream);
}

template <typename S>
TileShape TileOf(bool gated) {
  return {S::kTokens, gated ? S::kWeights / 2 : S::kWeights};
}

}  // namespace

TileShape GroupedTile(int variant, bool gated) {
  switch (variant) {
    case 0:
      return TileOf<Variant0>(gated);
    case 1:
      return TileOf<Variant1>(gated);
    case 2:
      return TileOf<Variant2>(gated);
    case 3:
      return TileOf<Variant3>(gated);
    case 4:
      return TileOf<Variant4>(gated);
    default:
      return TileOf<Variant5>(gated);
  }
}

cudaError_t LaunchGroupedProduct(const GroupedProduct& product, int variant,
                                 cudaStream_t stream) {
  if (product.columns % kChunkElements != 0 ||
      product.k % kChunkElements != 0 || product.tile_count <= 0) {
    return cudaErrorInvalidValue;
  }
  switch (variant) {
    case 0:
      return LaunchVariant<Variant0>(product, stream);
    case 1:
      return LaunchVariant<Variant1>(product, stream);
    case 2:
      return LaunchVariant<Variant2>(product, stream);
    case 3:
      return LaunchVariant<Variant3>(product, stream);
    case 4:
      return LaunchVariant<Variant4>(product, stream);
    case 5:
      return LaunchVariant<Variant5>(product, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace fabricwise
