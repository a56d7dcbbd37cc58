// SPDX-License-Identifier: Apache-2.0
#include "kernels/timing/stopping.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

// The spread is looked at each time the series has grown by this much; one that
// has not fallen by a tenth since the last look will not by waiting.
constexpr double kLookGrowth = 2;
constexpr double kStillFalling = 0.9;

}  // namespace

double Quantile(const std::vector<double>& ascending, double share) {
  const double place = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, ascending.size() - 1);
  const double weight = place - static_cast<double>(below);
  return ascending[below] * (1 - weight) + ascending[above] * weight;
}

void SampleSeries::Add(double seconds, double elapsed_seconds) {
  samples_.insert(std::upper_bound(samples_.begin(), samples_.end(), seconds),
                  seconds);
  Decide(elapsed_seconds);
}

void SampleSeries::Discard(const std::string& reason, double elapsed_seconds) {
  ++discarded_;
  discard_reason_ = reason;
  if (elapsed_seconds >= rule_.budget_seconds) {
    reason_ = StopReason::kOutOfBudget;
  }
}

void SampleSeries::Decide(double elapsed_seconds) {
  const size_t count = samples_.size();
  if (count >= static_cast<size_t>(rule_.min_samples)) {
    const double spread =
        (Quantile(samples_, 0.75) - Quantile(samples_, 0.25)) /
        Quantile(samples_, 0.5);
    if (spread <= rule_.target_relative_iqr) {
      reason_ = StopReason::kGood;
      return;
    }
    if (last_spread_ < 0) {
      last_spread_ = spread;
      last_look_ = count;
    } else if (static_cast<double>(count) >=
               kLookGrowth * static_cast<double>(last_look_)) {
      if (spread > kStillFalling * last_spread_) {
        reason_ = StopReason::kSettledNoisy;
        return;
      }
      last_spread_ = spread;
      last_look_ = count;
    }
  }
  if (count >= static_cast<size_t>(rule_.max_samples) ||
      elapsed_seconds >= rule_.budget_seconds) {
    reason_ = StopReason::kOutOfBudget;
  }
}

Statistics SampleSeries::Summary() const {
  Statistics statistics{.samples = static_cast<int64_t>(samples_.size()),
                        .discarded = discarded_,
                        .discard_reason = discard_reason_,
                        .stop_reason = reason_};
  if (samples_.empty()) return statistics;
  statistics.median_seconds = Quantile(samples_, 0.5);
  statistics.iqr_seconds = Quantile(samples_, 0.75) - Quantile(samples_, 0.25);
  statistics.p99_seconds = Quantile(samples_, 0.99);
  return statistics;
}

absl::StatusOr<Statistics> Difference(const Statistics& both,
                                      const Statistics& alone) {
  Statistics left = both;
  left.median_seconds = both.median_seconds - alone.median_seconds;
  if (left.median_seconds <= 0) {
    return absl::AbortedError(absl::StrCat(both.median_seconds, " s together, ",
                                           alone.median_seconds,
                                           " s without: nothing is left"));
  }
  left.iqr_seconds = std::hypot(both.iqr_seconds, alone.iqr_seconds);
  left.p99_seconds =
      std::max(left.median_seconds, both.p99_seconds - alone.median_seconds);
  left.stop_reason = std::max(both.stop_reason, alone.stop_reason);
  left.verified = both.verified && alone.verified;
  return left;
}

}  // namespace fabricwise
