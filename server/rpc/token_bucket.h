// SPDX-License-Identifier: Apache-2.0
//
// How often something may happen.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace fabricwise {

// Lets `per_minute` go in each minute on average, and as many at once after a
// minute without any. Not thread-safe.
class TokenBucket {
 public:
  // Full at first. `per_minute` >= 0; 0: no limit.
  explicit TokenBucket(int64_t per_minute);

  // Zero: one may go, and is counted. Else the time until one may; nothing is
  // counted. A `now` before an earlier one counts as that one.
  absl::Duration Take(absl::Time now);

  // From the next Take on; what was saved up stays, up to the new size.
  void SetRate(int64_t per_minute);

 private:
  int64_t per_minute_;
  double tokens_;
  absl::Time filled_ = absl::InfinitePast();  // the latest `now`
};

}  // namespace fabricwise
