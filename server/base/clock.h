// SPDX-License-Identifier: Apache-2.0
//
// The time source that everything with a notion of "now" is given. Tests pass a
// FakeClock (tests/support/fake_clock.h); nothing else reads absl::Now().
#pragma once

#include "absl/time/time.h"

namespace fabricwise {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;

  // The process-wide wall clock. Never null, never destroyed.
  static const Clock* Real();
};

}  // namespace fabricwise
