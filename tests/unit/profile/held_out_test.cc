// SPDX-License-Identifier: Apache-2.0
//
// How well curves answer at sizes that nobody measured: every second point of
// every public NCCL sweep is left out and predicted from the others, so from
// points a factor of four apart.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/profile/curve.h"
#include "server/profile/import.h"
#include "tests/support/read_file.h"

namespace fabricwise {
namespace {

constexpr char kSweeps[] = "../shared/data/nccl";
// A left-out point is always between two kept ones, so that the same is asked
// whichever of the two halves is left out; both are.
constexpr size_t kHalves = 2;

struct Miss {
  double log_ratio = 0;  // ln(predicted / measured)
  double sigma = 0;      // what the curve said of it
};

struct Misses {
  std::vector<Miss> curve, log_lines;
};

// A straight line in log-log: what one would do without thinking.
double LogLine(const CurvePoint& a, const CurvePoint& b, double size) {
  return a.seconds *
         std::pow(b.seconds / a.seconds,
                  std::log(size / a.size) / std::log(b.size / a.size));
}

void Predict(const std::vector<CurvePoint>& points, size_t half, Misses* out) {
  std::vector<CurvePoint> kept;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i % kHalves != half) kept.push_back(points[i]);
  }
  const auto curve = Curve::Create(kept, Origin::kReference);
  ASSERT_TRUE(curve.ok()) << curve.status();
  for (size_t i = half == 0 ? kHalves : half; i + 1 < points.size();
       i += kHalves) {
    const CurvePoint& truth = points[i];
    const auto estimate = curve->At(truth.size);
    ASSERT_TRUE(estimate.has_value());
    out->curve.push_back({std::log(estimate->seconds / truth.seconds),
                          estimate->relative_sigma});
    out->log_lines.push_back(
        {std::log(LogLine(points[i - 1], points[i + 1], truth.size) /
                  truth.seconds),
         1});
  }
}

double Percentile(const std::vector<Miss>& misses, double share) {
  std::vector<double> errors;
  for (const Miss& miss : misses) {
    errors.push_back(std::abs(std::expm1(miss.log_ratio)));
  }
  std::sort(errors.begin(), errors.end());
  const auto index =
      static_cast<size_t>(share * static_cast<double>(errors.size()));
  return errors[std::min(index, errors.size() - 1)];
}

double ShareWithin(const std::vector<Miss>& misses, double sigmas) {
  const auto within =
      std::count_if(misses.begin(), misses.end(), [&](const Miss& miss) {
        return std::abs(miss.log_ratio) <= sigmas * miss.sigma;
      });
  return static_cast<double>(within) / static_cast<double>(misses.size());
}

void Print(const std::string& system, const Misses& misses) {
  std::printf("%-22s %6zu %9.2f %9.2f %9.2f %9.2f\n", system.c_str(),
              misses.curve.size(), 100 * Percentile(misses.curve, 0.5),
              100 * Percentile(misses.curve, 0.9),
              100 * Percentile(misses.log_lines, 0.5),
              100 * Percentile(misses.log_lines, 0.9));
}

// "aic_h200_sxm_all_reduce_8gpu_nccl2.26.2.csv" is of "h200_sxm".
std::string SystemOf(const std::string& file) {
  for (const char* op :
       {"_all_reduce", "_all_gather", "_reduce_scatter", "_alltoall"}) {
    const size_t at = file.find(op);
    if (at != std::string::npos) return file.substr(4, at - 4);
  }
  return file;
}

TEST(HeldOutSizes, ArePredictedWithinTheirTargets) {
  if (!std::filesystem::is_directory(kSweeps)) {
    GTEST_SKIP() << kSweeps << " is not there";
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kSweeps)) {
    if (entry.path().extension() == ".csv") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  std::map<std::string, Misses> by_system[kHalves];
  Misses all[kHalves];
  for (const std::filesystem::path& file : files) {
    const std::string name = file.filename().string();
    const auto data = AssembleProfile({.name = "sweep"},
                                      {{name, ReadWholeFile(file.string())}});
    ASSERT_TRUE(data.ok()) << data.status();
    const auto profile = Profile::Build(*data);
    ASSERT_TRUE(profile.ok()) << profile.status();
    ASSERT_EQ((*profile)->curves().size(), 1u) << name;
    for (size_t half = 0; half < kHalves; ++half) {
      Predict((*profile)->curves().begin()->second.points(), half,
              &by_system[half][SystemOf(name)]);
      Predict((*profile)->curves().begin()->second.points(), half, &all[half]);
    }
  }

  for (size_t half = 0; half < kHalves; ++half) {
    std::printf("%s points left out; misses in %%\n%-22s %6s %9s %9s %9s %9s\n",
                half == 0 ? "even" : "odd", "system", "points", "median", "p90",
                "log med.", "log p90");
    for (const auto& [system, misses] : by_system[half]) Print(system, misses);
    Print("all", all[half]);
    const double one = ShareWithin(all[half].curve, 1);
    const double two = ShareWithin(all[half].curve, 2);
    std::printf("within the stated sigma: %.0f %%, within two: %.0f %%\n\n",
                100 * one, 100 * two);
    EXPECT_LE(Percentile(all[half].curve, 0.5), 0.03);
    EXPECT_LE(Percentile(all[half].curve, 0.9), 0.12);
    EXPECT_LT(Percentile(all[half].curve, 0.5),
              Percentile(all[half].log_lines, 0.5));
    EXPECT_LT(Percentile(all[half].curve, 0.9),
              Percentile(all[half].log_lines, 0.9));
    // The stated spread is honest: about two thirds within one sigma. The tails
    // of these sweeps are heavier than normal (single points that were
    // disturbed).
    EXPECT_GE(one, 0.66);
    EXPECT_LE(one, 0.85);
    EXPECT_GE(two, 0.83);
  }
}

}  // namespace
}  // namespace fabricwise
