// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/request_metrics.h"

#include <algorithm>
#include <utility>

namespace fabricwise {

RequestMetrics::RequestMetrics(std::vector<std::string> methods)
    : methods_(std::move(methods)),
      counters_(std::make_unique<Counters[]>(methods_.size() + 1)) {}

void RequestMetrics::Record(absl::string_view method, absl::StatusCode code,
                            absl::Duration duration, bool cached) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const auto name = std::find(methods_.begin(), methods_.end(), method);
  Counters& c = counters_[static_cast<size_t>(name - methods_.begin())];
  const int number = static_cast<int>(code);
  const bool known = number >= 0 && number < kStatusCodeCount;
  const auto index = static_cast<size_t>(
      known ? number : static_cast<int>(absl::StatusCode::kUnknown));
  c.by_code[index].fetch_add(1, kRelaxed);
  const double seconds = absl::ToDoubleSeconds(duration);
  const auto bound = std::lower_bound(kDurationBoundsSeconds.begin(),
                                      kDurationBoundsSeconds.end(), seconds);
  c.by_duration[static_cast<size_t>(bound - kDurationBoundsSeconds.begin())]
      .fetch_add(1, kRelaxed);
  c.total_nanoseconds.fetch_add(absl::ToInt64Nanoseconds(duration), kRelaxed);
  if (cached) c.cached.fetch_add(1, kRelaxed);
}

std::vector<MethodCounts> RequestMetrics::Counts() const {
  std::vector<MethodCounts> all;
  for (size_t m = 0; m <= methods_.size(); ++m) {
    const Counters& c = counters_[m];
    MethodCounts& counts = all.emplace_back();
    counts.method = m < methods_.size() ? methods_[m] : "other";
    std::copy(c.by_code.begin(), c.by_code.end(), counts.by_code.begin());
    std::copy(c.by_duration.begin(), c.by_duration.end(),
              counts.by_duration.begin());
    counts.total_duration = absl::Nanoseconds(c.total_nanoseconds.load());
    counts.cached = c.cached;
  }
  return all;
}

}  // namespace fabricwise
