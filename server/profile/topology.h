// SPDX-License-Identifier: Apache-2.0
//
// How well each two GPUs of a node are connected, as kinds of link from the
// best to the worst.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "server/domain/fingerprint.h"
#include "server/profile/curve.h"

namespace fabricwise {

// Immutable; safe to read from any thread.
class Topology {
 public:
  // Of no GPU.
  Topology() = default;

  // `pair_curve`: the curve of messages between the GPUs i and j, i < j; null
  // where it was not measured. Links are of one kind where, in this order,
  //   - messages take about as long (only where each pair was measured),
  //   - there are as many NVLinks, one way and the other,
  //   - both may or may not write to each other's memory,
  //   - without NVLink, both are or are not on one NUMA node.
  // What a fingerprint does not say makes no difference.
  static Topology Of(const Fingerprint& node,
                     absl::FunctionRef<const Curve*(int i, int j)> pair_curve);

  // Of `gpus` alone, each one of these once: its GPU i is gpus[i].
  Topology Among(absl::Span<const int> gpus) const;

  int gpu_count() const { return static_cast<int>(kinds_.size()); }
  // At most kMostKinds; the last is for all that are worse as well. 1: all
  // links are alike.
  int kind_count() const { return kind_count_; }
  // 0: the best; i != j; the same for (j, i).
  int Kind(int i, int j) const {
    return kinds_[static_cast<size_t>(i)][static_cast<size_t>(j)];
  }

  static constexpr int kMostKinds = 4;

 private:
  std::vector<std::vector<uint8_t>> kinds_;
  int kind_count_ = 1;
};

}  // namespace fabricwise
