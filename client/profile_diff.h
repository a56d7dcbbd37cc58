// SPDX-License-Identifier: Apache-2.0
//
// What changed between two profiles.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/profile/profile.h"

namespace fabricwise {

// How one curve, or one kind of table entry, changed.
struct SeriesDiff {
  std::string name;           // "all_reduce/n2/nccl/graph", "gemm/bf16", ...
  int compared = 0;           // sizes that both know
  double typical_change = 0;  // geometric mean of second / first, less 1
  double worst_change = 0;    // farthest from 0 in the logarithm
  std::string worst_at;       // "16 KiB", "m16n4096k2048", ...
};

struct ProfileSide {
  std::string name;
  std::string fingerprint_id;
  absl::Time as_of;
};

struct ProfileDiff {
  ProfileSide first, second;
  // Parts of the fingerprint that differ: "fabric: nvlink -> shm".
  std::vector<std::string> node_changes;
  std::vector<SeriesDiff> series;  // curves, then tables, by name
  std::vector<std::string> only_first, only_second;
};

// Curves are compared at every size that one of them measured and that lies
// within the measured range of both; table entries where both have the key.
ProfileDiff Diff(const Profile& first, const Profile& second);

}  // namespace fabricwise
