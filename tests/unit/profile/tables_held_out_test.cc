// SPDX-License-Identifier: Apache-2.0
//
// How far tables miss what was measured but kept from them, on a real node:
// the spread that they state must cover it. Skipped where the measurements are
// not at hand.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/profile/import.h"
#include "server/profile/tables.h"
#include "tests/support/read_file.h"

namespace fabricwise {
namespace {

constexpr char kFolder[] = "../shared/data/h200x2";

std::vector<Measurement> Load(const std::string& file) {
  const std::string path = std::string(kFolder) + "/" + file;
  Fingerprint node;
  node.gpus.assign(2, {.name = "NVIDIA H200"});
  auto data = AssembleProfile({.name = "h200", .fingerprint = node},
                              {{file, ReadWholeFile(path)}});
  EXPECT_TRUE(data.ok()) << data.status();
  return data.ok() ? data->measurements : std::vector<Measurement>();
}

// Misses of predictions in units of their stated sigma, and as ratios.
class Misses {
 public:
  void Add(const Estimate& estimate, double seconds) {
    const double miss = std::abs(std::log(estimate.seconds / seconds));
    misses_.push_back(miss);
    within_ += miss <= estimate.relative_sigma ? 1 : 0;
  }

  // Prints what was seen and answers the share within one sigma.
  double Report(const std::string& what) {
    std::sort(misses_.begin(), misses_.end());
    const auto quantile = [&](double share) {
      return 100 * misses_[static_cast<size_t>(
                       share * static_cast<double>(misses_.size() - 1))];
    };
    const double within = within_ / static_cast<double>(misses_.size());
    std::cout << what << ": " << misses_.size() << " predictions miss by "
              << quantile(0.5) << " % (median), " << quantile(0.683)
              << " % (one sigma), " << quantile(0.9) << " % (p90); "
              << 100 * within << " % are within their stated sigma\n";
    return within;
  }

 private:
  std::vector<double> misses_;
  double within_ = 0;
};

class TablesHeldOut : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) {
      GTEST_SKIP() << "no measurements at " << kFolder;
    }
  }
};

// At least this share within one sigma makes a stated spread honest: two
// thirds, as of a normal distribution.
constexpr double kWithinOneSigma = 2. / 3;

TEST_F(TablesHeldOut, ProductsBetweenMeasuredWeights) {
  const std::vector<Measurement> all = Load("gemm.csv");
  // Every second width is kept back, in n and in k.
  const std::set<int64_t> held = {1024, 4096, 8192};
  std::vector<Measurement> known, asked;
  for (const Measurement& measurement : all) {
    const auto& key = std::get<GemmKey>(measurement.key);
    const bool keep = held.contains(key.n) || held.contains(key.k);
    (keep ? asked : known).push_back(measurement);
  }
  ASSERT_FALSE(known.empty());
  const GemmTable table = GemmTable::Build(known);
  Misses misses;
  for (const Measurement& measurement : asked) {
    const auto& key = std::get<GemmKey>(measurement.key);
    const auto weight = table.ForWeight(key.format, static_cast<double>(key.n),
                                        static_cast<double>(key.k));
    ASSERT_TRUE(weight.has_value());
    const auto at = weight->At(static_cast<double>(key.m));
    ASSERT_TRUE(at.has_value());
    EXPECT_EQ(at->standing, Standing::kInterpolated);
    misses.Add(*at, measurement.statistics.median_seconds);
  }
  EXPECT_GE(misses.Report("products at every second n and k"), kWithinOneSigma);
}

// Predicts each run from all runs for which `apart` of the two keys holds.
double PredictExperts(
    const std::string& what,
    const std::function<bool(const ExpertsKey&, const ExpertsKey&)>& apart,
    std::optional<Standing> skipped = std::nullopt) {
  const std::vector<Measurement> all = Load("experts.csv");
  Misses misses;
  for (const Measurement& measurement : all) {
    const auto& key = std::get<ExpertsKey>(measurement.key);
    std::vector<Measurement> known;
    for (const Measurement& other : all) {
      if (apart(std::get<ExpertsKey>(other.key), key)) known.push_back(other);
    }
    const ExpertsTable table = ExpertsTable::Build(known);
    const auto shard =
        table.For({key.format, static_cast<double>(key.hidden_size),
                   static_cast<double>(key.intermediate_size / key.moe_tp),
                   static_cast<double>(key.num_experts / key.expert_parallel)});
    if (!shard.has_value()) continue;
    const auto at =
        shard->At(static_cast<double>(measurement.experts.rows_local),
                  static_cast<double>(measurement.experts.experts_hit));
    if (!at.has_value() || at->standing == skipped) continue;
    misses.Add(*at, measurement.statistics.median_seconds);
  }
  return misses.Report(what);
}

TEST_F(TablesHeldOut, ExpertsOfAShardFromAnotherShardOfAnyModel) {
  EXPECT_GE(PredictExperts("experts from other shards",
                           [](const ExpertsKey& other, const ExpertsKey& key) {
                             ExpertsKey same = key;
                             same.tokens = other.tokens;
                             return !(other == same);
                           }),
            kWithinOneSigma);
}

TEST_F(TablesHeldOut, ExpertsOfAModelFromOtherModels) {
  EXPECT_GE(PredictExperts("experts from other models",
                           [](const ExpertsKey& other, const ExpertsKey& key) {
                             return other.hidden_size != key.hidden_size ||
                                    other.intermediate_size !=
                                        key.intermediate_size ||
                                    other.num_experts != key.num_experts;
                           }),
            kWithinOneSigma);
}

bool OtherTokens(const ExpertsKey& other, const ExpertsKey& key) {
  return other.tokens != key.tokens;
}

TEST_F(TablesHeldOut, ExpertsBetweenRuns) {
  EXPECT_GE(PredictExperts("experts between runs", OtherTokens,
                           Standing::kExtrapolated),
            kWithinOneSigma);
}

TEST_F(TablesHeldOut, ExpertsBeyondRuns) {
  EXPECT_GE(PredictExperts("experts beyond runs", OtherTokens,
                           Standing::kInterpolated),
            kWithinOneSigma);
}

}  // namespace
}  // namespace fabricwise
