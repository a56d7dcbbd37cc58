// SPDX-License-Identifier: Apache-2.0
#include "server/model/routing.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace fabricwise {
namespace {

// Worst relative error seen against simulation over 2 to 8 ranks, 8 to 512
// experts, 1 to 256 tokens (tests/unit/model/routing_test.cc asserts both).
constexpr double kUniformError = 0.08;
constexpr double kSkewedError = 0.15;

// Above this mean a binomial variable is close enough to a normal one.
constexpr double kNormalMean = 40;

// Placements of experts over which skewed routing is averaged, and the seed
// that makes them the same in every process.
constexpr int kPlacements = 8;
constexpr uint32_t kPlacementSeed = 20261129;

// A chance that no sum of some rows notices.
constexpr double kNegligible = 1e-12;

double Square(double x) { return x * x; }

double NormalDensity(double x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}

double NormalProbability(double x) { return std::erfc(-x / std::sqrt(2)) / 2; }

struct Moments {
  double mean = 0, variance = 0;
};

// The maximum of two independent normal variables, as a normal variable.
Moments Greater(const Moments& a, const Moments& b) {
  const double spread = std::sqrt(a.variance + b.variance);
  if (spread < 1e-12) return a.mean >= b.mean ? a : b;
  const double x = (a.mean - b.mean) / spread;
  const double above = NormalProbability(x), below = 1 - above;
  const double density = NormalDensity(x);
  const double mean = a.mean * above + b.mean * below + spread * density;
  const double square = (Square(a.mean) + a.variance) * above +
                        (Square(b.mean) + b.variance) * below +
                        (a.mean + b.mean) * spread * density;
  return {mean, std::max(0.0, square - Square(mean))};
}

// Expected maximum of `count` independent variables with these moments,
// binomial where small, else normal.
double ExpectedMaximum(const Moments& one, int count) {
  if (one.variance <= 1e-12 || one.mean <= 0) return one.mean;
  if (one.mean > kNormalMean || one.variance >= one.mean) {
    Moments greatest = one;
    // Tournament by halves: exact pairing for powers of two.
    int done = 1;
    while (done * 2 <= count) {
      greatest = Greater(greatest, greatest);
      done *= 2;
    }
    for (; done < count; ++done) greatest = Greater(greatest, one);
    return greatest.mean;
  }
  // n trials of probability p with n real: the mass at x follows from that at
  // x - 1 by (n - x + 1) / x * p / (1 - p), and ends where it turns negative.
  const double p = 1 - one.variance / one.mean;
  const double n = one.mean / p;
  double mass = std::exp(n * std::log1p(-p));
  double cumulative = 0, expected = 0;
  const double last = one.mean + 12 * std::sqrt(one.variance) + 2;
  for (double x = 0; x <= last; ++x) {
    if (x > 0) {
      const double left = n - x + 1;
      if (left <= 0) break;
      mass *= left / x * p / (1 - p);
    }
    cumulative = std::min(1.0, cumulative + mass);
    double all = cumulative;
    for (int i = 1; i < count; ++i) all *= cumulative;
    expected += 1 - all;
    // What follows is less by far than the rounding of what is summed.
    if (x > one.mean && 1 - all < kNegligible) break;
  }
  return expected;
}

RoutingLoad Uniform(double experts, double top_k, int ranks, double tokens) {
  RoutingLoad load;
  load.relative_error = ranks > 1 ? kUniformError : 0;
  const double count = ranks;
  const double local = experts / count;
  const double miss = std::exp(tokens * std::log1p(-top_k / experts));
  load.mean_rows = tokens * top_k / count;
  load.mean_hit = local * (1 - miss);
  load.max_rows = load.mean_rows;
  load.max_hit = load.mean_hit;
  if (ranks == 1 || top_k >= experts) return load;

  // Rows: hypergeometric per token; the sum over ranks is fixed, hence the
  // correlation -1 / (ranks - 1) and a spread wider by sqrt(n / (n - 1)).
  const Moments rows{load.mean_rows, load.mean_rows * (1 - 1 / count) *
                                         (experts - top_k) / (experts - 1)};
  load.max_rows = load.mean_rows + (ExpectedMaximum(rows, ranks) - rows.mean) *
                                       std::sqrt(count / (count - 1));
  load.max_rows = std::clamp(load.max_rows, std::ceil(load.mean_rows - 1e-9),
                             tokens * std::min(top_k, std::ceil(local)));

  // Hits: variance from the chance that a pair of experts is missed by all.
  const double pair_miss = std::pow(
      (experts - top_k) * (experts - top_k - 1) / (experts * (experts - 1)),
      tokens);
  const double pair_hit = 1 - 2 * miss + pair_miss;
  const auto variance = [&](double of) {
    return std::max(0.0, of * (1 - miss) + of * (of - 1) * pair_hit -
                             Square(of * (1 - miss)));
  };
  const Moments hit{load.mean_hit, variance(local)};
  if (hit.variance > 1e-12) {
    const double correlation = std::clamp(
        (variance(experts) / (count * hit.variance) - 1) / (count - 1),
        -1 / (count - 1), 1.0);
    load.max_hit = load.mean_hit + (ExpectedMaximum(hit, ranks) - hit.mean) *
                                       std::sqrt(1 - correlation);
  }
  load.max_hit = std::clamp(load.max_hit, std::max(load.mean_hit, 1.0),
                            std::min(local, load.max_rows));
  return load;
}

// Chance of each expert to be among the top_k of a token, popularity falling
// as rank^-skew, no chance above 1.
std::vector<double> Popularity(int64_t experts, double top_k, double skew) {
  std::vector<double> chance(static_cast<size_t>(experts));
  double total = 0;
  for (size_t i = 0; i < chance.size(); ++i) {
    chance[i] = std::pow(static_cast<double>(i + 1), -skew);
    total += chance[i];
  }
  // Chances over 1 are cut and their excess shared out among the rest; they
  // are sorted, so the cut ones are a prefix that only grows.
  size_t certain = 0;
  double left = top_k;
  while (certain < chance.size() && chance[certain] / total * left >= 1) {
    total -= chance[certain];
    left -= 1;
    chance[certain] = 1;
    ++certain;
  }
  for (size_t i = certain; i < chance.size(); ++i) chance[i] *= left / total;
  return chance;
}

RoutingLoad Skewed(int64_t experts, double top_k, int ranks, double tokens,
                   double skew) {
  RoutingLoad load;
  load.relative_error = ranks > 1 ? kSkewedError : 0;
  load.mean_rows = tokens * top_k / ranks;
  struct Expert {
    double chance = 0;
    double hit = 0;  // the chance that any of the tokens comes
  };
  std::vector<Expert> all;
  all.reserve(static_cast<size_t>(experts));
  for (double chance : Popularity(experts, top_k, skew)) {
    const double p = std::min(chance, 1 - 1e-12);
    all.push_back({p, -std::expm1(tokens * std::log1p(-p))});
    load.mean_hit += all.back().hit;
  }
  load.mean_hit /= ranks;
  std::mt19937 random(kPlacementSeed);
  for (int placement = 0; placement < kPlacements; ++placement) {
    // Fisher-Yates by hand: std::shuffle differs between libraries.
    for (size_t i = all.size() - 1; i > 0; --i) {
      std::swap(all[i], all[random() % (i + 1)]);
    }
    Moments rows, hit;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto begin = static_cast<size_t>(experts * rank / ranks);
      const auto end = static_cast<size_t>(experts * (rank + 1) / ranks);
      Moments own_rows, own_hit;
      for (size_t i = begin; i < end; ++i) {
        const auto [p, hit_chance] = all[i];
        own_rows.mean += tokens * p;
        own_rows.variance += tokens * p * (1 - p);
        own_hit.mean += hit_chance;
        own_hit.variance += hit_chance * (1 - hit_chance);
      }
      rows = rank == 0 ? own_rows : Greater(rows, own_rows);
      hit = rank == 0 ? own_hit : Greater(hit, own_hit);
    }
    load.max_rows += rows.mean / kPlacements;
    load.max_hit += hit.mean / kPlacements;
  }
  const double local = std::ceil(static_cast<double>(experts) / ranks);
  // Normal variables do not know that some rank has a whole row.
  load.max_rows = std::clamp(load.max_rows, std::ceil(load.mean_rows - 1e-9),
                             tokens * std::min(top_k, local));
  load.max_hit = std::clamp(load.max_hit, std::max(load.mean_hit, 1.0),
                            std::min(local, load.max_rows));
  return load;
}

}  // namespace

RoutingLoad ExpectedRouting(int64_t num_experts, int64_t experts_per_token,
                            int ranks, int64_t tokens, double skew) {
  const auto experts = static_cast<double>(num_experts);
  const auto top_k = static_cast<double>(experts_per_token);
  const auto count = static_cast<double>(tokens);
  if (skew <= 0 || experts_per_token >= num_experts) {
    return Uniform(experts, top_k, ranks, count);
  }
  return Skewed(num_experts, top_k, ranks, count, skew);
}

}  // namespace fabricwise
