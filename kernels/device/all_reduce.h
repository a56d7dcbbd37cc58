// SPDX-License-Identifier: Apache-2.0
//
// Our own collectives over peer memory, for messages so small that latency is
// all: every word travels with a flag beside it, so that no barrier is needed.
// Floor: one write across the link, (ranks - 1) x bytes sent for one-shot,
// 2 (ranks - 1) / ranks x bytes for two-shot, each doubled by the flags.
//
// One process drives all ranks; peer access is enabled between them. A call is
// matched by one on every other rank, on streams of their own, in the same
// order everywhere. Safe to capture into a CUDA graph and to replay.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fabricwise {

inline constexpr int kMaxPeers = 16;

// Where a rank's peers write to; filled once, passed by value.
struct PeerBuffers {
  // By rank: its mailbox, MailboxBytes long, zero before first use.
  void* mailbox[kMaxPeers] = {};
  // This rank's own count of calls, kMaxExchangeBlocks words, zero before first
  // use.
  uint32_t* epochs = nullptr;
  int rank = 0;
  int ranks = 0;
  size_t max_bytes = 0;  // of one call's input
};

inline constexpr int kMaxExchangeBlocks = 64;

// Room for two calls (odd and even) from every rank, doubled by flags, in two
// phases.
size_t MailboxBytes(int ranks, size_t max_bytes);

// out[i] = sum over ranks of in[i], added in rank order in fp32. `count`
// elements, a multiple of 4 (one-shot) or 4 x ranks (two-shot); at most
// max_bytes in all.
cudaError_t LaunchOneShotAllReduce(const PeerBuffers& peers,
                                   const __nv_bfloat16* in, __nv_bfloat16* out,
                                   int64_t count, cudaStream_t stream);
cudaError_t LaunchTwoShotAllReduce(const PeerBuffers& peers,
                                   const __nv_bfloat16* in, __nv_bfloat16* out,
                                   int64_t count, cudaStream_t stream);

// Block r of `out` = this rank's block of rank r's `in`; `count` elements in
// all, a multiple of 4 x ranks.
cudaError_t LaunchDirectAllToAll(const PeerBuffers& peers,
                                 const __nv_bfloat16* in, __nv_bfloat16* out,
                                 int64_t count, cudaStream_t stream);

}  // namespace fabricwise
