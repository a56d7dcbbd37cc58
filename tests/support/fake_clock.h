// SPDX-License-Identifier: Apache-2.0
//
// A clock that stands still until it is told to go on.
#pragma once

#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"

namespace fabricwise {

// Thread-safe.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time now = absl::FromUnixSeconds(1'800'000'000))
      : now_(now) {}

  absl::Time Now() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }

  void Advance(absl::Duration by) {
    std::lock_guard lock(mutex_);
    now_ += by;
  }

 private:
  mutable std::mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fabricwise
