// SPDX-License-Identifier: Apache-2.0
#include "server/base/clock.h"

#include "absl/time/clock.h"

namespace fabricwise {
namespace {

class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace

const Clock* Clock::Real() {
  static const RealClock clock;
  return &clock;
}

}  // namespace fabricwise
