// SPDX-License-Identifier: Apache-2.0
#include "server/measure/runner.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/measure/collect.h"
#include "server/measure/probe.h"

namespace fabricwise {
namespace {

using worker::v1::WorkerFrame;
using worker::v1::WorkerPlan;

absl::Status Busy() {
  return absl::FailedPreconditionError(
      "the node's GPUs are busy: another process is on one of them");
}

absl::Status Annotate(absl::string_view context, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(context, ": ", status.message()));
}

}  // namespace

Runner::Runner(RunWorker run_worker, const RunnerOptions& options,
               const Clock* clock,
               std::function<void(absl::string_view)> on_log)
    : run_worker_(std::move(run_worker)),
      options_(options),
      clock_(clock),
      on_log_(std::move(on_log)) {}

WorkerLimits Runner::Limits(absl::Duration budget) const {
  return {.run = options_.start_limit + budget + options_.key_limit +
                 options_.patience,
          .first_frame = options_.start_limit,
          .between_frames = options_.key_limit + options_.patience};
}

Runner::Look Runner::Probe(std::stop_token stop) {
  Look look = {.probe = absl::InternalError("the worker ended without a Probe"),
               .report = {}};
  WorkerPlan plan;
  plan.set_probe_only(true);
  const WorkerRun run = run_worker_(
      plan, Limits(absl::ZeroDuration()), std::move(stop),
      {.on_frame =
           [&](const WorkerFrame& frame) {
             if (frame.has_probe()) {
               look.probe = ReadProbe(frame.probe(), clock_->Now());
               return look.probe.status();
             }
             if (frame.has_done()) {
               look.report.gpu_time =
                   absl::Milliseconds(frame.done().gpu_milliseconds());
               return absl::OkStatus();
             }
             return absl::InternalError(
                 "the worker measures, though it was only asked to look");
           },
       .on_log = on_log_});
  if (!run.status.ok()) look.probe = run.status;
  look.report.status = look.probe.status();
  if (look.probe.ok()) {
    look.report.verdict = RunVerdict::kKept;
  } else if (run.end == WorkerEnd::kStopped) {
    look.report.verdict = RunVerdict::kCancelled;
  } else {
    ++look.report.faults[run.end];
  }
  return look;
}

// One worker's share while it runs.
class Runner::Part {
 public:
  Part(const PlanPart& plan, const std::string& fingerprint_id,
       const Clock* clock)
      : collector_(plan.keys), fingerprint_id_(fingerprint_id), clock_(clock) {}

  // `on_progress` gets what concerns this part alone; counts are its own.
  absl::Status Take(
      const WorkerFrame& frame,
      const std::function<void(const RunProgress&)>& on_progress) {
    switch (frame.body_case()) {
      case WorkerFrame::kProbe:
        return Check(frame.probe());
      case WorkerFrame::kProgress:
        RETURN_IF_ERROR(collector_.Check(frame.progress()));
        on_progress({.done_count = collector_.answered_count(),
                     .key = frame.progress().key()});
        return absl::OkStatus();
      case WorkerFrame::kResult: {
        ASSIGN_OR_RETURN(
            Measurement measurement,
            collector_.Add(frame.result(), fingerprint_id_, clock_->Now()));
        on_progress({.done_count = collector_.answered_count(),
                     .key = frame.result().key(),
                     .measurement = std::move(measurement)});
        return absl::OkStatus();
      }
      case WorkerFrame::kSkip:
        RETURN_IF_ERROR(collector_.Add(frame.skip()));
        on_progress({.done_count = collector_.answered_count(),
                     .key = frame.skip().key()});
        return absl::OkStatus();
      case WorkerFrame::kDone:
        gpu_time_ = absl::Milliseconds(frame.done().gpu_milliseconds());
        yielded_ = frame.done().yielded();
        return absl::OkStatus();
      case WorkerFrame::BODY_NOT_SET:
        break;
    }
    return absl::InternalError("the worker said nothing in a frame");
  }

  const Collector& collector() const { return collector_; }
  absl::Duration gpu_time() const { return gpu_time_; }
  bool yielded() const { return yielded_; }
  bool changed() const { return changed_; }

 private:
  // Before anything is measured: is it still this node, and still idle?
  absl::Status Check(const worker::v1::Probe& probe) {
    ASSIGN_OR_RETURN(const NodeProbe now, ReadProbe(probe, clock_->Now()));
    changed_ = FingerprintId(now.fingerprint) != fingerprint_id_;
    yielded_ = now.busy;
    if (changed_) {
      return absl::AbortedError("the node is no longer as it was looked at");
    }
    return yielded_ ? Busy() : absl::OkStatus();
  }

  Collector collector_;
  const std::string& fingerprint_id_;
  const Clock* const clock_;
  absl::Duration gpu_time_;
  bool yielded_ = false;
  bool changed_ = false;
};

RunReport Runner::Run(const RunPlan& plan, const NodeProbe& probe,
                      const std::stop_token& stop, const Hooks& hooks) {
  const std::string fingerprint_id = FingerprintId(probe.fingerprint);
  RunReport report;
  int64_t done_before = 0;
  for (const PlanPart& planned : plan.parts) {
    if (stop.stop_requested()) {
      report.status = absl::CancelledError("the run was cancelled");
      report.verdict = RunVerdict::kCancelled;
      return report;
    }
    WorkerPlan worker_plan;
    for (const MeasurementKey& key : planned.keys) {
      worker_plan.add_keys(ToString(key));
    }
    worker_plan.set_budget_milliseconds(
        absl::ToInt64Milliseconds(planned.budget));
    worker_plan.set_key_deadline_milliseconds(
        absl::ToInt64Milliseconds(options_.key_limit));
    worker_plan.set_target_relative_iqr(options_.target_relative_iqr);
    worker_plan.set_refine(true);

    Part part(planned, fingerprint_id, clock_);
    const auto on_progress = [&](RunProgress progress) {
      progress.done_count += done_before;
      progress.total_count = plan.key_count;
      hooks.on_progress(progress);
    };
    const WorkerRun run =
        run_worker_(worker_plan, Limits(planned.budget), stop,
                    {.on_frame =
                         [&](const WorkerFrame& frame) {
                           return part.Take(frame, on_progress);
                         },
                     .on_log = on_log_});
    // One that did not say how long it held the GPUs held them all the while.
    report.gpu_time +=
        run.status.ok()
            ? part.gpu_time()
            : run.wall * static_cast<int>(probe.fingerprint.gpus.size());

    if (run.status.ok() && !part.collector().measurements().empty()) {
      // Kept as a whole, since its worker ended well.
      if (const absl::Status kept = hooks.keep(part.collector().measurements());
          !kept.ok()) {
        report.status = kept;
        report.verdict = RunVerdict::kFailed;
        return report;
      }
      report.kept_count += std::ssize(part.collector().measurements());
    }
    for (const auto& [reason, count] : part.collector().skipped()) {
      on_log_(
          absl::StrCat(planned.name, ": ", count, " keys skipped: ", reason));
    }
    if (run.end == WorkerEnd::kStopped) {
      report.status = absl::CancelledError("the run was cancelled");
      report.verdict = RunVerdict::kCancelled;
      return report;
    }
    if (part.yielded()) {
      report.status = Busy();
      report.verdict = RunVerdict::kYielded;
      return report;
    }
    if (part.changed()) {
      report.status = run.status;
      report.verdict = RunVerdict::kFailed;
      return report;
    }
    if (!run.status.ok()) {
      ++report.faults[run.end];
      const absl::Status status = Annotate(
          absl::StrCat(planned.name, ", ", part.collector().answered_count(),
                       " of ", planned.keys.size(), " keys done"),
          run.status);
      on_log_(status.message());
      // The first one tells most; later ones often follow from it.
      if (report.status.ok()) report.status = status;
    }
    done_before += std::ssize(planned.keys);
  }
  report.verdict =
      report.kept_count > 0 ? RunVerdict::kKept : RunVerdict::kFailed;
  if (report.status.ok() && report.kept_count == 0) {
    report.status = absl::FailedPreconditionError(
        "the worker can measure none of the keys on this node");
  }
  return report;
}

}  // namespace fabricwise
