// SPDX-License-Identifier: Apache-2.0
#include "kernels/load/routing.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <utility>

namespace fabricwise {
namespace {

// In (0, 1). The library's own distributions differ between libraries.
double Uniform(std::mt19937_64& random) {
  constexpr int kSpareBits = 11;  // a double holds 53
  return (static_cast<double>(random() >> kSpareBits) + 0.5) * 0x1p-53;
}

// The first `count` places of `experts` become a uniform draw without repeats.
void Shuffle(std::vector<size_t>& experts, size_t count,
             std::mt19937_64& random) {
  for (size_t i = 0; i < count; ++i) {
    const auto left = static_cast<double>(experts.size() - i);
    std::swap(experts[i],
              experts[i + static_cast<size_t>(Uniform(random) * left)]);
  }
}

// Draws one token's experts after another.
class Router {
 public:
  Router(const RoutingDraw& draw, uint64_t seed)
      : top_k_(static_cast<size_t>(draw.experts_per_token)),
        random_(seed),
        experts_(static_cast<size_t>(draw.num_experts)) {
    std::iota(experts_.begin(), experts_.end(), size_t{0});
    if (draw.skew <= 0) return;
    std::vector<size_t> order = experts_;
    Shuffle(order, order.size(), random_);
    for (const size_t place : order) {
      log_weight_.push_back(-draw.skew *
                            std::log(static_cast<double>(place + 1)));
    }
    lateness_.resize(experts_.size());
  }

  // The experts of the next token stand in front of the answer.
  const std::vector<size_t>& Next() {
    if (log_weight_.empty()) {
      Shuffle(experts_, top_k_, random_);
      return experts_;
    }
    // Who rings first, at rates that are the weights: a draw without repeats,
    // in logarithms since weights may be beyond any double.
    for (size_t expert = 0; expert < lateness_.size(); ++expert) {
      lateness_[expert] =
          std::log(-std::log(Uniform(random_))) - log_weight_[expert];
    }
    std::partial_sort(experts_.begin(),
                      experts_.begin() + static_cast<std::ptrdiff_t>(top_k_),
                      experts_.end(), [&](size_t a, size_t b) {
                        return std::pair(lateness_[a], a) <
                               std::pair(lateness_[b], b);
                      });
    return experts_;
  }

 private:
  const size_t top_k_;
  std::mt19937_64 random_;
  std::vector<size_t> experts_;
  std::vector<double> log_weight_, lateness_;  // empty where all are alike
};

}  // namespace

std::vector<int64_t> DrawFullestRank(const RoutingDraw& draw, uint64_t seed) {
  Router router(draw, seed);
  std::vector<int64_t> copies(static_cast<size_t>(draw.num_experts), 0);
  for (int64_t token = 0; token < draw.tokens; ++token) {
    const std::vector<size_t>& chosen = router.Next();
    for (size_t i = 0; i < static_cast<size_t>(draw.experts_per_token); ++i) {
      ++copies[chosen[i]];
    }
  }
  const std::ptrdiff_t local = draw.num_experts / draw.ranks;
  auto fullest = copies.begin();
  int64_t most = 0;
  for (auto rank = copies.begin(); rank != copies.end(); rank += local) {
    const int64_t rows = std::accumulate(rank, rank + local, int64_t{0});
    if (rows > most) {
      most = rows;
      fullest = rank;
    }
  }
  std::vector<int64_t> hit;
  std::copy_if(fullest, fullest + local, std::back_inserter(hit),
               [](int64_t rows) { return rows > 0; });
  return hit;
}

std::vector<ExpertTile> CutIntoTiles(const std::vector<int64_t>& rows,
                                     int64_t columns, int tile_rows,
                                     int tile_columns) {
  std::vector<ExpertTile> tiles;
  int64_t begin = 0;
  for (size_t expert = 0; expert < rows.size(); ++expert) {
    const int64_t end = begin + rows[expert];
    for (int64_t column = 0; column < columns; column += tile_columns) {
      for (int64_t row = begin; row < end; row += tile_rows) {
        tiles.push_back({.expert = static_cast<int32_t>(expert),
                         .first_row = static_cast<int32_t>(row),
                         .rows = static_cast<int32_t>(
                             std::min<int64_t>(tile_rows, end - row)),
                         .first_column = static_cast<int32_t>(column)});
      }
    }
    begin = end;
  }
  return tiles;
}

}  // namespace fabricwise
