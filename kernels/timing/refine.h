// SPDX-License-Identifier: Apache-2.0
//
// Which sizes of a curve to measure next. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace fabricwise {

struct RefineRule {
  // A midpoint that the neighbours predict to within this is left at that.
  double tolerated_miss = 0.05;
  // A segment on which each doubling costs more than this is a cliff, ...
  double cliff_per_doubling = 2.2;
  // ... and is split until its ends are at most this factor apart.
  double cliff_factor = 1.25;
  int64_t grain_bytes = 16;  // sizes are multiples of this
};

// Measured so far, by size; the coarse sizes come first. Splits a segment where
// its slope jumps against a neighbour's or where it is a cliff; a midpoint that
// was predicted well ends the splitting of its halves.
class CurveRefiner {
 public:
  explicit CurveRefiner(const RefineRule& rule) : rule_(rule) {}

  // `seconds` at `size`; both positive.
  void Add(int64_t size, double seconds);

  // The size that would tell most, or nullopt: all is told.
  std::optional<int64_t> Next() const;

 private:
  struct Point {
    double seconds = 0;
    double miss = 1;  // of the prediction when it was added; 1: not predicted
  };
  RefineRule rule_;
  std::map<int64_t, Point> points_;
};

}  // namespace fabricwise
