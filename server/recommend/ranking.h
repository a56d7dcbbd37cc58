// SPDX-License-Identifier: Apache-2.0
//
// Which of several plans stands first at one concurrency, and where, over
// concurrency, that changes. Knows no model: plans are told by their scores.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "server/domain/plan.h"

namespace fabricwise {

// Two plans within this of each other are equal: runs of one benchmark on one
// idle machine differ by as much.
inline constexpr double kTieRatio = 0.01;

// What another plan must be better by before the running one is left: between
// the noise of repeated serving benchmarks of one configuration (2 to 8 %) and
// gains that are worth a restart.
inline constexpr double kSwitchMargin = 0.05;

// Parts of a contestant's time that others may have in common with it.
inline constexpr size_t kScoreParts = 5;

struct Contestant {
  Plan plan;
  int gpus = 1;
  int complexity = 0;
  bool running = false;  // now, on the node that asks
  // Contestants with equal numbers of a part take the same time for it at
  // every concurrency; 0: nothing is known of that.
  std::array<int, kScoreParts> parts = {};
  // Index of one that takes no longer than this anywhere, but for kFall: the
  // same on more replicas. nullopt: none is known.
  std::optional<size_t> faster;
};

// Of one contestant at one concurrency.
struct Score {
  bool runs = false;    // it fits, and its time is known
  bool misses = false;  // a limit
  double seconds = 0;   // of what is to be short, for the same work as others
  std::array<double, kScoreParts> part_seconds =
      {};  // together at most seconds
};

// Index of the first; nullopt: none runs. Those that miss no limit stand before
// those that do. Of all within a tie of the shortest: fewest GPUs, then the
// simplest, then the shortest, then the earliest of them. But one of the plan
// `held`, if any, where it is within a tie, and the running one, where it is
// within the margin. `scores` is parallel to `contestants`.
std::optional<size_t> First(absl::Span<const Contestant> contestants,
                            absl::Span<const Score> scores,
                            const Plan* held = nullptr);

// From `concurrency` on `to` stands first, just below `from` did; nullopt:
// none runs there.
struct Change {
  int64_t concurrency = 0;
  std::optional<size_t> from, to;
};

// What the search for changes takes for granted, so that it need not look at
// every concurrency; all of it is about noise and roundings, which the curves
// of a node have, and none about what is faster.
//
// Between two neighbouring concurrencies that are looked at, two contestants'
// times, without what they have in common, move apart or together by no more
// than this part of the relative distance of the two: 5 % over a doubling, half
// a per mille over one hundredth.
inline constexpr double kStray = 0.05;
// No time is less than 1 / kFall of that at a lower concurrency.
inline constexpr double kFall = 1.05;
// The search goes down to single sequences up to this concurrency, and above
// it to stretches of one part in as many.
inline constexpr int64_t kFinestStretch = 256;
// All contestants that come into question are looked at when concurrency has
// grown by this factor. A power of two, so that plans of 2, 4, 8 replicas are
// asked for as many sequences of one replica as others were before.
inline constexpr int64_t kLookFactor = 4;

// The concurrencies in (low, high] at which the plan of the first changes,
// ascending, where the first of each is told with that of the one below held:
// equals do not take turns. `score` is asked for as few as possible. Two
// contestants of one plan are one here. Where the above holds, and every
// contestant runs at one unbroken range of concurrencies that has `low`, `low`
// times a power of kLookFactor or `high` in it, none is missed and each is
// placed to the very sequence. Where times dip or jump by more than that
// between two looks, a stretch of a few sequences in which another stands first
// may be missed, and a change within it misnamed. But at each of `asked`,
// ascending, what the changes lead to is the first.
std::vector<Change> FindChanges(
    absl::Span<const Contestant> contestants, int64_t low, int64_t high,
    absl::FunctionRef<Score(size_t contestant, int64_t concurrency)> score,
    absl::Span<const int64_t> asked = {});

}  // namespace fabricwise
