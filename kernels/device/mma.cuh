// SPDX-License-Identifier: Apache-2.0
//
// What kernels on tensor cores share: asynchronous copies into swizzled shared
// memory, fragments of it, the product. For .cu files alone.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace fabricwise {

inline constexpr int kWarp = 32;
// A copy's unit: 16 bytes, eight bf16.
inline constexpr int kChunkBytes = 16;
inline constexpr int kChunkElements = 8;

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Byte offset of a chunk in rows of kRowChunks chunks. Chunks of a row change
// places by the row, so that neither copies nor fragments meet in a bank.
template <int kRowChunks>
__device__ inline uint32_t Swizzled(int row, int chunk) {
  static_assert(kRowChunks % 8 == 0);
  return static_cast<uint32_t>(row * kRowChunks + (chunk ^ (row & 7))) *
         kChunkBytes;
}

// Copies 16 bytes, or fills them with zeros; `from` must be readable anyway.
__device__ inline void CopyChunk(uint32_t to, const void* from, bool real) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(from), "r"(real ? kChunkBytes : 0)
               : "memory");
}
__device__ inline void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kPending of the last commits are under way.
template <int kPending>
__device__ inline void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ inline void LoadFour(uint32_t (&to)[4], uint32_t address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(address)
      : "memory");
}
__device__ inline void LoadTwo(uint32_t (&to)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(address)
               : "memory");
}
__device__ inline void LoadFourTransposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(address)
      : "memory");
}

// sum[16,8] += a[16,16] x b[16,8].
__device__ inline void Multiply(float (&sum)[4], const uint32_t (&a)[4],
                                uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

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
__device__ inline void AwaitGroupProducts() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

// sum[64,128] += a[64,16] x b[128,16]^T by four warps; a warp has its sixteen
// rows of the sum, in the fragments of Multiply.
__device__ inline void MultiplyGroup(float (&sum)[16][4], uint64_t a,
                                     uint64_t b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile(
      "{.reg .pred add; setp.eq.u32 add, 0, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;}"
      : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3]),
        "+f"(sum[1][0]), "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3]),
        "+f"(sum[2][0]), "+f"(sum[2][1]), "+f"(sum[2][2]), "+f"(sum[2][3]),
        "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]), "+f"(sum[3][3]),
        "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3]),
        "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3]),
        "+f"(sum[6][0]), "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3]),
        "+f"(sum[7][0]), "+f"(sum[7][1]), "+f"(sum[7][2]), "+f"(sum[7][3]),
        "+f"(sum[8][0]), "+f"(sum[8][1]), "+f"(sum[8][2]), "+f"(sum[8][3]),
        "+f"(sum[9][0]), "+f"(sum[9][1]), "+f"(sum[9][2]), "+f"(sum[9][3]),
        "+f"(sum[10][0]), "+f"(sum[10][1]), "+f"(sum[10][2]), "+f"(sum[10][3]),
        "+f"(sum[11][0]), "+f"(sum[11][1]), "+f"(sum[11][2]), "+f"(sum[11][3]),
        "+f"(sum[12][0]), "+f"(sum[12][1]), "+f"(sum[12][2]), "+f"(sum[12][3]),
        "+f"(sum[13][0]), "+f"(sum[13][1]), "+f"(sum[13][2]), "+f"(sum[13][3]),
        "+f"(sum[14][0]), "+f"(sum[14][1]), "+f"(sum[14][2]), "+f"(sum[14][3]),
        "+f"(sum[15][0]), "+f"(sum[15][1]), "+f"(sum[15][2]), "+f"(sum[15][3])
      : "l"(a), "l"(b));
#endif
}

}  // namespace fabricwise
