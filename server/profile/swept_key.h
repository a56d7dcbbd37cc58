// SPDX-License-Identifier: Apache-2.0
//
// Measurement keys as curves: the canonical text with its swept size apart.
#pragma once

#include <cstdint>
#include <string>

#include "server/domain/measurement.h"

namespace fabricwise {

struct SweptKey {
  // "all_reduce/n2/nccl/graph/*B", "gemm/bf16/m*n4096k2048"; without "*" where
  // nothing is swept ("launch/graph_node").
  std::string pattern;
  int64_t size = 0;

  friend auto operator<=>(const SweptKey&, const SweptKey&) = default;
};

// What is swept: bytes of collectives and memory, m of products, tokens of
// experts and exchanges, context of attention.
SweptKey SplitSweptSize(const MeasurementKey& key);

}  // namespace fabricwise
