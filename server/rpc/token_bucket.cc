// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/token_bucket.h"

#include <algorithm>

namespace fabricwise {

TokenBucket::TokenBucket(int64_t per_minute)
    : per_minute_(per_minute), tokens_(static_cast<double>(per_minute)) {}

absl::Duration TokenBucket::Take(absl::Time now) {
  if (per_minute_ == 0) return absl::ZeroDuration();
  const double size = static_cast<double>(per_minute_);
  if (now > filled_) {
    tokens_ = std::min(
        size,
        tokens_ + size * absl::FDivDuration(now - filled_, absl::Minutes(1)));
    filled_ = now;
  }
  if (tokens_ < 1) return absl::Minutes(1) * ((1 - tokens_) / size);
  tokens_ -= 1;
  return absl::ZeroDuration();
}

void TokenBucket::SetRate(int64_t per_minute) {
  // Who had no limit has saved up all there may be.
  tokens_ = per_minute_ == 0
                ? static_cast<double>(per_minute)
                : std::min(tokens_, static_cast<double>(per_minute));
  per_minute_ = per_minute;
}

}  // namespace fabricwise
