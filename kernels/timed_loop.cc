// SPDX-License-Identifier: Apache-2.0
#include "kernels/timed_loop.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/device/pace.h"

namespace fabricwise {
namespace {

// A gate that nobody opens lets go after this, so that no GPU is held.
constexpr absl::Duration kGateTimeout = absl::Seconds(5);
// One sample takes milliseconds; one that takes this hangs.
constexpr absl::Duration kSampleTimeout = absl::Seconds(20);
// Operations of one graph or one eager sample.
constexpr int kMinChain = 4;
constexpr int kMaxChain = 512;
constexpr int kWarmUps = 3;

// Host memory that opens a gate on every GPU.
class GateSwitch {
 public:
  static absl::StatusOr<std::unique_ptr<GateSwitch>> Create() {
    auto made = std::unique_ptr<GateSwitch>(new GateSwitch);
    RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(&made->open_, sizeof(*made->open_),
                      cudaHostAllocPortable | cudaHostAllocMapped));
    made->Close();
    return made;
  }
  ~GateSwitch() {
    if (open_ != nullptr) {
      Open();
      cudaFreeHost(open_);
    }
  }
  void Open() { std::atomic_ref<uint32_t>(*open_).store(1); }
  void Close() { std::atomic_ref<uint32_t>(*open_).store(0); }
  const uint32_t* flag() const { return open_; }

 private:
  GateSwitch() = default;
  uint32_t* open_ = nullptr;
};

struct Lane {
  int device = 0;
  cudaStream_t stream = nullptr;
  Event start, stop;
  GraphExec graph;
};

class Loop {
 public:
  Loop(Case& benchmark, Node& node, const LoopOptions& options)
      : case_(benchmark), node_(node), options_(options) {}

  absl::StatusOr<Statistics> Run() {
    ASSIGN_OR_RETURN(gate_, GateSwitch::Create());
    for (int device : case_.devices()) {
      ASSIGN_OR_RETURN(Event start, MakeEvent(device));
      ASSIGN_OR_RETURN(Event stop, MakeEvent(device));
      lanes_.push_back({.device = device,
                        .stream = node_.stream(device),
                        .start = std::move(start),
                        .stop = std::move(stop)});
    }
    RETURN_IF_ERROR(case_.Verify(std::random_device()()));

    // How many operations fill a sample, from a few eager ones.
    RETURN_IF_ERROR(case_.Enqueue(kWarmUps));
    RETURN_IF_ERROR(Drain());
    ASSIGN_OR_RETURN(double rough, Sample(kMinChain, /*graph=*/false));
    chain_ = static_cast<int>(std::clamp(
        std::ceil(options_.min_sample_seconds / rough),
        static_cast<double>(kMinChain), static_cast<double>(kMaxChain)));
    if (options_.as_nccl_tests > 0) chain_ = options_.as_nccl_tests;
    const bool graph = options_.launch != Launch::kEager;
    if (graph) RETURN_IF_ERROR(Capture());
    for (int i = 0; i < kWarmUps; ++i) {
      ASSIGN_OR_RETURN(rough, Sample(chain_, graph));
    }

    SampleSeries series(options_.stopping);
    const absl::Time begin = absl::Now();
    double clock = -1;
    while (!series.done()) {
      if (options_.stop && options_.stop()) {
        return absl::CancelledError("asked to stop");
      }
      ASSIGN_OR_RETURN(const double seconds, options_.as_nccl_tests > 0
                                                 ? HostSample(graph)
                                                 : Sample(chain_, graph));
      const double elapsed = absl::ToDoubleSeconds(absl::Now() - begin);
      const std::string disturbed =
          options_.disturbed ? options_.disturbed() : "";
      if (!disturbed.empty()) {
        series.Discard(disturbed, elapsed);
        continue;
      }
      series.Add(seconds, elapsed);
      if (options_.sm_clock_hertz) {
        clock = std::max(clock, options_.sm_clock_hertz());
      }
    }
    Statistics statistics = series.Summary();
    if (statistics.samples == 0) {
      return absl::AbortedError(
          absl::StrCat("all ", statistics.discarded,
                       " samples were disturbed: ", statistics.discard_reason));
    }
    statistics.verified = true;
    statistics.sm_clock_hertz = clock;
    return statistics;
  }

 private:
  absl::Status Capture() {
    for (Lane& lane : lanes_) {
      RETURN_IF_CUDA_ERROR(cudaStreamBeginCapture(
          lane.stream, cudaStreamCaptureModeThreadLocal));
    }
    const absl::Status queued = case_.Enqueue(chain_);
    // Every capture is ended, whatever became of the others.
    std::vector<cudaGraph_t> graphs;
    absl::Status ended;
    for (Lane& lane : lanes_) {
      cudaGraph_t graph = nullptr;
      ended.Update(ToStatus(cudaStreamEndCapture(lane.stream, &graph),
                            "cudaStreamEndCapture"));
      graphs.push_back(graph);
    }
    absl::Status made = queued.ok() ? ended : queued;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (graphs[i] == nullptr) continue;
      if (made.ok()) {
        CurrentDevice current(lanes_[i].device);
        cudaGraphExec_t graph = nullptr;
        made.Update(ToStatus(cudaGraphInstantiate(&graph, graphs[i], 0),
                             "cudaGraphInstantiate"));
        if (graph != nullptr) {
          lanes_[i].graph = GraphExec(lanes_[i].device, graph);
        }
      }
      cudaGraphDestroy(graphs[i]);
    }
    return made;
  }

  // Seconds of one operation: `count` of them behind a closed gate, on all
  // devices, stamped before and after on each.
  absl::StatusOr<double> Sample(int count, bool graph) {
    gate_->Close();
    for (Lane& lane : lanes_) {
      CurrentDevice current(lane.device);
      RETURN_IF_CUDA_ERROR(LaunchGate(
          gate_->flag(),
          static_cast<uint64_t>(absl::ToInt64Nanoseconds(kGateTimeout)),
          lane.stream));
      RETURN_IF_CUDA_ERROR(cudaEventRecord(lane.start.get(), lane.stream));
    }
    // Eager launches are what is measured: the gate must not hide them.
    if (!graph) gate_->Open();
    if (graph) {
      for (Lane& lane : lanes_) {
        CurrentDevice current(lane.device);
        RETURN_IF_CUDA_ERROR(cudaGraphLaunch(lane.graph.get(), lane.stream));
      }
    } else {
      RETURN_IF_ERROR(case_.Enqueue(count));
    }
    for (Lane& lane : lanes_) {
      CurrentDevice current(lane.device);
      RETURN_IF_CUDA_ERROR(cudaEventRecord(lane.stop.get(), lane.stream));
    }
    gate_->Open();
    RETURN_IF_ERROR(Drain());
    double slowest = 0;
    for (Lane& lane : lanes_) {
      float milliseconds = 0;
      RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, lane.start.get(),
                                                lane.stop.get()));
      slowest = std::max(slowest, milliseconds * 1e-3);
    }
    return slowest / (count * case_.OperationsPerEnqueue());
  }

  // Seconds of one operation as nccl-tests takes them: the graph is new, so its
  // first launch, which uploads it, is among those timed.
  absl::StatusOr<double> HostSample(bool graph) {
    if (graph) RETURN_IF_ERROR(Capture());
    const absl::Time begin = absl::Now();
    for (int replay = 0; replay < kNcclTestsReplays; ++replay) {
      if (!graph) {
        RETURN_IF_ERROR(case_.Enqueue(chain_));
        continue;
      }
      for (Lane& lane : lanes_) {
        CurrentDevice current(lane.device);
        RETURN_IF_CUDA_ERROR(cudaGraphLaunch(lane.graph.get(), lane.stream));
      }
    }
    RETURN_IF_ERROR(Drain());
    return absl::ToDoubleSeconds(absl::Now() - begin) /
           (chain_ * kNcclTestsReplays * case_.OperationsPerEnqueue());
  }

  // Waits for all devices, but not for ever.
  absl::Status Drain() {
    const absl::Time deadline = absl::Now() + kSampleTimeout;
    for (const Lane& lane : lanes_) {
      while (true) {
        const cudaError_t state = cudaStreamQuery(lane.stream);
        if (state == cudaSuccess) break;
        if (state != cudaErrorNotReady) RETURN_IF_CUDA_ERROR(state);
        if (options_.stop && options_.stop()) {
          return absl::CancelledError("asked to stop");
        }
        if (absl::Now() > deadline) {
          return absl::DeadlineExceededError(
              absl::StrCat("GPU ", lane.device, " is not done after ",
                           absl::FormatDuration(kSampleTimeout)));
        }
        std::this_thread::yield();
      }
    }
    return absl::OkStatus();
  }

  Case& case_;
  Node& node_;
  const LoopOptions& options_;
  std::unique_ptr<GateSwitch> gate_;
  std::vector<Lane> lanes_;
  int chain_ = kMinChain;
};

}  // namespace

absl::StatusOr<Statistics> TimeCase(Case& benchmark, Node& node,
                                    const LoopOptions& options) {
  ASSIGN_OR_RETURN(const Statistics statistics,
                   Loop(benchmark, node, options).Run());
  if (benchmark.company() == nullptr) return statistics;
  ASSIGN_OR_RETURN(const Statistics alone,
                   Loop(*benchmark.company(), node, options).Run());
  return Difference(statistics, alone);
}

}  // namespace fabricwise
