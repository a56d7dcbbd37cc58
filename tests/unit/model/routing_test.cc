// SPDX-License-Identifier: Apache-2.0
#include "server/model/routing.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

struct Case {
  int64_t experts, top_k;
  int ranks;
  int64_t tokens;
  double skew;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.experts << " experts, top " << c.top_k << ", " << c.ranks
             << " ranks, " << c.tokens << " tokens, skew " << c.skew;
}

RoutingLoad Expected(const Case& c) {
  return ExpectedRouting(c.experts, c.top_k, c.ranks, c.tokens, c.skew);
}

// Mean over trials, and the standard deviation of that mean.
class Sample {
 public:
  void Add(double value) {
    sum_ += value;
    squares_ += value * value;
    ++count_;
  }
  double Mean() const { return sum_ / count_; }
  double Error() const {
    const double mean = Mean();
    return std::sqrt(std::max(0.0, squares_ / count_ - mean * mean) / count_);
  }

 private:
  double sum_ = 0, squares_ = 0, count_ = 0;
};

struct Simulated {
  Sample mean_hit, max_rows, max_hit;
};

// Draws the experts of one token.
class Router {
 public:
  Router(const Case& c, std::mt19937& random)
      : c_(c), random_(random), drawn_(static_cast<size_t>(c.top_k)) {
    if (c.skew > 0) Prepare();
  }

  const std::vector<size_t>& Draw() {
    const auto experts = static_cast<size_t>(c_.experts);
    if (c_.skew <= 0) {
      for (size_t i = 0; i < drawn_.size();) {
        drawn_[i] = random_() % experts;
        const auto end = drawn_.begin() + static_cast<std::ptrdiff_t>(i);
        if (std::find(drawn_.begin(), end, drawn_[i]) == end) ++i;
      }
      return drawn_;
    }
    // Systematic sampling: with the experts' chances laid end to end, one at
    // every whole number past a random start. Each comes in by its own chance.
    const Order& order = orders_[random_() % orders_.size()];
    const double start = static_cast<double>(random_()) / 4294967296.0;
    for (size_t i = 0; i < drawn_.size(); ++i) {
      const auto place =
          std::upper_bound(order.cumulative.begin(), order.cumulative.end() - 1,
                           start + static_cast<double>(i)) -
          order.cumulative.begin();
      drawn_[i] = order.expert[static_cast<size_t>(place)];
    }
    return drawn_;
  }

 private:
  struct Order {
    std::vector<size_t> expert;
    std::vector<double> cumulative;
  };

  // Chances proportional to rank^-skew, none above 1, top_k in all.
  void Prepare() {
    const auto experts = static_cast<size_t>(c_.experts);
    std::vector<double> chance(experts);
    double scale = 0;
    const auto total = [&] {
      double sum = 0;
      for (size_t i = 0; i < experts; ++i) {
        chance[i] = std::min(
            1.0, scale * std::pow(static_cast<double>(i + 1), -c_.skew));
        sum += chance[i];
      }
      return sum;
    };
    double low = 0, high = std::pow(static_cast<double>(experts), c_.skew);
    for (int i = 0; i < 60; ++i) {
      scale = (low + high) / 2;
      (total() < static_cast<double>(c_.top_k) ? low : high) = scale;
    }
    constexpr int kOrders = 64;
    std::vector<size_t> expert(experts);
    std::iota(expert.begin(), expert.end(), size_t{0});
    for (int i = 0; i < kOrders; ++i) {
      std::shuffle(expert.begin(), expert.end(), random_);
      Order& order = orders_.emplace_back(Order{expert, {}});
      double sum = 0;
      for (size_t e : expert) order.cumulative.push_back(sum += chance[e]);
    }
  }

  const Case& c_;
  std::mt19937& random_;
  std::vector<size_t> drawn_;
  std::vector<Order> orders_;
};

// Routes tokens for real; experts lie on ranks in a new random order in each
// trial.
Simulated Simulate(const Case& c, int64_t trials, std::mt19937& random) {
  const auto experts = static_cast<size_t>(c.experts);
  std::vector<size_t> rank_of(experts);
  for (size_t i = 0; i < experts; ++i) {
    rank_of[i] = i * static_cast<size_t>(c.ranks) / experts;
  }
  Router router(c, random);
  Simulated result;
  for (int64_t trial = 0; trial < trials; ++trial) {
    if (c.skew > 0) std::shuffle(rank_of.begin(), rank_of.end(), random);
    std::vector<bool> seen(experts);
    std::vector<int> rows(static_cast<size_t>(c.ranks)), hit(rows.size());
    for (int64_t token = 0; token < c.tokens; ++token) {
      for (size_t expert : router.Draw()) {
        ++rows[rank_of[expert]];
        if (!seen[expert]) ++hit[rank_of[expert]];
        seen[expert] = true;
      }
    }
    result.max_rows.Add(*std::max_element(rows.begin(), rows.end()));
    result.max_hit.Add(*std::max_element(hit.begin(), hit.end()));
    result.mean_hit.Add(std::accumulate(hit.begin(), hit.end(), 0.0) / c.ranks);
  }
  return result;
}

// Largest relative error against simulation beyond four standard errors of
// the simulation, over `cases`.
double WorstError(const std::vector<Case>& cases, int64_t most_trials) {
  std::mt19937 random(7);
  double worst = 0;
  for (const Case& c : cases) {
    const RoutingLoad load = Expected(c);
    // Few tokens scatter most.
    const int64_t trials =
        std::clamp<int64_t>(20'000 / (c.tokens * c.top_k), 100, most_trials);
    const Simulated seen = Simulate(c, trials, random);
    const auto check = [&](const char* what, double predicted,
                           const Sample& sample, double allowed) {
      const double error = std::max(0.0, std::abs(predicted - sample.Mean()) -
                                             4 * sample.Error()) /
                           sample.Mean();
      worst = std::max(worst, error);
      EXPECT_LE(error, allowed)
          << what << " of " << c << ": predicted " << predicted
          << ", simulated " << sample.Mean() << " +- " << sample.Error();
    };
    check("max_rows", load.max_rows, seen.max_rows, load.relative_error);
    check("max_hit", load.max_hit, seen.max_hit, load.relative_error);
    check("mean_hit", load.mean_hit, seen.mean_hit, load.relative_error / 10);
  }
  return worst;
}

std::vector<Case> Cases(const std::vector<double>& skews) {
  std::vector<Case> cases;
  for (double skew : skews) {
    for (int ranks : {2, 4, 8}) {
      for (int64_t experts : {8, 64, 128, 384, 512}) {
        for (int64_t top_k : {1, 2, 4, 8}) {
          if (2 * top_k > experts) continue;
          for (int64_t tokens : {1, 2, 8, 32, 256}) {
            cases.push_back({experts, top_k, ranks, tokens, skew});
          }
        }
      }
    }
  }
  return cases;
}

TEST(Routing, UniformIsWithinItsStatedErrorOfSimulation) {
  const double worst = WorstError(Cases({0}), 4000);
  std::cout << "worst error, uniform: " << worst << "\n";
  RecordProperty("worst_error_percent", static_cast<int>(100 * worst));
}

TEST(Routing, SkewedIsWithinItsStatedErrorOfSimulation) {
  const double worst = WorstError(Cases({0.5, 1.2}), 1000);
  std::cout << "worst error, skewed: " << worst << "\n";
  RecordProperty("worst_error_percent", static_cast<int>(100 * worst));
}

// One token and two ranks: how many of its top_k experts are on the first is a
// hypergeometric variable.
TEST(Routing, OfOneTokenIsWithinItsStatedErrorOfTheExactValue) {
  const auto choose = [](int64_t n, int64_t k) {
    double result = 1;
    for (int64_t i = 1; i <= k; ++i) {
      result *= static_cast<double>(n - k + i) / static_cast<double>(i);
    }
    return k < 0 || k > n ? 0 : result;
  };
  for (int64_t experts : {8, 16, 64, 128, 512}) {
    for (int64_t top_k = 1; top_k <= 8; ++top_k) {
      double exact = 0;
      for (int64_t first = 0; first <= top_k; ++first) {
        exact += choose(experts / 2, first) *
                 choose(experts / 2, top_k - first) / choose(experts, top_k) *
                 static_cast<double>(std::max(first, top_k - first));
      }
      const RoutingLoad load = ExpectedRouting(experts, top_k, 2, 1, 0);
      EXPECT_NEAR(load.max_rows / exact, 1, load.relative_error)
          << experts << " experts, top " << top_k;
      EXPECT_NEAR(load.max_hit / exact, 1, load.relative_error)
          << experts << " experts, top " << top_k;
    }
  }
}

TEST(Routing, WithoutParallelismIsTheMean) {
  const RoutingLoad load = ExpectedRouting(128, 8, 1, 32, 0);
  EXPECT_EQ(load.mean_rows, 256);
  EXPECT_EQ(load.max_rows, 256);
  EXPECT_NEAR(load.mean_hit, 128 * (1 - std::pow(1 - 8. / 128, 32)), 1e-9);
  EXPECT_EQ(load.max_hit, load.mean_hit);
  EXPECT_EQ(load.relative_error, 0);
  EXPECT_NEAR(ExpectedRouting(128, 8, 1, 32, 1).max_rows, 256, 1e-9);
}

TEST(Routing, ToAllExpertsIsEven) {
  for (double skew : {0.0, 1.0}) {
    const RoutingLoad load = ExpectedRouting(8, 8, 4, 5, skew);
    EXPECT_DOUBLE_EQ(load.max_rows, 10);
    EXPECT_DOUBLE_EQ(load.mean_rows, 10);
    EXPECT_DOUBLE_EQ(load.max_hit, 2);
  }
}

TEST(Routing, StaysWithinWhatIsPossible) {
  std::mt19937 random(11);
  for (int i = 0; i < 4000; ++i) {
    Case c;
    c.experts = 1 + static_cast<int64_t>(random() % 512);
    c.top_k = 1 + static_cast<int64_t>(random()) % c.experts;
    c.ranks = 1 + static_cast<int>(
                      random() %
                      std::min<uint64_t>(8, static_cast<uint64_t>(c.experts)));
    c.tokens = int64_t{1} << (random() % 24);
    c.skew = i % 2 == 0 ? 0 : 0.1 * static_cast<double>(random() % 20);
    const RoutingLoad load = Expected(c);
    const auto tokens = static_cast<double>(c.tokens);
    const auto most_experts =
        static_cast<double>((c.experts + c.ranks - 1) / c.ranks);
    constexpr double kRound = 1 + 1e-9;
    EXPECT_GE(load.max_rows * kRound, load.mean_rows) << c;
    EXPECT_GE(load.max_hit * kRound, load.mean_hit) << c;
    EXPECT_LE(load.max_hit, most_experts * kRound) << c;
    EXPECT_LE(load.max_hit, load.max_rows * kRound) << c;
    EXPECT_LE(
        load.max_rows,
        tokens * std::min(static_cast<double>(c.top_k), most_experts) * kRound)
        << c;
    EXPECT_GE(load.max_hit, 1 / kRound) << c;
    EXPECT_NEAR(load.mean_rows * c.ranks, tokens * static_cast<double>(c.top_k),
                1e-6 * tokens)
        << c;
  }
}

TEST(Routing, GrowsWithTokens) {
  for (double skew : {0.0, 1.0}) {
    for (int ranks : {1, 2, 4, 8}) {
      RoutingLoad before;
      for (int64_t tokens = 1; tokens <= 4096;
           tokens += std::max<int64_t>(1, tokens / 7)) {
        const RoutingLoad load = ExpectedRouting(128, 8, ranks, tokens, skew);
        // The two ways to a maximum meet within a percent.
        constexpr double kSeam = 0.99;
        EXPECT_GE(load.max_rows, kSeam * before.max_rows)
            << tokens << " tokens, " << ranks << " ranks, skew " << skew;
        EXPECT_GE(load.max_hit, kSeam * before.max_hit)
            << tokens << " tokens, " << ranks << " ranks, skew " << skew;
        before = load;
      }
    }
  }
}

TEST(Routing, SkewLoadsTheFullestRankMoreAndHitsFewerExperts) {
  const RoutingLoad even = ExpectedRouting(128, 8, 8, 32, 0);
  const RoutingLoad skewed = ExpectedRouting(128, 8, 8, 32, 1);
  EXPECT_GT(skewed.max_rows, 1.2 * even.max_rows);
  EXPECT_LT(skewed.mean_hit, even.mean_hit);
  EXPECT_DOUBLE_EQ(skewed.mean_rows, even.mean_rows);
}

TEST(Routing, IsTheSameEveryTime) {
  const RoutingLoad first = ExpectedRouting(384, 8, 8, 64, 0.7);
  const RoutingLoad second = ExpectedRouting(384, 8, 8, 64, 0.7);
  EXPECT_EQ(first.max_rows, second.max_rows);
  EXPECT_EQ(first.max_hit, second.max_hit);
}

}  // namespace
}  // namespace fabricwise
