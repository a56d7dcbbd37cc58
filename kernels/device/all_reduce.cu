// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/device/all_reduce.h"

namespace fabricwise {
namespace {

constexpr int kThreads = 256;

// Eight bytes of payload: four bf16.
struct Word {
  uint32_t low, high;
};

// A word and the epoch twice, so that each 8-byte half, which the link keeps
// whole, proves itself.
struct alignas(16) Letter {
  uint32_t low, low_epoch, high, high_epoch;
};

constexpr size_t kFlagFactor = sizeof(Letter) / sizeof(Word);

__device__ void Post(Letter* to, Word word, uint32_t epoch) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "r"(word.low), "r"(epoch), "r"(word.high), "r"(epoch)
               : "memory");
}

__device__ Word Await(const Letter* from, uint32_t epoch) {
  uint32_t low, low_epoch, high, high_epoch;
  do {
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(low), "=r"(low_epoch), "=r"(high), "=r"(high_epoch)
                 : "l"(from)
                 : "memory");
  } while (low_epoch != epoch || high_epoch != epoch);
  return {low, high};
}

struct Sum {
  float value[4] = {};

  __device__ void Add(Word word) {
    const auto unpack = [](uint32_t bits) {
      __nv_bfloat162 pair;
      memcpy(&pair, &bits, sizeof(pair));
      return __bfloat1622float2(pair);
    };
    const float2 low = unpack(word.low), high = unpack(word.high);
    value[0] += low.x;
    value[1] += low.y;
    value[2] += high.x;
    value[3] += high.y;
  }

  __device__ Word Rounded() const {
    const auto pack = [](float x, float y) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
      uint32_t bits;
      memcpy(&bits, &pair, sizeof(bits));
      return bits;
    };
    return {pack(value[0], value[1]), pack(value[2], value[3])};
  }
};

// The mailbox of a rank is [phase 2][odd/even 2][from ranks][words].
struct Mail {
  const PeerBuffers& peers;
  uint32_t epoch;
  size_t words;  // max_bytes / sizeof(Word)

  __device__ Letter* Box(int of, int phase, int from, size_t index) const {
    const size_t slot =
        (static_cast<size_t>(phase) * 2 + (epoch & 1)) * peers.ranks + from;
    return static_cast<Letter*>(peers.mailbox[of]) + slot * words + index;
  }
};

// Each block counts the calls that it took part in; word i always falls to the
// same block (Blocks), here and on every peer, so the counts agree. Two of its
// calls apart a block's boxes are free again: the call between could only end
// after the peers' like blocks had begun it, hence ended the one before it.
__device__ uint32_t Epoch(const PeerBuffers& peers) {
  return peers.epochs[blockIdx.x] + 1;
}
__device__ void Finish(const PeerBuffers& peers, uint32_t epoch) {
  __syncthreads();
  if (threadIdx.x == 0) peers.epochs[blockIdx.x] = epoch;
}

__device__ size_t First() {
  return static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ size_t Step() { return static_cast<size_t>(gridDim.x) * kThreads; }

__global__ void __launch_bounds__(kThreads)
    OneShot(PeerBuffers peers, const Word* in, Word* out, size_t count) {
  const uint32_t epoch = Epoch(peers);
  const Mail mail{peers, epoch, peers.max_bytes / sizeof(Word)};
  for (size_t i = First(); i < count; i += Step()) {
    const Word own = in[i];
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int to = (peers.rank + hop) % peers.ranks;
      Post(mail.Box(to, 0, peers.rank, i), own, epoch);
    }
    Sum sum;
    for (int from = 0; from < peers.ranks; ++from) {
      sum.Add(from == peers.rank
                  ? own
                  : Await(mail.Box(peers.rank, 0, from, i), epoch));
    }
    out[i] = sum.Rounded();
  }
  Finish(peers, epoch);
}

__global__ void __launch_bounds__(kThreads)
    TwoShot(PeerBuffers peers, const Word* in, Word* out, size_t part) {
  const uint32_t epoch = Epoch(peers);
  const Mail mail{peers, epoch, peers.max_bytes / sizeof(Word)};
  const size_t own_part = peers.rank * part;
  for (size_t i = First(); i < part; i += Step()) {
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int to = (peers.rank + hop) % peers.ranks;
      Post(mail.Box(to, 0, peers.rank, i), in[to * part + i], epoch);
    }
    Sum sum;
    for (int from = 0; from < peers.ranks; ++from) {
      sum.Add(from == peers.rank
                  ? in[own_part + i]
                  : Await(mail.Box(peers.rank, 0, from, i), epoch));
    }
    const Word whole = sum.Rounded();
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int to = (peers.rank + hop) % peers.ranks;
      Post(mail.Box(to, 1, peers.rank, i), whole, epoch);
    }
    out[own_part + i] = whole;
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int from = (peers.rank + hop) % peers.ranks;
      out[from * part + i] = Await(mail.Box(peers.rank, 1, from, i), epoch);
    }
  }
  Finish(peers, epoch);
}

__global__ void __launch_bounds__(kThreads)
    AllToAll(PeerBuffers peers, const Word* in, Word* out, size_t part) {
  const uint32_t epoch = Epoch(peers);
  const Mail mail{peers, epoch, peers.max_bytes / sizeof(Word)};
  for (size_t i = First(); i < part; i += Step()) {
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int to = (peers.rank + hop) % peers.ranks;
      Post(mail.Box(to, 0, peers.rank, i), in[to * part + i], epoch);
    }
    out[peers.rank * part + i] = in[peers.rank * part + i];
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int from = (peers.rank + hop) % peers.ranks;
      out[from * part + i] = Await(mail.Box(peers.rank, 0, from, i), epoch);
    }
  }
  Finish(peers, epoch);
}

cudaError_t Check(const PeerBuffers& peers, int64_t count, int64_t unit) {
  if (peers.ranks < 2 || peers.ranks > kMaxPeers || count <= 0 ||
      count % unit != 0 ||
      static_cast<size_t>(count) * sizeof(__nv_bfloat16) > peers.max_bytes) {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

// Word i falls to block i / kThreads % kMaxExchangeBlocks whatever the count.
// All blocks are resident at once, as they must be to wait for one another.
int Blocks(size_t words) {
  return static_cast<int>(std::clamp<size_t>((words + kThreads - 1) / kThreads,
                                             1, kMaxExchangeBlocks));
}

constexpr int64_t kElementsPerWord = sizeof(Word) / sizeof(__nv_bfloat16);

}  // namespace

size_t MailboxBytes(int ranks, size_t max_bytes) {
  return 2 * 2 * static_cast<size_t>(ranks) * max_bytes * kFlagFactor;
}

cudaError_t LaunchOneShotAllReduce(const PeerBuffers& peers,
                                   const __nv_bfloat16* in, __nv_bfloat16* out,
                                   int64_t count, cudaStream_t stream) {
  if (cudaError_t error = Check(peers, count, kElementsPerWord);
      error != cudaSuccess) {
    return error;
  }
  const auto words = static_cast<size_t>(count / kElementsPerWord);
  OneShot<<<Blocks(words), kThreads, 0, stream>>>(
      peers, reinterpret_cast<const Word*>(in), reinterpret_cast<Word*>(out),
      words);
  return cudaGetLastError();
}

cudaError_t LaunchTwoShotAllReduce(const PeerBuffers& peers,
                                   const __nv_bfloat16* in, __nv_bfloat16* out,
                                   int64_t count, cudaStream_t stream) {
  const int64_t unit = kElementsPerWord * peers.ranks;
  if (cudaError_t error = Check(peers, count, unit); error != cudaSuccess) {
    return error;
  }
  const auto part = static_cast<size_t>(count / unit);
  TwoShot<<<Blocks(part), kThreads, 0, stream>>>(
      peers, reinterpret_cast<const Word*>(in), reinterpret_cast<Word*>(out),
      part);
  return cudaGetLastError();
}

cudaError_t LaunchDirectAllToAll(const PeerBuffers& peers,
                                 const __nv_bfloat16* in, __nv_bfloat16* out,
                                 int64_t count, cudaStream_t stream) {
  const int64_t unit = kElementsPerWord * peers.ranks;
  if (cudaError_t error = Check(peers, count, unit); error != cudaSuccess) {
    return error;
  }
  const auto part = static_cast<size_t>(count / unit);
  AllToAll<<<Blocks(part), kThreads, 0, stream>>>(
      peers, reinterpret_cast<const Word*>(in), reinterpret_cast<Word*>(out),
      part);
  return cudaGetLastError();
}

}  // namespace fabricwise
