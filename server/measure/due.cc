// SPDX-License-Identifier: Apache-2.0
#include "server/measure/due.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

// What a node may have saved up: a day's, so that a node that was busy for long
// with somebody else's jobs does not then measure for hours.
constexpr absl::Duration kMostIdleSaved = absl::Hours(24);

std::string InWords(absl::Duration duration) {
  return absl::FormatDuration(
      absl::Trunc(std::max(duration, absl::ZeroDuration()), absl::Seconds(1)));
}

}  // namespace

absl::string_view ToString(DueReason reason) {
  switch (reason) {
    case DueReason::kNewNode:
      return "new_node";
    case DueReason::kDrift:
      return "drift";
    case DueReason::kInterval:
      return "interval";
  }
  return "";
}

absl::string_view ToString(SkipReason reason) {
  switch (reason) {
    case SkipReason::kNotDue:
      return "not_due";
    case SkipReason::kBusy:
      return "busy";
    case SkipReason::kOverBudget:
      return "over_budget";
    case SkipReason::kBackOff:
      return "backing_off";
  }
  return "";
}

absl::string_view ToString(RunVerdict verdict) {
  switch (verdict) {
    case RunVerdict::kKept:
      return "kept";
    case RunVerdict::kYielded:
      return "yielded";
    case RunVerdict::kCancelled:
      return "cancelled";
    case RunVerdict::kFailed:
      return "failed";
  }
  return "";
}

DueClock::DueClock(const DuePolicy& policy, uint64_t seed, absl::Duration now)
    : policy_(policy),
      random_(seed),
      next_quick_(now),
      next_full_(now),
      accrued_at_(now) {}

void DueClock::SetPolicy(const DuePolicy& policy) {
  next_quick_ += policy.quick_interval - policy_.quick_interval;
  next_full_ += policy.full_interval - policy_.full_interval;
  policy_ = policy;
}

DueClock::Decision DueClock::Decide(absl::Duration now) const {
  if (now < backoff_until_) {
    return {.skip = SkipReason::kBackOff,
            .look_again = backoff_until_,
            .text = absl::StrCat(failures_, " failures in a row; next try in ",
                                 InWords(backoff_until_ - now))};
  }
  if (fingerprint_id_.empty()) {
    return {.run = RunKind::kProbe,
            .due = DueReason::kNewNode,
            .text = "the node has not been looked at"};
  }
  if (!drifted_ && now < next_quick_ && now < next_full_) {
    const absl::Duration next = std::min(next_quick_, next_full_);
    return {.look_again = next,
            .text = absl::StrCat("next run in ", InWords(next - now))};
  }
  if (now < busy_until_) {
    return {.skip = SkipReason::kBusy,
            .look_again = busy_until_,
            .text = absl::StrCat("the GPUs were busy; next look in ",
                                 InWords(busy_until_ - now))};
  }
  if (drifted_) {
    return {.run = RunKind::kFull,
            .due = DueReason::kDrift,
            .text = "the last run differs from those before"};
  }
  // Something usable first, everything then.
  const RunKind kind = now >= next_quick_ ? RunKind::kQuick : RunKind::kFull;
  if (new_node_ && exempt_) {
    return {.run = kind,
            .due = DueReason::kNewNode,
            .text = "no measurements of the node as it is now"};
  }
  const absl::Duration credit = CreditAt(now);
  if (credit < absl::ZeroDuration()) {
    // When idle time will have paid, were it idle from now on.
    const absl::Duration wait =
        policy_.budget_ratio > 0 && gpu_count_ > 0
            ? -credit / (policy_.budget_ratio * gpu_count_)
            : policy_.full_interval;
    return {.skip = SkipReason::kOverBudget,
            .look_again = now + std::clamp(wait, policy_.busy_retry,
                                           policy_.full_interval),
            .text = absl::StrCat("the budget owes ", InWords(-credit),
                                 " of GPU time to the last runs")};
  }
  if (new_node_) {
    return {.run = kind,
            .due = DueReason::kNewNode,
            .text = "no measurements of the node, which changes often"};
  }
  // One full run does for a quick one that is due as well.
  return {.run = now >= next_full_ ? RunKind::kFull : kind,
          .due = DueReason::kInterval,
          .text = "the interval has passed"};
}

void DueClock::OnProbe(absl::Duration now, const std::string& fingerprint_id,
                       int gpu_count, bool busy,
                       std::optional<absl::Duration> quick_age,
                       std::optional<absl::Duration> full_age) {
  Accrue(now);
  idle_ = !busy;
  gpu_count_ = gpu_count;
  busy_until_ = busy ? now + policy_.busy_retry : now;
  if (fingerprint_id == fingerprint_id_) return;
  fingerprint_id_ = fingerprint_id;
  drifted_ = false;
  new_node_ = !quick_age.has_value();
  exempt_ = now - changed_at_ >= policy_.quick_interval;
  changed_at_ = now;
  const auto next = [&](std::optional<absl::Duration> age,
                        absl::Duration interval) {
    if (!age.has_value()) return now;
    // A wall clock that was set back makes ages negative.
    return now + Jittered(interval) - std::max(*age, absl::ZeroDuration());
  };
  next_quick_ = next(quick_age, policy_.quick_interval);
  next_full_ = next(full_age, policy_.full_interval);
}

void DueClock::OnDrift(absl::Duration now) {
  if (now - drift_at_ < policy_.quick_interval) return;
  drift_at_ = now;
  drifted_ = true;
}

void DueClock::OnRun(absl::Duration now, RunKind kind, RunVerdict verdict,
                     absl::Duration gpu_time) {
  Accrue(now);
  credit_ -= gpu_time;
  switch (verdict) {
    case RunVerdict::kKept:
      if (kind == RunKind::kProbe) return;
      failures_ = 0;
      next_quick_ = now + Jittered(policy_.quick_interval);
      if (kind == RunKind::kFull) {
        next_full_ = now + Jittered(policy_.full_interval);
        new_node_ = false;
        drifted_ = false;
      }
      return;
    case RunVerdict::kYielded:
      idle_ = false;
      busy_until_ = now + policy_.busy_retry;
      return;
    case RunVerdict::kCancelled:
      return;
    case RunVerdict::kFailed:
      OnFailure(now);
      return;
  }
}

void DueClock::OnFailure(absl::Duration now) {
  absl::Duration wait = policy_.first_backoff;
  for (int i = 0; i < failures_ && wait < policy_.most_backoff; ++i) wait *= 2;
  ++failures_;
  backoff_until_ = now + std::min(wait, policy_.most_backoff);
}

absl::Duration DueClock::CreditAt(absl::Duration now) const {
  if (!idle_) return credit_;
  const double rate = policy_.budget_ratio * gpu_count_;
  return std::min(credit_ + (now - accrued_at_) * rate, kMostIdleSaved * rate);
}

void DueClock::Accrue(absl::Duration now) {
  credit_ = CreditAt(now);
  accrued_at_ = now;
}

absl::Duration DueClock::Jittered(absl::Duration interval) {
  // splitmix64 (Steele, Lea, Flood 2014): one 64-bit state, well mixed.
  uint64_t x = random_ += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  constexpr double kTwoTo64 = 18446744073709551616.0;
  return interval *
         (1 + policy_.jitter_ratio * static_cast<double>(x) / kTwoTo64);
}

}  // namespace fabricwise
