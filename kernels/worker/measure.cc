// SPDX-License-Identifier: Apache-2.0
#include "kernels/worker/measure.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/case.h"
#include "kernels/timed_loop.h"
#include "kernels/timing/refine.h"
#include "kernels/worker/probe.h"

namespace fabricwise {
namespace {

// A series of samples takes this long at most, and gets this much at least
// however many keys are still to come.
constexpr double kMostSeconds = 1.0, kLeastSeconds = 0.02;

// Between looks for other processes during a key: of the 250 ms in which a run
// yields, the rest is for the sample under way and for leaving.
constexpr absl::Duration kLookInterval = absl::Milliseconds(100);

constexpr char kSource[] = "fabricwise-worker";

// Curves whose points are refined: collectives, by everything but the size.
std::string CurveName(CollectiveKey key) {
  key.size_bytes = 1;
  return ToString(MeasurementKey(key));
}

class Run {
 public:
  Run(const MeasureOptions& options, Node& node, const Nvml* nvml,
      const std::atomic<bool>& stop, const MeasureSink& sink)
      : options_(options),
        node_(node),
        nvml_(nvml),
        stop_(stop),
        sink_(sink),
        deadline_(absl::Now() + options.budget),
        processes_(Processes()) {}

  absl::StatusOr<MeasureOutcome> Measure(
      const std::vector<MeasurementKey>& keys) {
    MeasureOutcome outcome;
    size_t left = keys.size();
    for (const MeasurementKey& key : keys) {
      if (const auto end = Ended()) {
        outcome.end = *end;
        outcome.gpu_time = gpu_time_;
        return outcome;
      }
      RETURN_IF_ERROR(One(key, left--));
    }
    if (options_.refine) {
      while (const std::optional<MeasurementKey> key = NextRefined()) {
        if (const auto end = Ended()) {
          outcome.end = *end;
          break;
        }
        RETURN_IF_ERROR(One(*key, 1));
      }
    }
    outcome.gpu_time = gpu_time_;
    return outcome;
  }

 private:
  struct Refined {
    CollectiveKey key;
    CurveRefiner refiner{RefineRule{}};
  };

  int Processes() const {
    int count = 0;
    for (int device : node_.devices()) {
      if (nvml_ != nullptr) count += nvml_->ProcessCount(BusId(device));
    }
    return count;
  }

  std::optional<MeasureEnd> Ended() {
    if (stop_) return MeasureEnd::kStopped;
    if (absl::Now() >= deadline_) return MeasureEnd::kOutOfBudget;
    if (Intruded()) return MeasureEnd::kStopped;
    return std::nullopt;
  }

  bool Intruded() {
    // The first count has our own contexts, which the node's streams made: one
    // process more is somebody's job.
    intruded_ = intruded_ || Processes() > processes_;
    last_look_ = absl::Now();
    return intruded_;
  }

  // OK also where the key is skipped.
  absl::Status One(const MeasurementKey& key, size_t left) {
    if (sink_.begin) sink_.begin(key);
    const absl::Time begin = absl::Now();
    absl::StatusOr<Measured> measured = Time(key, left);
    const absl::Duration wall = absl::Now() - begin;
    size_t gpus = 1;
    if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
      gpus = static_cast<size_t>(collective->group.size) *
             static_cast<size_t>(collective->concurrent_groups);
    }
    gpu_time_ += wall * static_cast<double>(gpus);

    const auto* collective = std::get_if<CollectiveKey>(&key);
    switch (measured.status().code()) {
      case absl::StatusCode::kOk:
        if (Intruded()) return absl::OkStatus();  // Ended() tells
        break;
      // Not on this node, or not now: the next key may well be.
      case absl::StatusCode::kUnimplemented:
      case absl::StatusCode::kFailedPrecondition:
      case absl::StatusCode::kInvalidArgument:
      case absl::StatusCode::kResourceExhausted:
      case absl::StatusCode::kDataLoss:
      case absl::StatusCode::kAborted:
        if (collective != nullptr) refined_.erase(CurveName(*collective));
        sink_.skip(key, std::string(measured.status().message()));
        return absl::OkStatus();
      case absl::StatusCode::kCancelled:
        return absl::OkStatus();  // Ended() tells
      default:
        return absl::Status(
            measured.status().code(),
            absl::StrCat(ToString(key), ": ",
                         std::string(measured.status().message())));
    }
    if (collective != nullptr) {
      Refined& refined = refined_[CurveName(*collective)];
      refined.key = *collective;
      refined.refiner.Add(collective->size_bytes,
                          measured->measurement.statistics.median_seconds);
    }
    measured->measurement.start_time = begin;
    measured->wall = wall;
    sink_.result(*measured);
    return absl::OkStatus();
  }

  absl::StatusOr<Measured> Time(const MeasurementKey& key, size_t left) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Case> benchmark,
                     MakeCase(key, node_));
    LoopOptions options;
    options.stop = [this] { return stop_ || intruded_; };
    options.as_nccl_tests = options_.as_nccl_tests;
    options.stopping.target_relative_iqr = options_.target_relative_iqr;
    options.stopping.budget_seconds =
        std::clamp(absl::ToDoubleSeconds(deadline_ - absl::Now()) /
                       static_cast<double>(left),
                   kLeastSeconds, kMostSeconds);
    if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
      options.launch = collective->launch;
    }
    if (nvml_ != nullptr) {
      const std::string bus_id = BusId(benchmark->devices().front());
      options.sm_clock_hertz = [this, bus_id] {
        return nvml_->SmClockHertz(bus_id);
      };
      options.disturbed = [this, bus_id] {
        if (absl::Now() - last_look_ > kLookInterval && Intruded()) {
          return std::string("another process came to a GPU");
        }
        return nvml_->Throttled(bus_id);
      };
    }
    ASSIGN_OR_RETURN(const Statistics statistics,
                     TimeCase(*benchmark, node_, options));
    return Measured{.measurement = {.key = key,
                                    .statistics = statistics,
                                    .experts = benchmark->experts(),
                                    .source = kSource},
                    .floor = benchmark->floor()};
  }

  // Round and round the curves, so that none waits for another's last bend.
  std::optional<MeasurementKey> NextRefined() {
    for (size_t tried = 0; tried < refined_.size(); ++tried) {
      auto curve = refined_.upper_bound(last_refined_);
      if (curve == refined_.end()) curve = refined_.begin();
      last_refined_ = curve->first;
      if (const auto size = curve->second.refiner.Next()) {
        CollectiveKey key = curve->second.key;
        key.size_bytes = *size;
        return key;
      }
    }
    return std::nullopt;
  }

  const MeasureOptions& options_;
  Node& node_;
  const Nvml* nvml_;
  const std::atomic<bool>& stop_;
  const MeasureSink& sink_;
  const absl::Time deadline_;
  const int processes_;
  absl::Duration gpu_time_;
  bool intruded_ = false;
  absl::Time last_look_ = absl::Now();
  std::map<std::string, Refined> refined_;
  std::string last_refined_;
};

}  // namespace

absl::StatusOr<MeasureOutcome> MeasureKeys(
    const std::vector<MeasurementKey>& keys, const MeasureOptions& options,
    Node& node, const Nvml* nvml, const std::atomic<bool>& stop,
    const MeasureSink& sink) {
  return Run(options, node, nvml, stop, sink).Measure(keys);
}

}  // namespace fabricwise
