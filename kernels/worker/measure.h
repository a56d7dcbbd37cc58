// SPDX-License-Identifier: Apache-2.0
//
// Measures keys one after another within a budget; used by plans and by hand.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/case.h"
#include "kernels/node.h"
#include "kernels/worker/gpu_management.h"
#include "server/domain/measurement.h"

namespace fabricwise {

struct MeasureOptions {
  absl::Duration budget = absl::Minutes(1);
  absl::Duration key_deadline = absl::Seconds(30);
  double target_relative_iqr = 0.03;
  bool refine = false;
  int as_nccl_tests = 0;  // LoopOptions
};

struct Measured {
  Measurement measurement;
  Floor floor;
  absl::Duration wall;
};

// What measuring tells as it goes.
struct MeasureSink {
  std::function<void(const MeasurementKey&)> begin;
  std::function<void(const Measured&)> result;
  std::function<void(const MeasurementKey&, const std::string& reason)> skip;
};

// Why a run of keys ended, beside having done all.
enum class MeasureEnd {
  kAllDone,
  kOutOfBudget,
  kStopped,  // asked to, or another process came to a GPU
};

struct MeasureOutcome {
  MeasureEnd end = MeasureEnd::kAllDone;
  absl::Duration gpu_time;  // summed over GPUs
};

// `nvml` may be null: then clocks are not seen and other processes not noticed.
// A key during which another process came to a GPU gives no result. An error
// other than of a single key (a hang, a CUDA error that sticks) ends
// the run: the node cannot be used again and the process should end.
absl::StatusOr<MeasureOutcome> MeasureKeys(
    const std::vector<MeasurementKey>& keys, const MeasureOptions& options,
    Node& node, const Nvml* nvml, const std::atomic<bool>& stop,
    const MeasureSink& sink);

}  // namespace fabricwise
