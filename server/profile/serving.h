// SPDX-License-Identifier: Apache-2.0
//
// Collectives as serving sees them: at its sizes, in its tokens, and beside
// what another node of the kind does.
#pragma once

#include <cstdint>
#include <vector>

#include "server/profile/curve.h"
#include "server/profile/profile.h"

namespace fabricwise {

// Message sizes at which serving lives.
inline constexpr int64_t kServingSizesBytes[] = {4 << 10,   16 << 10, 64 << 10,
                                                 256 << 10, 1 << 20,  4 << 20};

// Size of a collective (nccl-tests semantics) over bytes on the wire: what a
// rank's link carries, as nccl-tests' "bus bandwidth" has it.
double BusFactor(CollectiveOp op, int group_size);

// Size, in bytes, of a collective that carries one token of bf16 activations:
// of all_reduce and send_recv one token; of all_gather and reduce_scatter one
// of all ranks together; of all_to_all one per rank, sent to every peer.
double BytesPerToken(CollectiveOp op, int group_size, int64_t hidden_size);

// A curve over a reference's: the median of the ratios of times at the serving
// sizes that both reach. Over 1: slower than the reference.
struct ReferenceRatio {
  CurveKey key;
  double ratio = 1;
};

// Of the curves that both have, by key.
std::vector<ReferenceRatio> CompareCurves(const Profile& profile,
                                          const Profile& reference);

}  // namespace fabricwise
