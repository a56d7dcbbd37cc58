// SPDX-License-Identifier: Apache-2.0
#include "server/profile/drift.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

namespace fabricwise {
namespace {

// A full run takes five minutes at most: what is older than twice that is not
// of the same run.
constexpr absl::Duration kLongestRun = absl::Minutes(10);

// Two runs of the worker on one node on one day (2x H200, in graphs, NVLink and
// shared memory, 68 points) differ by 1.8 % at the 68th percentile, hence 1.3 %
// each, and so do whole curves.
constexpr double kRunSigma = 0.013;

// A drift is at least so far from 1: half of the least slowdown that matters.
constexpr double kLeastDrift = 0.05;

// ... and so many sigma. A run judges some hundred subjects and bands, so that
// one in a hundred runs may alarm where one in ten thousand of these does.
constexpr double kDriftSigmas = 3.7;

// A normal distribution's: sigma over median absolute deviation, and standard
// error of a median over that of a mean.
constexpr double kSigmaOverMad = 1.4826;
constexpr double kMedianErrorFactor = 1.2533;

double Median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Point {
  double log_ratio = 0;
  double within_sigma = 0;   // of a run, as recorded
  double between_sigma = 0;  // of runs among each other
  size_t run_count = 0;      // of the baseline
  absl::Time time;
};

double WeightedMedian(std::vector<Point> points) {
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.log_ratio < b.log_ratio;
  });
  const auto weight = [](const Point& p) {
    return 1 / (p.within_sigma * p.within_sigma);
  };
  double half = 0;
  for (const Point& p : points) half += weight(p) / 2;
  for (const Point& p : points) {
    half -= weight(p);
    if (half <= 0) return p.log_ratio;
  }
  return points.back().log_ratio;
}

using Place = std::pair<std::string, SizeBand>;

Place PlaceOf(const MeasurementKey& key) {
  const std::string text = ToString(key);
  if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
    return {text.substr(0, text.rfind('/')),
            collective->size_bytes <= kMostSmallBytes ? SizeBand::kSmall
                                                      : SizeBand::kLarge};
  }
  const std::vector<absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits('/', 2));
  return {parts.size() < 2 ? text : absl::StrCat(parts[0], "/", parts[1]),
          SizeBand::kAll};
}

double RelativeSigma(const PastRun& run) {
  return fabricwise::RelativeSigma(Statistics{
      .median_seconds = run.median_seconds, .iqr_seconds = run.iqr_seconds});
}

// `runs` are of one key, newest first. False: there is no baseline.
bool Compare(const std::vector<PastRun>& runs, Point& point) {
  std::vector<double> medians, sigmas = {RelativeSigma(runs[0])};
  for (size_t i = 1; i < runs.size(); ++i) {
    // What was imported twice is one run all the same.
    if (runs[i].start_time == runs[i - 1].start_time) continue;
    if (medians.size() == kMostBaselineRuns) break;
    medians.push_back(runs[i].median_seconds);
    sigmas.push_back(RelativeSigma(runs[i]));
  }
  if (medians.size() < kLeastBaselineRuns) return false;
  const double baseline = Median(medians);
  point.log_ratio = std::log(runs[0].median_seconds / baseline);
  point.within_sigma = std::max({Median(sigmas), sigmas[0], kRunSigma});
  point.run_count = medians.size();
  point.time = runs[0].start_time;
  for (double& median : medians) median = std::abs(median / baseline - 1);
  point.between_sigma = kSigmaOverMad * Median(std::move(medians));
  return true;
}

Drift Judge(const Place& place, const std::vector<Point>& points) {
  std::vector<double> between, counts;
  double weights = 0;
  for (const Point& p : points) {
    weights += 1 / (p.within_sigma * p.within_sigma);
    between.push_back(p.between_sigma);
    counts.push_back(static_cast<double>(p.run_count));
  }
  const double own = kMedianErrorFactor / std::sqrt(weights);
  const double common = std::max(kRunSigma, Median(between));
  // The baseline, a median of runs, has an error as well.
  const double baseline_error =
      kMedianErrorFactor / std::sqrt(Median(std::move(counts)));
  const double sigma = std::hypot(own, common) * std::hypot(1, baseline_error);
  const double log_ratio = WeightedMedian(points);
  return {.subject = place.first,
          .band = place.second,
          .ratio = std::exp(log_ratio),
          .relative_sigma = sigma,
          .point_count = static_cast<int>(points.size()),
          .drifted = std::abs(log_ratio) >
                     std::max(kDriftSigmas * sigma, std::log1p(kLeastDrift))};
}

}  // namespace

absl::string_view ToString(SizeBand band) {
  switch (band) {
    case SizeBand::kAll:
      return "all";
    case SizeBand::kSmall:
      return "small";
    case SizeBand::kLarge:
      return "large";
  }
  return "";
}

std::vector<Drift> FindDrift(absl::Span<const KeyHistory> history) {
  std::map<Place, std::vector<Point>> by_place;
  for (const KeyHistory& one : history) {
    Point point;
    if (!Compare(one.runs, point)) continue;
    by_place[PlaceOf(one.key)].push_back(point);
  }
  std::vector<Drift> drifts;
  for (auto& [place, points] : by_place) {
    const absl::Time newest =
        std::max_element(
            points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.time < b.time; })
            ->time;
    std::erase_if(points, [newest](const Point& p) {
      return p.time < newest - kLongestRun;
    });
    drifts.push_back(Judge(place, points));
  }
  return drifts;
}

}  // namespace fabricwise
