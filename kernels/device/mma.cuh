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
// The same for four bytes.
__device__ inline void CopyWord(uint32_t to, const void* from, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
               "l"(from), "r"(real ? 4 : 0)
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

// sum[16,8] += a[16,32] x b[32,8] in e4m3, the same fragments in bytes; nothing
// on chips that have no such product.
__device__ inline void MultiplyFp8(float (&sum)[4], const uint32_t (&a)[4],
                                   uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 890
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace fabricwise
