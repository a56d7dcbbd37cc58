// SPDX-License-Identifier: Apache-2.0
//
// Products of whole warp groups, which read their operands from shared memory.
// For .cu files alone.
#pragma once

#include <cstdint>

namespace fabricwise {

// Code for the very chip, as "sm_90a", may use the product of whole warp
// groups.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasGroupProduct = true;
#else
inline constexpr bool kHasGroupProduct = false;
#endif

// Rows of 128 bytes in shared memory, swizzled as above, from `address`: the
// matrix descriptor of PTX.
__device__ inline uint64_t GroupOperand(uint32_t address) {
  constexpr uint64_t kAddressMask = 0x3FFFF;
  constexpr uint64_t kEightRows = uint64_t{8 * 128 / 16} << 32;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return ((address & kAddressMask) >> 4) | uint64_t{1} << 16 | kEightRows |
         kSwizzle128;
}

// Sixteen such rows whose columns the product runs over: blocks of 64 columns
// are `block_bytes` apart.
__device__ inline uint64_t GroupOperandAcross(uint32_t address,
                                              uint32_t block_bytes) {
  constexpr uint64_t kAddressMask = 0x3FFFF;
  constexpr uint64_t kEightRows = uint64_t{8 * 128 / 16} << 32;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return ((address & kAddressMask) >> 4) |
         static_cast<uint64_t>(block_bytes >> 4) << 16 | kEightRows |
         kSwizzle128;
}

// Makes this thread's copies into shared memory seen by group products.
__device__ inline void ShowCopies() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ inline void BeginGroupProducts() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void CommitGroupProducts() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Until at most kPending of the last commits are under way.
template <int kPending = 0>
__device__ inline void AwaitGroupProducts() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}
// Keeps uses of sums on the side of a wait where they stand.
template <int kTiles>
__device__ inline void HoldSums(float (&sum)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
    asm volatile(""
                 : "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]),
                   "+f"(sum[i][3])::"memory");
  }
}

// The sums of a group product as operands of its instruction.
#define FABRICWISE_SUM(i) \
  "+f"(sum[i][0]), "+f"(sum[i][1]), "+f"(sum[i][2]), "+f"(sum[i][3])
#define FABRICWISE_SUMS_64                                                    \
  FABRICWISE_SUM(0), FABRICWISE_SUM(1), FABRICWISE_SUM(2), FABRICWISE_SUM(3), \
      FABRICWISE_SUM(4), FABRICWISE_SUM(5), FABRICWISE_SUM(6),                \
      FABRICWISE_SUM(7)
#define FABRICWISE_SUMS_128                                       \
  FABRICWISE_SUMS_64, FABRICWISE_SUM(8), FABRICWISE_SUM(9),       \
      FABRICWISE_SUM(10), FABRICWISE_SUM(11), FABRICWISE_SUM(12), \
      FABRICWISE_SUM(13), FABRICWISE_SUM(14), FABRICWISE_SUM(15)
#define FABRICWISE_OPERANDS_64               \
  "{%0, %1, %2, %3, %4, %5, %6, %7, "        \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31}, "
#define FABRICWISE_OPERANDS_128              \
  "{%0, %1, %2, %3, %4, %5, %6, %7, "        \
  "%8, %9, %10, %11, %12, %13, %14, %15, "   \
  "%16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63}, "

// sum[64, 8 x kTiles] += a[64,16] x b[8 x kTiles, 16]^T by four warps; a warp
// has its sixteen rows of the sum, in the fragments of Multiply.
template <int kTiles>
__device__ inline void MultiplyGroup(float (&sum)[kTiles][4], uint64_t a,
                                     uint64_t b) {
  static_assert(kTiles == 8 || kTiles == 16);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kTiles == 8) {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16."
        "bf16 " FABRICWISE_OPERANDS_64 "%32, %33, add, 1, 1, 0, 0;}"
        : FABRICWISE_SUMS_64
        : "l"(a), "l"(b));
  } else {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16."
        "bf16 " FABRICWISE_OPERANDS_128 "%64, %65, add, 1, 1, 0, 0;}"
        : FABRICWISE_SUMS_128
        : "l"(a), "l"(b));
  }
#endif
}

// The same in e4m3: a[64,32], b[8 x kTiles, 32].
template <int kTiles>
__device__ inline void MultiplyGroupFp8(float (&sum)[kTiles][4], uint64_t a,
                                        uint64_t b) {
  static_assert(kTiles == 8 || kTiles == 16);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kTiles == 8) {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3."
        "e4m3 " FABRICWISE_OPERANDS_64 "%32, %33, add, 1, 1;}"
        : FABRICWISE_SUMS_64
        : "l"(a), "l"(b));
  } else {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3."
        "e4m3 " FABRICWISE_OPERANDS_128 "%64, %65, add, 1, 1;}"
        : FABRICWISE_SUMS_128
        : "l"(a), "l"(b));
  }
#endif
}

// sum[64, 8 x kTiles] += a[64,16] x b[16, 8 x kTiles], a in the fragments of
// Multiply, b by GroupOperandAcross.
template <int kTiles>
__device__ inline void MultiplyGroupHeld(float (&sum)[kTiles][4],
                                         const uint32_t (&a)[4], uint64_t b) {
  static_assert(kTiles == 8 || kTiles == 16);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kTiles == 8) {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16."
        "bf16 " FABRICWISE_OPERANDS_64
        "{%32, %33, %34, %35}, %36, add, 1, 1, 1;}"
        : FABRICWISE_SUMS_64
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile(
        "{.reg .pred add; setp.eq.u32 add, 0, 0;"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16."
        "bf16 " FABRICWISE_OPERANDS_128
        "{%64, %65, %66, %67}, %68, add, 1, 1, 1;}"
        : FABRICWISE_SUMS_128
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
#endif
}

#undef FABRICWISE_SUM
#undef FABRICWISE_SUMS_64
#undef FABRICWISE_SUMS_128
#undef FABRICWISE_OPERANDS_64
#undef FABRICWISE_OPERANDS_128

}  // namespace fabricwise
