// SPDX-License-Identifier: Apache-2.0
//
// Stands in for worker processes: does one script a run, in this thread.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/measure/runner.h"
#include "server/measure/worker_process.h"

namespace fabricwise {

class FakeWorker {
 public:
  using Frame = worker::v1::WorkerFrame;
  using Plan = worker::v1::WorkerPlan;
  // Says frames by `say`, until one is refused, and returns how it ended.
  using Say = std::function<absl::Status(const Frame&)>;
  using Script =
      std::function<WorkerRun(const Plan&, std::stop_token, const Say&)>;

  // The script of the next run without one.
  void Then(Script script) { scripts_.push_back(std::move(script)); }

  RunWorker AsFunction() {
    return
        [this](const Plan& plan, const WorkerLimits& held_to,
               std::stop_token stop, const WorkerLauncher::Listener& listener) {
          plans.push_back(plan);
          limits.push_back(held_to);
          Script script = Good();
          if (!scripts_.empty()) {
            script = std::move(scripts_.front());
            scripts_.pop_front();
          }
          absl::Status refused;
          WorkerRun run = script(plan, stop, [&](const Frame& frame) {
            if (refused.ok()) refused = listener.on_frame(frame);
            return refused;
          });
          if (!refused.ok())
            run = {.end = WorkerEnd::kRefused, .status = refused};
          return run;
        };
  }

  static Frame ProbeFrame(int links = 18, int foreign = 0) {
    Frame frame;
    for (int i = 0; i < 2; ++i) {
      auto* const gpu = frame.mutable_probe()->add_gpus();
      gpu->set_name("NVIDIA H200");
      gpu->set_foreign_process_count(foreign);
      auto* const peers = frame.mutable_probe()->add_peers();
      for (int j = 0; j < 2; ++j) {
        peers->add_access(true);
        peers->add_nvlinks(i == j ? 0 : links);
      }
    }
    return frame;
  }
  static Frame ResultFrame(const std::string& key) {
    Frame frame;
    auto* const result = frame.mutable_result();
    result->set_key(key);
    result->set_median_seconds(1e-5);
    result->set_iqr_seconds(1e-7);
    result->set_p99_seconds(2e-5);
    result->set_samples(50);
    result->set_stop_reason(1);
    result->set_verified(true);
    result->set_wall_milliseconds(100);
    return frame;
  }
  static Frame DoneFrame(int64_t gpu_milliseconds = 500) {
    Frame frame;
    frame.mutable_done()->set_gpu_milliseconds(gpu_milliseconds);
    return frame;
  }

  // All that was asked, measured.
  static Script Good(int links = 18, int foreign = 0) {
    return [=](const Plan& plan, std::stop_token, const Say& say) {
      (void)say(ProbeFrame(links, foreign));
      for (const std::string& key : plan.keys()) {
        Frame frame;
        frame.mutable_progress()->set_key(key);
        (void)say(frame);
        (void)say(ResultFrame(key));
      }
      (void)say(DoneFrame());
      return WorkerRun{.end = WorkerEnd::kDone};
    };
  }
  // These frames, and then this end.
  static Script Says(std::vector<Frame> frames, WorkerRun run) {
    return [=](const Plan&, std::stop_token, const Say& say) {
      for (const Frame& frame : frames) (void)say(frame);
      return run;
    };
  }
  // Half of what was asked, then death.
  static Script Dies() {
    return [](const Plan& plan, std::stop_token, const Say& say) {
      (void)say(ProbeFrame());
      for (int i = 0; i < plan.keys_size() / 2; ++i) {
        (void)say(ResultFrame(plan.keys(i)));
      }
      return WorkerRun{
          .end = WorkerEnd::kDied,
          .status = absl::InternalError("the worker died of SIGSEGV"),
          .wall = absl::Seconds(3)};
    };
  }

  std::vector<Plan> plans;           // as asked, in order
  std::vector<WorkerLimits> limits;  // likewise

 private:
  std::deque<Script> scripts_;
};

}  // namespace fabricwise
