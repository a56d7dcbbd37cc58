// SPDX-License-Identifier: Apache-2.0
//
// One part of a step's time, with what it rests on.
#pragma once

#include <string>

#include "server/profile/curve.h"

namespace fabricwise {

struct Term {
  std::string name;    // "all_reduce attention", "experts", "attention kv read"
  double seconds = 0;  // of all `count` occurrences in one step
  double count = 0;    // per step
  Standing standing = Standing::kMeasured;
  bool stated = false;  // by the engine or the asker, not measured
  std::string source;   // "all_reduce/n8/nccl/graph"
  double size = 0;      // asked of the source: bytes, or tokens
  double relative_sigma = 0;
  bool upper_bound = false;  // how much less it takes is not known
  std::string note;          // "stands in for ..."; empty: none
  bool communication = false;
};

}  // namespace fabricwise
