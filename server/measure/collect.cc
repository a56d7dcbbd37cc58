// SPDX-License-Identifier: Apache-2.0
#include "server/measure/collect.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/measure/plans.h"

namespace fabricwise {
namespace {

absl::Status Distrust(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the worker ", what));
}

absl::StatusOr<StopReason> StopReasonOf(const worker::v1::Result& result) {
  // As worker.proto numbers them.
  switch (result.stop_reason()) {
    case 1:
      return StopReason::kGood;
    case 2:
      return StopReason::kSettledNoisy;
    case 3:
      return StopReason::kOutOfBudget;
    default:
      return Distrust(absl::StrCat("gives stop_reason ", result.stop_reason(),
                                   " for ", Quoted(result.key()),
                                   "; allowed: 1 to 3"));
  }
}

// What no measurement can take, else than by a worker that is broken: a run, of
// all its keys, is held to five minutes (docs/measuring.md), and a clock of a
// GPU ticks about once in a nanosecond.
constexpr double kShortestSeconds = 1e-9, kLongestSeconds = 300;
constexpr int64_t kLongestMilliseconds = 300'000;

absl::Status CheckTimes(const worker::v1::Result& result) {
  RETURN_IF_ERROR(CheckRange("median_seconds", result.median_seconds(),
                             kShortestSeconds, kLongestSeconds));
  // Negative: not recorded.
  for (const auto& [name, seconds] :
       {std::pair("iqr_seconds", result.iqr_seconds()),
        std::pair("p99_seconds", result.p99_seconds())}) {
    if (!(seconds < 0)) {
      RETURN_IF_ERROR(CheckRange(name, seconds, 0.0, kLongestSeconds));
    }
  }
  return CheckRange("wall_milliseconds", result.wall_milliseconds(), 0,
                    kLongestMilliseconds);
}

}  // namespace

Collector::Collector(const std::vector<MeasurementKey>& asked) {
  for (const MeasurementKey& key : asked) {
    asked_.insert(ToString(key));
    curves_.insert(ToString(CurveOf(key)));
  }
}

absl::StatusOr<MeasurementKey> Collector::Known(absl::string_view verb,
                                                const std::string& key) const {
  absl::StatusOr<MeasurementKey> parsed = ParseMeasurementKey(key);
  if (!parsed.ok()) {
    return Distrust(
        absl::StrCat(verb, " what is no key: ", parsed.status().message()));
  }
  if (!curves_.contains(ToString(CurveOf(*parsed)))) {
    return Distrust(
        absl::StrCat(verb, " ", Quoted(key), ", which was not asked for"));
  }
  return parsed;
}

absl::Status Collector::MarkAnswered(absl::string_view verb,
                                     const std::string& key) {
  if (!spoken_of_.insert(key).second) {
    return Distrust(absl::StrCat(verb, " ", Quoted(key), " a second time"));
  }
  if (asked_.contains(key)) ++answered_;
  return absl::OkStatus();
}

absl::StatusOr<Measurement> Collector::Add(const worker::v1::Result& result,
                                           absl::string_view fingerprint_id,
                                           absl::Time now) {
  Measurement measurement;
  ASSIGN_OR_RETURN(measurement.key, Known("measured", result.key()));
  ASSIGN_OR_RETURN(const StopReason stop_reason, StopReasonOf(result));
  measurement.statistics = {.median_seconds = result.median_seconds(),
                            .iqr_seconds = result.iqr_seconds(),
                            .p99_seconds = result.p99_seconds(),
                            .samples = result.samples(),
                            .discarded = result.discarded(),
                            .discard_reason = result.discard_reason(),
                            .stop_reason = stop_reason,
                            .verified = result.verified(),
                            .sm_clock_hertz = result.sm_clock_hertz() > 0
                                                  ? result.sm_clock_hertz()
                                                  : -1};
  if (std::holds_alternative<ExpertsKey>(measurement.key)) {
    measurement.experts = {.rows_local = result.rows_local(),
                           .experts_hit = result.experts_hit()};
  }
  measurement.source = "fabricwise-worker";
  measurement.fingerprint_id = std::string(fingerprint_id);
  measurement.start_time = now - absl::Milliseconds(result.wall_milliseconds());
  if (const absl::Status valid = CheckTimes(result); !valid.ok()) {
    return Distrust(absl::StrCat("measured nonsense: ", result.key(), ": ",
                                 valid.message()));
  }
  if (const absl::Status valid = Validate(measurement); !valid.ok()) {
    return Distrust(absl::StrCat("measured nonsense: ", valid.message()));
  }
  RETURN_IF_ERROR(MarkAnswered("measured", result.key()));
  measurements_.push_back(measurement);
  return measurement;
}

absl::Status Collector::Add(const worker::v1::Skip& skip) {
  RETURN_IF_ERROR(Known("skips", skip.key()).status());
  RETURN_IF_ERROR(MarkAnswered("skips", skip.key()));
  // A reason may name its key; of many such ones a few tell enough.
  constexpr size_t kMostReasons = 16;
  if (skipped_.size() < kMostReasons || skipped_.contains(skip.reason())) {
    ++skipped_[skip.reason()];
  }
  return absl::OkStatus();
}

absl::Status Collector::Check(const worker::v1::Progress& progress) const {
  return Known("begins", progress.key()).status();
}

}  // namespace fabricwise
