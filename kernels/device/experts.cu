// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/device/experts.h"
#include "kernels/device/group_product.cuh"
#include "kernels/device/mma.cuh"

namespace fabricwise {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
// A stage is 128 bytes of k, 64 bf16 or the 128 e4m3 of a block: rows that
// eight threads copy whole.
constexpr int kRowBytes = 128;
constexpr int kRowChunks = kRowBytes / kChunkBytes;
constexpr int kRowsPerCopy = kThreads / kRowChunks;
// One matrix operation takes this much of a row.
constexpr int kPartBytes = 32;
constexpr int kParts = kRowBytes / kPartBytes;
constexpr int kFragment = 16;  // weight rows of one matrix operation
// Rows of the staged output are this much longer, against bank conflicts.
constexpr int kPadding = kChunkElements;

// kWeights weight rows times kTokens token rows a block; kStages buffers;
// kWarpsAcross warps share the weight rows and divide the tokens. kGroup: by
// products of the whole warp group, where the chip has them. kFp8: blocks of
// e4m3, whose scales stand behind the stages.
template <bool kFp8_, int kWeights_, int kTokens_, int kStages_,
          int kWarpsAcross_, bool kGroup_ = false>
struct Shape {
  static constexpr bool kFp8 = kFp8_, kGroup = kGroup_;
  static constexpr int kWeights = kWeights_, kTokens = kTokens_,
                       kStages = kStages_, kWarpsAcross = kWarpsAcross_;
  static constexpr int kStageBytes = (kWeights + kTokens) * kRowBytes;
  // Of the tokens, then of the gate's or only weights and of the others.
  static constexpr int kScaleBytes = kFp8 ? (kTokens + 2) * 4 : 0;
  static constexpr int kSharedBytes = kStages * (kStageBytes + kScaleBytes);
  static constexpr int kWarpsDown = kWarps / kWarpsAcross;
  static constexpr int kDown = kWeights / kWarpsDown / kFragment;
  static constexpr int kAcross = kTokens / kWarpsAcross / 8;
  static_assert(kDown >= 1 && kAcross >= 1);
  static_assert(!kGroup || kWarpsAcross == 1);
  // Sixteen weight rows: the i-th of the warps at `down`.
  __device__ static int Fragment(int down, int i) {
    return kGroup ? i * kWarpsDown + down : down * kDown + i;
  }
};

__device__ float Silu(float x) { return x / (1.0f + __expf(-x)); }

template <typename S>
__device__ void MultiplyPart(float (&sum)[4], const uint32_t (&a)[4],
                             uint32_t b0, uint32_t b1) {
  if constexpr (S::kFp8) {
    MultiplyFp8(sum, a, b0, b1);
  } else {
    Multiply(sum, a, b0, b1);
  }
}

// Adds a stage's products with fragments kFirst.. of the weights to the sums:
// begins them, by the whole warp group.
template <typename S, int kFragments>
__device__ void MultiplyByGroup(float (&sum)[kFragments][S::kAcross][4],
                                int first, uint32_t weight_base,
                                uint32_t token_base) {
  constexpr uint32_t kGroupBytes = S::kWarpsDown * kFragment * kRowBytes;
  BeginGroupProducts();
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const uint64_t b = GroupOperand(token_base + part * kPartBytes);
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const uint64_t a = GroupOperand(weight_base + (first + i) * kGroupBytes +
                                      part * kPartBytes);
      if constexpr (S::kFp8) {
        MultiplyGroupFp8(sum[i], a, b);
      } else {
        MultiplyGroup(sum[i], a, b);
      }
    }
  }
  CommitGroupProducts();
}

// The same, done, by every warp on its own.
template <typename S, int kFragments>
__device__ void MultiplyByWarp(float (&sum)[kFragments][S::kAcross][4],
                               int first_fragment, uint32_t weight_base,
                               uint32_t token_base) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int down = warp % S::kWarpsDown;
  const int first = warp / S::kWarpsDown * S::kAcross * 8;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    uint32_t a[kFragments][4];
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const int row =
          S::Fragment(down, first_fragment + i) * kFragment + lane % 16;
      LoadFour(a[i],
               weight_base + Swizzled<kRowChunks>(row, part * 2 + lane / 16));
    }
    if constexpr (S::kAcross == 1) {
      uint32_t b[2];
      LoadTwo(b, token_base + Swizzled<kRowChunks>(first + lane % 8,
                                                   part * 2 + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        MultiplyPart<S>(sum[i][0], a[i], b[0], b[1]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < S::kAcross; j += 2) {
        uint32_t b[4];
        const int row = first + j * 8 + lane % 8 + lane / 16 * 8;
        LoadFour(
            b, token_base + Swizzled<kRowChunks>(row, part * 2 + lane / 8 % 2));
#pragma unroll
        for (int i = 0; i < kFragments; ++i) {
          MultiplyPart<S>(sum[i][j], a[i], b[0], b[1]);
          MultiplyPart<S>(sum[i][j + 1], a[i], b[2], b[3]);
        }
      }
    }
  }
}

// Adds the products of one block of k, times their scales, to the sums of a
// fragment, whose last eight weight rows have `other_scale`.
template <int kAcross>
__device__ void AddScaled(const float (&product)[kAcross][4],
                          const float* token_scales, float scale,
                          float other_scale, float (&sum)[kAcross][4]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kAcross; ++j) {
    const float2 of =
        *reinterpret_cast<const float2*>(token_scales + j * 8 + lane % 4 * 2);
    sum[j][0] += product[j][0] * (of.x * scale);
    sum[j][1] += product[j][1] * (of.y * scale);
    sum[j][2] += product[j][2] * (of.x * other_scale);
    sum[j][3] += product[j][3] * (of.y * other_scale);
  }
}

// Gated, a fragment's sixteen weight rows are eight of the gate and, below, the
// eight others of the same columns: both meet in one thread.
template <typename S, bool kGated>
__global__ void __launch_bounds__(kThreads) Grouped(GroupedProduct product) {
  extern __shared__ __align__(1024) char shared[];
  constexpr int kColumns = kGated ? S::kWeights / 2 : S::kWeights;
  using Element = std::conditional_t<S::kFp8, __nv_fp8_e4m3, __nv_bfloat16>;
  constexpr int kChunkK = kChunkBytes / sizeof(Element);
  constexpr int kStageK = kRowBytes / sizeof(Element);
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
  const auto* in = static_cast<const Element*>(product.in);
  const Element* expert = static_cast<const Element*>(product.weights) +
                          tile.expert * (kGated ? 2 : 1) * product.columns * k;
  const Element* weights = expert +
                           ((kGated && copy_row >= 8 ? product.columns : 0) +
                            tile.first_column + own_column) *
                               k +
                           chunk * kChunkK;
  const Element* tokens =
      in + (tile.first_row + static_cast<int64_t>(copy_row)) * k +
      chunk * kChunkK;
  const uint32_t base = SharedAddress(shared);
  char* const scales = shared + S::kStages * S::kStageBytes;

  const auto copy_stage = [&](int stage, int64_t step) {
    const uint32_t to = base + static_cast<uint32_t>(stage * S::kStageBytes);
    const int64_t at = step * kStageK;
    const bool in_k = at + chunk * kChunkK < k;
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
                real ? tokens + at + i * kRowsPerCopy * k : in, real);
    }
    if constexpr (S::kFp8) {
      const uint32_t behind =
          SharedAddress(scales) + static_cast<uint32_t>(stage * S::kScaleBytes);
      const int own = static_cast<int>(threadIdx.x);
      if (own < S::kTokens) {
        const bool real = own < tile.rows;
        CopyWord(behind + own * 4,
                 product.in_scales + step * product.rows + tile.first_row +
                     (real ? own : 0),
                 real);
      }
      if (own < (kGated ? 2 : 1)) {
        const int64_t blocks = k / kFp8BlockSide;
        const int64_t row = (tile.expert * (kGated ? 2 : 1) + own) *
                                (product.columns / kFp8BlockSide) +
                            tile.first_column / kFp8BlockSide;
        CopyWord(behind + (S::kTokens + own) * 4,
                 product.weight_scales + row * blocks + step, true);
      }
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
    constexpr bool kByGroup = S::kGroup && kHasGroupProduct;
    if constexpr (kByGroup && !S::kFp8) {
      MultiplyByGroup<S, S::kDown>(sum, 0, weight_base, token_base);
    }
    const int ahead = step + S::kStages - 1;
    // The buffer read in the step before, which all have left.
    if (ahead < steps) {
      copy_stage(stage == 0 ? S::kStages - 1 : stage - 1, ahead);
    }
    CommitCopies();
    if constexpr (S::kFp8) {
      const auto* of =
          reinterpret_cast<const float*>(scales + stage * S::kScaleBytes);
      // As many fragments at once as registers are left.
      constexpr int kAtOnce = S::kAcross <= 8 ? S::kDown : 1;
#pragma unroll
      for (int first = 0; first < S::kDown; first += kAtOnce) {
        // Blocks have scales of their own, hence sums of their own.
        float block[kAtOnce][S::kAcross][4] = {};
        if constexpr (kByGroup) {
          for (auto& fragment : block) HoldSums(fragment);
          MultiplyByGroup<S, kAtOnce>(block, first, weight_base, token_base);
          AwaitGroupProducts();
          for (auto& fragment : block) HoldSums(fragment);
        } else {
          MultiplyByWarp<S, kAtOnce>(block, first, weight_base, token_base);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          AddScaled(block[i], of + across * S::kAcross * 8, of[S::kTokens],
                    of[S::kTokens + (kGated ? 1 : 0)], sum[first + i]);
        }
      }
    } else if constexpr (kByGroup) {
      AwaitGroupProducts();
    } else {
      MultiplyByWarp<S, S::kDown>(sum, 0, weight_base, token_base);
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

// A warp a block of 128 columns of a row.
__global__ void Quantise(const __nv_bfloat16* in, __nv_fp8_e4m3* out,
                         float* scales, int64_t rows, int64_t columns) {
  const int lane = threadIdx.x % kWarp;
  const int64_t blocks = columns / kFp8BlockSide;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t i =
           static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       i < rows * blocks; i += step) {
    constexpr int kEach = kFp8BlockSide / kWarp;
    const int64_t at = i * kFp8BlockSide + lane * kEach;
    const uint2 bits = *reinterpret_cast<const uint2*>(in + at);
    __nv_bfloat162 pairs[2];
    memcpy(pairs, &bits, sizeof(bits));
    const float2 low = __bfloat1622float2(pairs[0]);
    const float2 high = __bfloat1622float2(pairs[1]);
    float largest = fmaxf(fmaxf(fabsf(low.x), fabsf(low.y)),
                          fmaxf(fabsf(high.x), fabsf(high.y)));
#pragma unroll
    for (int other = kWarp / 2; other > 0; other /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, other));
    }
    // A block of zeros has any scale.
    const float scale = largest > 0 ? largest / kFp8Largest : 1;
    const float by = 1 / scale;
    const __nv_fp8x4_e4m3 four(
        make_float4(low.x * by, low.y * by, high.x * by, high.y * by));
    *reinterpret_cast<__nv_fp8x4_e4m3*>(out + at) = four;
    if (lane == 0) scales[i % blocks * rows + i / blocks] = scale;
  }
}

template <typename... Each>
struct Shapes {
  static constexpr int kCount = sizeof...(Each);

  // `use` of the variant's shape.
  template <typename Result, typename Use>
  static Result With(int variant, Result none, const Use& use) {
    int i = 0;
    ((i++ == variant ? (none = use(Each()), true) : false) || ...);
    return none;
  }
};
// Few tokens: small tiles, many bytes under way. Many: large tiles, each weight
// fragment used sixteen times.
using Bf16Shapes =
    Shapes<Shape<false, 64, 8, 6, 1>, Shape<false, 64, 16, 6, 1>,
           Shape<false, 64, 32, 5, 1>, Shape<false, 128, 64, 4, 1>,
           Shape<false, 128, 128, 3, 2>, Shape<false, 128, 128, 3, 1, true>>;
// Half the bytes a weight: twice the weights make as long a tile.
using Fp8Shapes =
    Shapes<Shape<true, 64, 8, 6, 1>, Shape<true, 64, 16, 6, 1>,
           Shape<true, 64, 32, 5, 1>, Shape<true, 128, 8, 4, 1>,
           Shape<true, 128, 16, 4, 1>, Shape<true, 128, 32, 4, 1>,
           Shape<true, 64, 64, 4, 1, true>, Shape<true, 128, 64, 4, 1, true>,
           Shape<true, 128, 128, 3, 1, true>>;

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

}  // namespace

int GroupedVariants(bool fp8_block) {
  return fp8_block ? Fp8Shapes::kCount : Bf16Shapes::kCount;
}

TileShape GroupedTile(const GroupedProduct& product, int variant) {
  const auto tile = [&](auto shape) -> TileShape {
    using S = decltype(shape);
    return {S::kTokens, product.gated ? S::kWeights / 2 : S::kWeights};
  };
  return product.fp8_block ? Fp8Shapes::With(variant, TileShape(), tile)
                           : Bf16Shapes::With(variant, TileShape(), tile);
}

cudaError_t LaunchGroupedProduct(const GroupedProduct& product, int variant,
                                 cudaStream_t stream) {
  const int64_t unit = product.fp8_block ? kFp8BlockSide : kChunkElements;
  if (product.columns % unit != 0 || product.k % unit != 0 ||
      product.tile_count <= 0) {
    return cudaErrorInvalidValue;
  }
  const auto launch = [&](auto shape) {
    using S = decltype(shape);
    return product.gated ? LaunchShape<S, true>(product, stream)
                         : LaunchShape<S, false>(product, stream);
  };
  return product.fp8_block
             ? Fp8Shapes::With(variant, cudaErrorInvalidValue, launch)
             : Bf16Shapes::With(variant, cudaErrorInvalidValue, launch);
}

cudaError_t LaunchQuantise(const __nv_bfloat16* in, void* out, float* scales,
                           int64_t rows, int64_t columns, cudaStream_t stream) {
  constexpr int64_t kMostBlocks = 4096;
  if (columns % kFp8BlockSide != 0) return cudaErrorInvalidValue;
  const int64_t warps = rows * (columns / kFp8BlockSide);
  const auto blocks = static_cast<unsigned>(
      std::clamp<int64_t>((warps + kWarps - 1) / kWarps, 1, kMostBlocks));
  Quantise<<<blocks, kThreads, 0, stream>>>(
      in, static_cast<__nv_fp8_e4m3*>(out), scales, rows, columns);
  return cudaGetLastError();
}

}  // namespace fabricwise
