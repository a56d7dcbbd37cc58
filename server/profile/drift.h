// SPDX-License-Identifier: Apache-2.0
//
// Whether a node is what it was: its newest measurements against those before.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/domain/stored_measurement.h"

namespace fabricwise {

// Faults of a fabric show in one of the two: a slower launch path or protocol
// in small messages, lost links or lanes in large ones.
enum class SizeBand {
  kAll,    // of what is no collective
  kSmall,  // up to kMostSmallBytes
  kLarge,
};

// Where the public NCCL curves leave their latency for their bandwidth.
inline constexpr int64_t kMostSmallBytes = 64 << 10;

// "all", "small", "large".
absl::string_view ToString(SizeBand band);

// One subject in its last run, over its own baseline.
struct Drift {
  // A collective's curve ("all_reduce/n2/nccl/graph"), or all products of a
  // format ("gemm/bf16"), and so on ("memory/read").
  std::string subject;
  SizeBand band = SizeBand::kAll;
  double ratio = 1;           // of times; over 1: slower than it was
  double relative_sigma = 0;  // of the ratio, were all as it was
  int point_count = 0;        // compared
  bool drifted = false;       // further from 1 than noise explains
};

// Fewer runs than these are no baseline.
inline constexpr int kLeastBaselineRuns = 3;
// Runs that a baseline is the median of: two and a half days of quick ones
// every four hours, so that a node that stays slow is the new normal after half
// of that.
inline constexpr int kMostBaselineRuns = 16;

// `history` is of one node as it is now, measured there, each key once. Of each
// key its newest run is compared with the median of up to kMostBaselineRuns
// before it; keys that were not in their subject's last run, or have no
// baseline, are left out, and so are subjects without any. By subject, then
// band.
//
// The ratio is the weighted median over the keys, so that one odd point moves
// nothing. Noise is what the runs themselves recorded (IQR) and how far earlier
// runs lay apart; the latter counts as common to all points of a run.
std::vector<Drift> FindDrift(absl::Span<const KeyHistory> history);

}  // namespace fabricwise
