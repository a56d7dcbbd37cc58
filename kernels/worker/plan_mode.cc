// SPDX-License-Identifier: Apache-2.0
#include "kernels/worker/plan_mode.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "fabricwise/worker/v1/worker.pb.h"
#include "kernels/worker/measure.h"
#include "kernels/worker/probe.h"

namespace fabricwise {
namespace {

constexpr int kFrameDescriptor = 3;
constexpr size_t kMaxPlanBytes = size_t{4} << 20;

// Writes frames; a daemon that is gone ends the process.
class FrameWriter {
 public:
  void Write(worker::v1::WorkerFrame frame) {
    frame.set_sequence(sequence_++);
    std::string bytes;
    frame.SerializeToString(&bytes);
    const auto size = static_cast<uint32_t>(bytes.size());
    std::string framed;
    for (int shift = 0; shift < 32; shift += 8) {
      framed.push_back(static_cast<char>(size >> shift & 0xFF));
    }
    framed += bytes;
    size_t done = 0;
    while (done < framed.size()) {
      const ssize_t written =
          write(kFrameDescriptor, framed.data() + done, framed.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) _exit(kExitFailed);
      done += static_cast<size_t>(written);
    }
  }

 private:
  uint64_t sequence_ = 0;
};

std::string ReadStandardInput() {
  std::string text;
  std::array<char, 4096> part{};
  ssize_t count = 0;
  while ((count = read(STDIN_FILENO, part.data(), part.size())) != 0) {
    if (count < 0) {
      if (errno == EINTR) continue;
      break;
    }
    text.append(part.data(), static_cast<size_t>(count));
    if (text.size() > kMaxPlanBytes) break;
  }
  return text;
}

int Complain(int code, const std::string& what) {
  std::fprintf(stderr, "fabricwise-worker: %s\n", what.c_str());
  return code;
}

worker::v1::Result ToResult(const Measured& measured) {
  const Measurement& measurement = measured.measurement;
  const Statistics& statistics = measurement.statistics;
  worker::v1::Result result;
  result.set_key(ToString(measurement.key));
  result.set_median_seconds(statistics.median_seconds);
  result.set_iqr_seconds(statistics.iqr_seconds);
  result.set_p99_seconds(statistics.p99_seconds);
  result.set_samples(statistics.samples);
  result.set_discarded(statistics.discarded);
  result.set_discard_reason(statistics.discard_reason);
  result.set_stop_reason(static_cast<int>(statistics.stop_reason));
  result.set_verified(statistics.verified);
  result.set_sm_clock_hertz(statistics.sm_clock_hertz);
  result.set_rows_local(measurement.experts.rows_local);
  result.set_experts_hit(measurement.experts.experts_hit);
  result.set_wall_milliseconds(absl::ToInt64Milliseconds(measured.wall));
  return result;
}

}  // namespace

int RunPlanMode(const std::atomic<bool>& stop) {
  const std::string text = ReadStandardInput();
  worker::v1::WorkerPlan plan;
  if (text.size() > kMaxPlanBytes || !plan.ParseFromString(text)) {
    return Complain(kExitBadPlan, "the plan on standard input is none");
  }
  std::vector<MeasurementKey> keys;
  for (const std::string& key : plan.keys()) {
    auto parsed = ParseMeasurementKey(key);
    if (!parsed.ok()) {
      return Complain(kExitBadPlan, std::string(parsed.status().message()));
    }
    keys.push_back(*std::move(parsed));
  }

  const auto nvml = Nvml::Load();
  const Nvml* known = nvml.ok() ? nvml->get() : nullptr;
  FrameWriter writer;
  auto probe = ProbeNode(known);
  if (!probe.ok()) {
    return Complain(kExitNoGpu, std::string(probe.status().message()));
  }
  worker::v1::WorkerFrame frame;
  *frame.mutable_probe() = *std::move(probe);
  writer.Write(frame);
  absl::Duration gpu_time;
  bool yielded = false;
  if (!plan.probe_only()) {
    auto node = Node::Create({});
    if (!node.ok()) {
      return Complain(kExitNoGpu, std::string(node.status().message()));
    }
    MeasureOptions options;
    if (plan.budget_milliseconds() > 0) {
      options.budget = absl::Milliseconds(plan.budget_milliseconds());
    }
    if (plan.key_deadline_milliseconds() > 0) {
      options.key_deadline =
          absl::Milliseconds(plan.key_deadline_milliseconds());
    }
    if (plan.target_relative_iqr() > 0) {
      options.target_relative_iqr = plan.target_relative_iqr();
    }
    options.refine = plan.refine();
    const MeasureSink sink{
        .begin =
            [&](const MeasurementKey& key) {
              worker::v1::WorkerFrame progress;
              progress.mutable_progress()->set_key(ToString(key));
              writer.Write(progress);
            },
        .result =
            [&](const Measured& measured) {
              worker::v1::WorkerFrame result;
              *result.mutable_result() = ToResult(measured);
              writer.Write(result);
            },
        .skip =
            [&](const MeasurementKey& key, const std::string& reason) {
              worker::v1::WorkerFrame skip;
              skip.mutable_skip()->set_key(ToString(key));
              skip.mutable_skip()->set_reason(reason);
              writer.Write(skip);
            }};
    const auto outcome = MeasureKeys(keys, options, **node, known, stop, sink);
    if (!outcome.ok()) {
      // A hung collective is aborted; nothing here can be used again.
      (*node)->Abort();
      const bool hung =
          outcome.status().code() == absl::StatusCode::kDeadlineExceeded;
      Complain(0, std::string(outcome.status().message()));
      std::fflush(stderr);
      _exit(hung ? kExitHung : kExitFailed);
    }
    gpu_time = outcome->gpu_time;
    yielded = outcome->end == MeasureEnd::kStopped && !stop;
  }
  worker::v1::WorkerFrame done;
  done.mutable_done()->set_gpu_milliseconds(
      absl::ToInt64Milliseconds(gpu_time));
  done.mutable_done()->set_yielded(yielded);
  writer.Write(done);
  // The driver frees what is left faster than NCCL and we would.
  _exit(kExitDone);
}

}  // namespace fabricwise
