// SPDX-License-Identifier: Apache-2.0
//
// A step in two half batches, of which one computes while the other's expert
// tokens travel (two-batch overlap, dual batch overlap).
#pragma once

#include "server/model/load.h"

namespace fabricwise {

// What one half carries, the larger one of an odd number; `attention_tp` ranks
// share its tokens. Rows that need logits stay together: the head runs once.
StepLoad HalfOf(const StepLoad& load, int attention_tp);

struct Overlapped {
  double seconds = 0;  // of both halves
  // Of what is hidden the part that shows, 0 to 1; of the other all does.
  double exchange_shown = 1, rest_shown = 1;
};

// Both halves' layers, where one takes `exchange_seconds` for its `exchanges`
// dispatches and combines and `rest_seconds` for all else. While one half does
// the one, the other does the other, so that the longer is waited for; at the
// beginning or end one turn of the shorter has nothing beside it:
//
//   2 max(exchange, rest) + min(exchange, rest) / exchanges
//
// What the two take from each other while they run at once is not counted.
Overlapped Overlap(double exchange_seconds, double rest_seconds,
                   double exchanges);

}  // namespace fabricwise
