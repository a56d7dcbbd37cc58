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

// One call of one block: its letters and how many words it goes through.
struct Exchange {
  const PeerBuffers& peers;
  Mail mail;
  size_t words;  // of what this rank sends to each, or sums up

  // Does `each(i)` for this thread's words and counts the call.
  template <typename Each>
  __device__ void ForEach(Each each) const {
    for (size_t i = First(); i < words; i += Step()) each(i);
    Finish(peers, mail.epoch);
  }
  // To every peer in phase `phase`, beginning with the next one, so that no two
  // write to the same rank at once.
  template <typename WordFor>
  __device__ void PostToPeers(int phase, size_t i, WordFor word_for) const {
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int to = (peers.rank + hop) % peers.ranks;
      Post(mail.Box(to, phase, peers.rank, i), word_for(to), mail.epoch);
    }
  }
  __device__ Word AwaitFrom(int from, int phase, size_t i) const {
    return Await(mail.Box(peers.rank, phase, from, i), mail.epoch);
  }
  // Of this rank's `own` and what the others sent, in rank order.
  __device__ Word SumUp(Word own, size_t i) const {
    Sum sum;
    for (int from = 0; from < peers.ranks; ++from) {
      sum.Add(from == peers.rank ? own : AwaitFrom(from, 0, i));
    }
    return sum.Rounded();
  }
  // out[from, i] from every peer.
  __device__ void Collect(int phase, size_t i, Word* out) const {
    for (int hop = 1; hop < peers.ranks; ++hop) {
      const int from = (peers.rank + hop) % peers.ranks;
      out[from * words + i] = AwaitFrom(from, phase, i);
    }
  }
};

__device__ Exchange Begin(const PeerBuffers& peers, size_t words) {
  return {peers, {peers, Epoch(peers), peers.max_bytes / sizeof(Word)}, words};
}

__global__ void __launch_bounds__(kThreads)
    OneShot(PeerBuffers peers, const Word* in, Word* out, size_t count) {
  const Exchange exchange = Begin(peers, count);
  exchange.ForEach([&](size_t i) {
    const Word own = in[i];
    exchange.PostToPeers(0, i, [&](int) { return own; });
    out[i] = exchange.SumUp(own, i);
  });
}

__global__ void __launch_bounds__(kThreads)
    TwoShot(PeerBuffers peers, const Word* in, Word* out, size_t part) {
  const Exchange exchange = Begin(peers, part);
  const size_t own_part = peers.rank * part;
  exchange.ForEach([&](size_t i) {
    exchange.PostToPeers(0, i, [&](int to) { return in[to * part + i]; });
    const Word whole = exchange.SumUp(in[own_part + i], i);
    exchange.PostToPeers(1, i, [&](int) { return whole; });
    out[own_part + i] = whole;
    exchange.Collect(1, i, out);
  });
}

__global__ void __launch_bounds__(kThreads)
    AllToAll(PeerBuffers peers, const Word* in, Word* out, size_t part) {
  const Exchange exchange = Begin(peers, part);
  const size_t own_part = peers.rank * part;
  exchange.ForEach([&](size_t i) {
    exchange.PostToPeers(0, i, [&](int to) { return in[to * part + i]; });
    out[own_part + i] = in[own_part + i];
    exchange.Collect(0, i, out);
  });
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
