// SPDX-License-Identifier: Apache-2.0
//
// Counts finished requests.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fabricwise {

// Upper bounds of the duration buckets, in seconds: three to four a decade
// where answers are meant to be (0.1 to 10 ms), coarse beyond.
inline constexpr std::array<double, 17> kDurationBoundsSeconds = {
    50e-6, 100e-6, 150e-6, 200e-6, 300e-6, 500e-6, 750e-6, 1e-3, 1.5e-3,
    2e-3,  3e-3,   5e-3,   7.5e-3, 10e-3,  30e-3,  100e-3, 1.0};

// Of a histogram over them: its buckets, the one of all, sum and count.
inline constexpr int kHistogramSeries =
    static_cast<int>(kDurationBoundsSeconds.size()) + 3;

// gRPC's codes: 0 to 16.
inline constexpr int kStatusCodeCount = 17;

// What was counted of one method.
struct MethodCounts {
  std::string method;
  std::array<int64_t, kStatusCodeCount> by_code{};
  // By bucket, not cumulated; the last is for what is over every bound.
  std::array<int64_t, kDurationBoundsSeconds.size() + 1> by_duration{};
  absl::Duration total_duration;
  int64_t cached = 0;
};

// Thread-safe and without locks: a few relaxed additions a request.
class RequestMetrics {
 public:
  // The names of all RPCs; one that is not among them counts as "other".
  explicit RequestMetrics(std::vector<std::string> methods);

  void Record(absl::string_view method, absl::StatusCode code,
              absl::Duration duration, bool cached);

  // Each method in the order given, then "other". Parts of a request that is
  // being recorded at this moment may be missing.
  std::vector<MethodCounts> Counts() const;

 private:
  // Kept off each other's cache lines.
  static constexpr size_t kCacheLineBytes = 64;
  struct alignas(kCacheLineBytes) Counters {
    std::array<std::atomic<int64_t>, kStatusCodeCount> by_code{};
    std::array<std::atomic<int64_t>, kDurationBoundsSeconds.size() + 1>
        by_duration{};
    std::atomic<int64_t> total_nanoseconds{0};
    std::atomic<int64_t> cached{0};
  };

  const std::vector<std::string> methods_;
  const std::unique_ptr<Counters[]> counters_;  // one more than methods_
};

}  // namespace fabricwise
