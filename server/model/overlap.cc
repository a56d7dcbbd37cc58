// SPDX-License-Identifier: Apache-2.0
#include "server/model/overlap.h"

#include <algorithm>
#include <cmath>

namespace fabricwise {

StepLoad HalfOf(const StepLoad& load, int attention_tp) {
  StepLoad half = load;
  half.rank_sequences = (load.rank_sequences + 1) / 2;
  half.prompt_tokens = std::ceil(load.prompt_tokens / 2);
  half.rank_tokens =
      static_cast<double>(half.rank_sequences) + half.prompt_tokens;
  half.slice_tokens = std::ceil(half.rank_tokens / attention_tp);
  if (load.rank_tokens > 0) {
    half.stage_tokens = load.stage_tokens * half.rank_tokens / load.rank_tokens;
  }
  return half;
}

Overlapped Overlap(double exchange_seconds, double rest_seconds,
                   double exchanges) {
  constexpr double kHalves = 2;
  const double longer = std::max(exchange_seconds, rest_seconds);
  const double shorter = std::min(exchange_seconds, rest_seconds);
  const double turn = shorter / std::max(1.0, exchanges);
  Overlapped result{.seconds = kHalves * longer + turn};
  const double shown = shorter > 0 ? turn / (kHalves * shorter) : 1;
  if (exchange_seconds <= rest_seconds) {
    result.exchange_shown = shown;
  } else {
    result.rest_shown = shown;
  }
  return result;
}

}  // namespace fabricwise
