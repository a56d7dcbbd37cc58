// SPDX-License-Identifier: Apache-2.0
#include "server/profile/tables.h"

#include <cmath>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

// Spread of every made-up point: an IQR of 1.349 % is a sigma of 1 %.
constexpr double kSigma = 0.01;

Measurement Measured(MeasurementKey key, double seconds,
                     Origin origin = Origin::kMeasured) {
  Measurement measurement;
  measurement.key = std::move(key);
  measurement.statistics.median_seconds = seconds;
  measurement.statistics.iqr_seconds = seconds * 1.349 * kSigma;
  measurement.origin = origin;
  return measurement;
}

MATCHER_P2(IsEstimate, seconds, standing, "") {
  return arg.has_value() && std::abs(arg->seconds / seconds - 1) < 1e-9 &&
         arg->standing == standing;
}

// ---- Products

// 1 us x (n / 1024)^a x (k / 1024)^b at any m: exact for log-linear lines.
Measurement Product(int64_t n, int64_t k, double a = 1, double b = 1,
                    NumberFormat format = NumberFormat::kBf16) {
  return Measured(GemmKey{format, 16, n, k},
                  1e-6 * std::pow(static_cast<double>(n) / 1024, a) *
                      std::pow(static_cast<double>(k) / 1024, b));
}

GemmTable Grid(double a = 1, double b = 1) {
  std::vector<Measurement> measurements;
  for (int64_t n : {1024, 4096, 8192}) {
    for (int64_t k : {1024, 2048}) {
      measurements.push_back(Product(n, k, a, b));
    }
  }
  return GemmTable::Build(measurements);
}

std::optional<Estimate> At(const GemmTable& table, double n, double k,
                           double m = 16) {
  const auto prepared = table.ForWeight(NumberFormat::kBf16, n, k);
  return prepared.has_value() ? prepared->At(m) : std::nullopt;
}

TEST(GemmTable, GivesMeasuredProductsBack) {
  const GemmTable table = Grid();
  const auto at = At(table, 4096, 2048);
  EXPECT_THAT(at, IsEstimate(8e-6, Standing::kMeasured));
  EXPECT_NEAR(at->relative_sigma, kSigma, 1e-6);
}

TEST(GemmTable, InterpolatesInLogSpace) {
  const GemmTable table = Grid(0.7, 0.4);
  for (const auto& [n, k] :
       {std::pair{2048., 1024.}, {4096., 1448.}, {1500., 1111.}}) {
    const auto at = At(table, n, k);
    EXPECT_THAT(
        at, IsEstimate(1e-6 * std::pow(n / 1024, 0.7) * std::pow(k / 1024, 0.4),
                       Standing::kInterpolated));
    EXPECT_GT(at->relative_sigma, 2 * kSigma);
  }
}

TEST(GemmTable, GoesOnInProportionBeyondTheLargest) {
  const GemmTable table = Grid(0.5, 0.5);
  const double corner = 1e-6 * std::sqrt(8 * 2);
  EXPECT_THAT(At(table, 16'384, 2048),
              IsEstimate(2 * corner, Standing::kExtrapolated));
  EXPECT_THAT(At(table, 16'384, 6144),
              IsEstimate(6 * corner, Standing::kExtrapolated));
  EXPECT_GT(At(table, 16'384, 2048)->relative_sigma,
            At(table, 6000, 2048)->relative_sigma);
}

TEST(GemmTable, StaysAtTheSmallestBelowIt) {
  const GemmTable table = Grid();
  EXPECT_THAT(At(table, 64, 1024), IsEstimate(1e-6, Standing::kExtrapolated));
  EXPECT_THAT(At(table, 64, 64), IsEstimate(1e-6, Standing::kExtrapolated));
  EXPECT_THAT(At(table, 64, 2048), IsEstimate(2e-6, Standing::kExtrapolated));
}

TEST(GemmTable, TakesTheNearestWhereTheGridHasAHole) {
  const GemmTable table = GemmTable::Build(
      {Product(1024, 1024), Product(4096, 1024), Product(1024, 4096)});
  // At (4096, 4096) nothing is measured: four times the work of the nearest.
  EXPECT_THAT(At(table, 4096, 4096),
              IsEstimate(16e-6, Standing::kExtrapolated));
  // Never less than the nearest itself.
  EXPECT_THAT(
      At(table, 1100, 2000),
      IsEstimate(1e-6 * 1100 * 2000 / (1024 * 1024), Standing::kExtrapolated));
  EXPECT_THAT(At(table, 1024, 1024), IsEstimate(1e-6, Standing::kMeasured));
}

TEST(GemmTable, AHoleIsFilledForAWeightOfNoWidthToo) {
  const GemmTable table =
      GemmTable::Build({Product(4096, 1024), Product(1024, 4096)});
  // As far from all: any will do.
  EXPECT_THAT(At(table, 0, 1024), IsEstimate(4e-6, Standing::kExtrapolated));
}

TEST(GemmTable, AnswersNothingOutsideTheReachOfItsRows) {
  const GemmTable table = Grid();
  EXPECT_FALSE(At(table, 1024, 1024, 16 * 4.01).has_value());
  EXPECT_FALSE(At(table, 2000, 1500, 16 / 64.1).has_value());
  EXPECT_FALSE(At(table, 99'999, 1500, 16 * 4.01).has_value());
}

TEST(GemmTable, KnowsFormatsApart) {
  const GemmTable table = Grid();
  EXPECT_TRUE(table.Has(NumberFormat::kBf16));
  EXPECT_FALSE(table.Has(NumberFormat::kFp8));
  EXPECT_FALSE(table.ForWeight(NumberFormat::kFp8, 1024, 1024).has_value());
  EXPECT_FALSE(table.empty());
  EXPECT_TRUE(GemmTable::Build({Measured(LaunchKey{}, 1e-6)}).empty());
}

TEST(GemmTable, PrefersPointsOfThisNode) {
  const auto at_m = [](int64_t m, double seconds, Origin origin) {
    return Measured(GemmKey{NumberFormat::kBf16, m, 512, 512}, seconds, origin);
  };
  std::vector<Measurement> measurements = {at_m(1, 1e-6, Origin::kReference),
                                           at_m(16, 2e-6, Origin::kMeasured),
                                           at_m(64, 9e-6, Origin::kReference)};
  const GemmTable mixed = GemmTable::Build(measurements);
  EXPECT_THAT(At(mixed, 512, 512, 16), IsEstimate(2e-6, Standing::kMeasured));
  EXPECT_THAT(At(mixed, 512, 512, 1),
              IsEstimate(2e-6, Standing::kExtrapolated));
  measurements.erase(measurements.begin() + 1);
  EXPECT_THAT(At(GemmTable::Build(measurements), 512, 512, 64),
              IsEstimate(9e-6, Standing::kReference));
}

// ---- Experts

ExpertsKey Shard(int64_t tokens, int64_t experts = 64) {
  return {.hidden_size = 1024,
          .intermediate_size = 512,
          .num_experts = experts,
          .experts_per_token = 4,
          .tokens = tokens};
}

// Time of a made-up kernel: 2 us, 1 us an expert hit, 10 ns a row.
double ExpertsSeconds(double rows, double hit) {
  return 2e-6 + 1e-6 * hit + 10e-9 * rows;
}

Measurement ExpertsRun(int64_t rows, int64_t hit,
                       Origin origin = Origin::kMeasured) {
  Measurement run = Measured(
      Shard(rows / 4),
      ExpertsSeconds(static_cast<double>(rows), static_cast<double>(hit)),
      origin);
  run.experts = {rows, hit};
  return run;
}

ExpertsTable Experts() {
  return ExpertsTable::Build({ExpertsRun(4, 4), ExpertsRun(64, 40),
                              ExpertsRun(256, 64), ExpertsRun(4096, 64)});
}

ExpertShard Asked(double intermediate = 512, double experts = 64,
                  WeightFormat format = {}) {
  return {format, 1024, intermediate, experts};
}

TEST(ExpertsTable, GivesTheVeryRunBack) {
  const ExpertsTable table = Experts();
  const auto shard = table.For(Asked());
  ASSERT_TRUE(shard.has_value());
  for (const auto& [rows, hit] :
       {std::pair{4., 4.}, {64., 40.}, {256., 64.}, {4096., 64.}}) {
    const auto at = shard->At(rows, hit);
    EXPECT_THAT(at,
                IsEstimate(ExpertsSeconds(rows, hit), Standing::kInterpolated));
    EXPECT_NEAR(at->relative_sigma, kSigma, 1e-6);
  }
}

TEST(ExpertsTable, CostsNothingWithoutRows) {
  const ExpertsTable table = Experts();
  EXPECT_EQ(table.For(Asked())->At(0, 0)->seconds, 0);
}

TEST(ExpertsTable, StaysBetweenRunsAndFollowsTheExpertsHit) {
  const ExpertsTable table = Experts();
  const auto shard = *table.For(Asked());
  const double on_path = shard.At(16, 12)->seconds;
  EXPECT_GT(on_path, ExpertsSeconds(4, 4));
  EXPECT_LT(on_path, ExpertsSeconds(64, 40));
  EXPECT_LT(shard.At(16, 8)->seconds, on_path);
  EXPECT_GT(shard.At(16, 16)->seconds, on_path);
  // Where all experts are hit already, fewer of them save their weights, as far
  // as those still count beside the rows.
  const double saved =
      shard.At(1024, 32)->seconds / shard.At(1024, 64)->seconds;
  EXPECT_GT(saved, 0.5);
  EXPECT_LT(saved, 0.7);
}

TEST(ExpertsTable, HasAFloorBelowTheSmallestRun) {
  const ExpertsTable table = Experts();
  const auto shard = *table.For(Asked());
  const auto below = shard.At(1, 1);
  ASSERT_TRUE(below.has_value());
  EXPECT_EQ(below->standing, Standing::kExtrapolated);
  EXPECT_LT(below->seconds, ExpertsSeconds(4, 4));
  EXPECT_GT(below->seconds, ExpertsSeconds(4, 4) / 4);
  EXPECT_EQ(shard.At(0.1, 0.1)->seconds, below->seconds);
}

TEST(ExpertsTable, GoesOnBetweenTheLastRiseAndProportionWithinItsReach) {
  const ExpertsTable table = Experts();
  const auto shard = *table.For(Asked());
  const double last = ExpertsSeconds(4096, 64);
  const double rise =
      std::log(last / ExpertsSeconds(256, 64)) / std::log(4096. / 256);
  const auto at = shard.At(2 * 4096, 64);
  EXPECT_THAT(at, IsEstimate(last * std::pow(2, (1 + rise) / 2),
                             Standing::kExtrapolated));
  EXPECT_GT(at->relative_sigma, 10 * kSigma);
  EXPECT_TRUE(shard.At(15.9 * 4096, 64).has_value());
  EXPECT_FALSE(shard.At(16.1 * 4096, 64).has_value());
}

TEST(ExpertsTable, OfOneRunAnswersNothingAboveIt) {
  const ExpertsTable table = ExpertsTable::Build({ExpertsRun(64, 40)});
  const auto shard = *table.For(Asked());
  EXPECT_TRUE(shard.At(64, 40).has_value());
  EXPECT_TRUE(shard.At(8, 8).has_value());
  EXPECT_FALSE(shard.At(65, 40).has_value());
}

TEST(ExpertsTable, AsksAnotherShardAtEqualWork) {
  const ExpertsTable table = Experts();
  const auto same = *table.For(Asked());
  // Experts of half the size, twice as many: 80 of them are 40 of the measured
  // in weight bytes, and 128 rows are 64 in operations.
  const auto half = table.For(Asked(256, 128));
  ASSERT_TRUE(half.has_value());
  const auto at = half->At(128, 80);
  EXPECT_THAT(at,
              IsEstimate(same.At(64, 40)->seconds, Standing::kExtrapolated));
  EXPECT_GT(at->relative_sigma, 0.1);
  // Of four times as many, what exceeds all measured experts is added in
  // proportion: 256 hit, 1024 rows are four times 64 and 256.
  const auto more = table.For(Asked(512, 256));
  EXPECT_THAT(more->At(1024, 256),
              IsEstimate(4 * ExpertsSeconds(256, 64), Standing::kExtrapolated));
}

TEST(ExpertsTable, ReckonsRowsAndHitsThatWereNotRecorded) {
  Measurement run = Measured(Shard(16), 1e-4);  // 64 rows on one rank
  const ExpertsTable table = ExpertsTable::Build({run});
  EXPECT_THAT(table.For(Asked())->At(64, 41),
              IsEstimate(1e-4, Standing::kInterpolated));
}

TEST(ExpertsTable, KnowsFormatsAndOriginsApart) {
  const WeightFormat int4{NumberFormat::kInt4Group, 32};
  const ExpertsTable table = ExpertsTable::Build(
      {ExpertsRun(4, 4, Origin::kReference), ExpertsRun(64, 40),
       ExpertsRun(256, 64, Origin::kReference)});
  EXPECT_TRUE(table.Has({}));
  EXPECT_FALSE(table.Has(int4));
  EXPECT_FALSE(table.For(Asked(512, 64, int4)).has_value());
  EXPECT_EQ(table.For(Asked())->At(64, 40)->standing, Standing::kInterpolated);
  const ExpertsTable borrowed =
      ExpertsTable::Build({ExpertsRun(4, 4, Origin::kReference)});
  EXPECT_EQ(borrowed.For(Asked())->At(4, 4)->standing, Standing::kReference);
  EXPECT_TRUE(ExpertsTable::Build({}).empty());
}

TEST(ExpertsTable, OfRunsWithEqualRowsKeepsTheFirst) {
  Measurement skewed = ExpertsRun(64, 9);
  std::get<ExpertsKey>(skewed.key).skew_alpha = 1;
  const ExpertsTable table = ExpertsTable::Build({ExpertsRun(64, 40), skewed});
  EXPECT_THAT(table.For(Asked())->At(64, 40),
              IsEstimate(ExpertsSeconds(64, 40), Standing::kInterpolated));
}

TEST(ExpertsTable, GrowsWithRows) {
  const ExpertsTable table = Experts();
  const auto shard = *table.For(Asked());
  double before = 0;
  for (double rows = 0.5; rows < 4096 * 16; rows *= 1.07) {
    // What uniform routing hits.
    const double hit = 64 * -std::expm1(rows / 4 * std::log1p(-4. / 64));
    const auto at = shard.At(rows, hit);
    ASSERT_TRUE(at.has_value());
    EXPECT_GE(at->seconds, before * 0.99) << rows;
    before = at->seconds;
  }
}

TEST(ExpertsTable, IsFiniteWhateverIsAsked) {
  const ExpertsTable table = Experts();
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const double experts = 1 + static_cast<double>(random() % 512);
    const auto shard = table.For(
        Asked(64 * (1 + static_cast<double>(random() % 64)), experts));
    for (double rows = 1; rows < 1e7; rows *= 2) {
      const auto at = shard->At(rows, std::min(rows, experts));
      if (!at.has_value()) break;
      EXPECT_TRUE(std::isfinite(at->seconds));
      EXPECT_GT(at->seconds, 0);
      EXPECT_GE(at->relative_sigma, kSigma * 0.999);
      EXPECT_LT(at->relative_sigma, 1);
    }
  }
}

// ---- Attention

AttentionKey Decode(int64_t batch, int64_t context) {
  return {.batch = batch,
          .context_tokens = context,
          .q_heads = 32,
          .kv_heads = 8,
          .head_dim = 128};
}

TEST(AttentionTable, GivesMeasuredShapesBack) {
  // Two shapes of equal work: each keeps its own time.
  const AttentionTable table = AttentionTable::Build(
      {Measured(Decode(8, 1024), 1e-5), Measured(Decode(4, 2048), 2e-5)});
  EXPECT_THAT(table.At(Decode(8, 1024)), IsEstimate(1e-5, Standing::kMeasured));
  EXPECT_THAT(table.At(Decode(4, 2048)), IsEstimate(2e-5, Standing::kMeasured));
  EXPECT_NEAR(table.At(Decode(8, 1024))->relative_sigma, kSigma, 1e-6);
}

TEST(AttentionTable, ScalesTheNearestByItsWork) {
  const AttentionTable table = AttentionTable::Build(
      {Measured(Decode(8, 1024), 1e-5), Measured(Decode(64, 1024), 7e-5)});
  EXPECT_THAT(table.At(Decode(16, 1024)),
              IsEstimate(2e-5, Standing::kExtrapolated));
  EXPECT_THAT(table.At(Decode(8, 4096)),
              IsEstimate(7e-5 / 2, Standing::kExtrapolated));
  EXPECT_GT(table.At(Decode(16, 1024))->relative_sigma, 0.1);
  EXPECT_FALSE(table.At(Decode(64, 4097)).has_value());
  EXPECT_FALSE(table.At(Decode(1, 1024)).has_value());
}

TEST(AttentionTable, PrefersHeadsThatShareAsMuch) {
  // Equal in what is read; 128 query heads compute eight times what 16 do.
  AttentionKey few = Decode(64, 4096);
  few.latent = true;
  few.q_heads = 16;
  few.kv_heads = 1;
  few.head_dim = 576;
  AttentionKey many = few;
  many.q_heads = 128;
  for (const bool few_first : {true, false}) {
    const AttentionTable table = AttentionTable::Build(
        few_first ? std::vector{Measured(few, 1e-4), Measured(many, 4e-4)}
                  : std::vector{Measured(many, 4e-4), Measured(few, 1e-4)});
    AttentionKey asked = many;
    asked.batch = 32;
    EXPECT_THAT(table.At(asked), IsEstimate(2e-4, Standing::kExtrapolated));
    asked.q_heads = 16;
    EXPECT_THAT(table.At(asked), IsEstimate(5e-5, Standing::kExtrapolated));
  }
}

TEST(AttentionTable, KnowsKindsApart) {
  const AttentionTable table =
      AttentionTable::Build({Measured(Decode(8, 1024), 1e-5)});
  AttentionKey prefill = Decode(8, 1024);
  prefill.query_tokens = 64;
  EXPECT_FALSE(table.At(prefill).has_value());
  AttentionKey latent = Decode(8, 1024);
  latent.latent = true;
  EXPECT_FALSE(table.At(latent).has_value());
  AttentionKey fp8 = Decode(8, 1024);
  fp8.kv_format = NumberFormat::kFp8;
  EXPECT_FALSE(table.At(fp8).has_value());
  EXPECT_TRUE(AttentionTable::Build({}).empty());
}

AttentionKey Prompts(int64_t batch, int64_t query, int64_t context) {
  AttentionKey key = Decode(batch, context);
  key.query_tokens = query;
  return key;
}

TEST(PromptWork, IsTokensAndWhatTheySee) {
  // Whole prompts see half of themselves; the last quarter of one more.
  const PromptWork whole = PromptWorkOf(Prompts(8, 1024, 1024));
  EXPECT_EQ(whole.tokens, 8192);
  EXPECT_EQ(whole.seen, 512);
  const PromptWork last = PromptWorkOf(Prompts(1, 1024, 4096));
  EXPECT_EQ(last.tokens, 1024);
  EXPECT_EQ(last.seen, 3584);
  for (const AttentionKey& key :
       {Prompts(8, 1024, 1024), Prompts(1, 1024, 4096), Prompts(1, 2, 2),
        Prompts(1, 512, 513)}) {
    EXPECT_EQ(PromptKey(Decode(1, 1), PromptWorkOf(key)), key);
  }
  // Of any work the key is one that can be measured, and as much work.
  for (const double tokens : {1., 3., 100., 1000.5, 8192.}) {
    for (const double seen : {1., 2.5, 77., 4096.}) {
      const AttentionKey key = PromptKey(Decode(1, 1), {tokens, seen});
      EXPECT_TRUE(Validate(MeasurementKey(key)).ok())
          << ToString(MeasurementKey(key));
      if (tokens < 50 || seen < 50) continue;
      const PromptWork work = PromptWorkOf(key);
      EXPECT_NEAR(work.tokens * work.seen / (tokens * seen), 1, 0.02)
          << ToString(MeasurementKey(key));
    }
  }
}

TEST(AttentionTable, GivesMeasuredPromptsBack) {
  const AttentionTable table =
      AttentionTable::Build({Measured(Prompts(8, 1024, 1024), 1e-3),
                             Measured(Prompts(1, 1024, 4096), 2e-3)});
  EXPECT_THAT(table.At(Prompts(8, 1024, 1024)),
              IsEstimate(1e-3, Standing::kMeasured));
  EXPECT_THAT(table.AtPrompts(Decode(1, 1), {1024, 3584}),
              IsEstimate(2e-3, Standing::kMeasured));
  EXPECT_NEAR(table.At(Prompts(8, 1024, 1024))->relative_sigma, kSigma, 1e-6);
}

// 8,192 and 2,048 tokens that see 4,096 and 512, at 1 ps a pair and 10 us.
std::vector<Measurement> PromptGrid(Origin origin = Origin::kMeasured) {
  std::vector<Measurement> runs;
  for (const double tokens : {2048., 8192.}) {
    for (const double seen : {512., 4096.}) {
      runs.push_back(Measured(PromptKey(Decode(1, 1), {tokens, seen}),
                              10e-6 + tokens * seen * 1e-12, origin));
    }
  }
  return runs;
}

TEST(AttentionTable, InterpolatesPromptsOverTokensAndWhatTheySee) {
  const AttentionTable table = AttentionTable::Build(PromptGrid());
  for (const double tokens : {2048., 3000., 8192.}) {
    for (const double seen : {512., 1000., 4096.}) {
      const auto at = table.AtPrompts(Decode(1, 1), {tokens, seen});
      ASSERT_TRUE(at.has_value());
      // A line between two points of a curve that bends upwards is above it.
      const double true_seconds = 10e-6 + tokens * seen * 1e-12;
      EXPECT_GE(at->seconds, true_seconds * (1 - 1e-9));
      EXPECT_NEAR(at->seconds, true_seconds, 0.2 * true_seconds);
      const bool exact =
          (tokens == 2048 || tokens == 8192) && (seen == 512 || seen == 4096);
      EXPECT_EQ(at->standing,
                exact ? Standing::kMeasured : Standing::kInterpolated);
      EXPECT_EQ(at->relative_sigma > 0.05, !exact);
    }
  }
}

TEST(AttentionTable, GoesOnBeyondMeasuredPromptsAsFarAsCurvesReach) {
  const AttentionTable table = AttentionTable::Build(PromptGrid());
  const auto seconds = [&](double tokens, double seen) {
    const auto at = table.AtPrompts(Decode(1, 1), {tokens, seen});
    if (!at.has_value()) return -1.;
    EXPECT_EQ(at->standing, Standing::kExtrapolated);
    return at->seconds;
  };
  const double largest = 10e-6 + 8192 * 4096 * 1e-12;
  const double smallest = 10e-6 + 2048 * 512 * 1e-12;
  EXPECT_NEAR(seconds(16384, 4096), 2 * largest, 1e-9);
  EXPECT_NEAR(seconds(8192, 16384), 4 * largest, 1e-9);
  EXPECT_EQ(seconds(8192, 16400), -1);
  EXPECT_EQ(seconds(33000, 4096), -1);
  // A kernel's tiles do not get smaller.
  EXPECT_NEAR(seconds(64, 512), smallest, 1e-9);
  EXPECT_NEAR(seconds(2048, 16), smallest, 1e-9);
}

TEST(AttentionTable, TakesOtherHeadsAtAsManyTokensTimesHeads) {
  std::vector<Measurement> runs = PromptGrid();
  for (Measurement& wide : PromptGrid()) {
    std::get<AttentionKey>(wide.key).head_dim = 256;
    wide.statistics.median_seconds *= 7;
    runs.push_back(wide);
  }
  const AttentionTable table = AttentionTable::Build(runs);
  AttentionKey heads = Decode(1, 1);
  heads.q_heads = 8;  // of 32
  heads.kv_heads = 2;
  const auto quarter = table.AtPrompts(heads, {8192, 4096});
  EXPECT_THAT(quarter,
              IsEstimate(10e-6 + 2048 * 4096 * 1e-12, Standing::kExtrapolated));
  EXPECT_GT(quarter->relative_sigma, 0.15);
  heads.head_dim = 64;
  EXPECT_THAT(
      table.AtPrompts(heads, {8192, 4096}),
      IsEstimate((10e-6 + 2048 * 4096 * 1e-12) / 2, Standing::kExtrapolated));
  heads.head_dim = 256;
  EXPECT_THAT(
      table.AtPrompts(heads, {8192, 4096}),
      IsEstimate(7 * (10e-6 + 2048 * 4096 * 1e-12), Standing::kExtrapolated));
}

TEST(AttentionTable, PrefersPromptsOfThisNode) {
  std::vector<Measurement> runs = PromptGrid(Origin::kReference);
  const AttentionTable other = AttentionTable::Build(runs);
  EXPECT_EQ(other.AtPrompts(Decode(1, 1), {8192, 512})->standing,
            Standing::kReference);
  for (Measurement& own : PromptGrid()) {
    own.statistics.median_seconds *= 3;
    runs.push_back(own);
  }
  EXPECT_THAT(
      AttentionTable::Build(runs).AtPrompts(Decode(1, 1), {8192, 512}),
      IsEstimate(3 * (10e-6 + 8192 * 512 * 1e-12), Standing::kMeasured));
}

}  // namespace
}  // namespace fabricwise
