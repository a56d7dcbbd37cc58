// SPDX-License-Identifier: Apache-2.0
#include "server/measure/scheduler.h"

#include <pthread.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/measure/plans.h"

namespace fabricwise {
namespace {

using Level = MeasurementSink::Level;

// A thread that has nothing to wait for looks again all the same.
constexpr absl::Duration kLongestWait = absl::Hours(1);

std::string StateWord(SkipReason reason) {
  switch (reason) {
    case SkipReason::kNotDue:
      return "idle";
    case SkipReason::kBusy:
      return "busy";
    case SkipReason::kOverBudget:
      return "over budget";
    case SkipReason::kBackOff:
      return "backing off";
  }
  return "";
}

std::string Text(absl::string_view text) { return std::string(text); }

}  // namespace

Scheduler::Scheduler(const Options& options, Runner* runner,
                     MeasurementSink* sink, const Clock* clock,
                     SteadyTime steady_time)
    : options_(options),
      runner_(runner),
      sink_(sink),
      clock_(clock),
      steady_time_(std::move(steady_time)),
      due_(options.policy, options.seed, steady_time_()) {}

Scheduler::~Scheduler() { Stop(); }

void Scheduler::Start() {
  thread_ = std::thread([this] { Loop(); });
  pthread_setname_np(thread_.native_handle(), "measuring");
}

void Scheduler::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    current_.request_stop();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::optional<Job> refused;
  {
    std::lock_guard lock(mutex_);
    refused.swap(waiting_);
  }
  if (refused) {
    refused->listener.on_end(
        {.status = absl::UnavailableError("the daemon is stopping")});
  }
}

absl::Status Scheduler::Submit(const RunOrder& order, std::stop_token stop,
                               RunListener listener) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return absl::UnavailableError("the daemon is stopping");
    if (busy_ || waiting_) {
      return absl::AbortedError("another run is under way");
    }
    waiting_ = Job{order, std::move(stop), std::move(listener)};
  }
  wake_.notify_all();
  return absl::OkStatus();
}

void Scheduler::OnDrift() {
  {
    std::lock_guard lock(mutex_);
    drifted_ = true;
  }
  wake_.notify_all();
}

void Scheduler::SetPolicy(const DuePolicy& policy) {
  {
    std::lock_guard lock(mutex_);
    policy_ = policy;
  }
  wake_.notify_all();
}

absl::Duration Scheduler::BusyTime() const {
  std::lock_guard lock(mutex_);
  return step_began_ ? steady_time_() - *step_began_ : absl::ZeroDuration();
}

std::optional<NodeProbe> Scheduler::LastProbe() const {
  std::lock_guard lock(mutex_);
  return last_probe_;
}

SchedulerCounts Scheduler::Counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

void Scheduler::Loop() {
  while (true) {
    const absl::Duration wait = std::min(Step(), kLongestWait);
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    wake_.wait_for(lock, absl::ToChronoNanoseconds(wait),
                   [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                     return stopping_ || drifted_ || waiting_.has_value() ||
                            policy_.has_value();
                   });
    if (stopping_) return;
  }
}

absl::Duration Scheduler::Step() {
  std::optional<Job> job;
  bool drifted = false;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return absl::ZeroDuration();
    job.swap(waiting_);
    std::swap(drifted, drifted_);
    if (policy_) due_.SetPolicy(*policy_);
    policy_.reset();
    busy_ = true;
    step_began_ = steady_time_();
    current_ = std::stop_source();
  }
  if (drifted) due_.OnDrift(steady_time_());
  absl::Duration wait = absl::ZeroDuration();
  if (job) {
    Serve(*job);
  } else if (options_.scheduled) {
    wait = StepScheduled();
  } else {
    wait = absl::InfiniteDuration();
  }
  std::lock_guard lock(mutex_);
  busy_ = false;
  step_began_.reset();
  return wait;
}

absl::Duration Scheduler::StepScheduled() {
  absl::Duration now = steady_time_();
  DueClock::Decision decision = due_.Decide(now);
  if (!decision.run) {
    NoteSkip(decision, now);
    return decision.look_again - now;
  }
  std::stop_token stop;
  {
    std::lock_guard lock(mutex_);
    stop = current_.get_token();
  }
  SetState("measuring", "looking at the node");
  const absl::StatusOr<NodeProbe> probe = Probe(stop);
  SetState("idle", "");
  if (!probe.ok()) return absl::ZeroDuration();
  now = steady_time_();
  decision = due_.Decide(now);
  if (!decision.run) {
    NoteSkip(decision, now);
    return decision.look_again - now;
  }
  last_skip_.reset();
  sink_->Log(Level::kInfo, "run begins",
             {{"kind", Text(ToString(*decision.run))}, {"why", decision.text}});
  Measure({.kind = *decision.run}, *probe, stop,
          {.on_progress = [](const RunProgress&) {},
           .on_end = [](const RunResult&) {}});
  return absl::ZeroDuration();
}

void Scheduler::Serve(const Job& job) {
  std::stop_source source;
  {
    std::lock_guard lock(mutex_);
    source = current_;
  }
  const std::stop_callback forward(job.stop,
                                   [&source] { source.request_stop(); });
  SetState("measuring", "looking at the node");
  const absl::StatusOr<NodeProbe> probe = Probe(source.get_token());
  RunResult result;
  if (!probe.ok()) {
    result.status = probe.status();
  } else if (job.order.kind != RunKind::kProbe) {
    if (probe->busy) {
      result.status = absl::FailedPreconditionError(
          "the node's GPUs are busy: another process is on one of them");
    } else {
      sink_->Log(Level::kInfo, "run begins",
                 {{"kind", Text(ToString(job.order.kind))},
                  {"why", "it was asked for"}});
      result = Measure(job.order, *probe, source.get_token(), job.listener);
    }
  }
  SetState("idle", "");
  {
    // Whoever hears of the end may ask for the next run at once.
    std::lock_guard lock(mutex_);
    busy_ = false;
    if (stopping_ && absl::IsCancelled(result.status)) {
      result.status = absl::UnavailableError("the daemon is stopping");
    }
  }
  job.listener.on_end(result);
}

absl::StatusOr<NodeProbe> Scheduler::Probe(std::stop_token stop) {
  Runner::Look look = runner_->Probe(std::move(stop));
  Count(RunKind::kProbe, look.report);
  if (!look.probe.ok()) {
    if (look.report.verdict != RunVerdict::kCancelled) {
      due_.OnProbeFailed(steady_time_());
      sink_->Log(Level::kWarning, "node not looked at",
                 {{"reason", Text(look.probe.status().message())}});
    }
    return look.probe;
  }
  const NodeProbe& probe = *look.probe;
  {
    std::lock_guard lock(mutex_);
    last_probe_ = probe;
  }
  const auto span = sink_->OnProbe(probe);
  if (!span.ok()) {
    due_.OnProbeFailed(steady_time_());
    sink_->Log(Level::kError, "store not read",
               {{"reason", Text(span.status().message())}});
    return span.status();
  }
  std::optional<absl::Duration> quick_age, full_age;
  if (span->has_value()) {
    quick_age = probe.time - (*span)->newest;
    full_age = probe.time - (*span)->oldest;
  }
  due_.OnProbe(steady_time_(), FingerprintId(probe.fingerprint),
               static_cast<int>(probe.fingerprint.gpus.size()), probe.busy,
               quick_age, full_age);
  due_.OnRun(steady_time_(), RunKind::kProbe, RunVerdict::kKept,
             look.report.gpu_time);
  return look.probe;
}

RunResult Scheduler::Measure(const RunOrder& order, const NodeProbe& probe,
                             const std::stop_token& stop,
                             const RunListener& listener) {
  const absl::StatusOr<RunPlan> plan = MakePlan(
      order, static_cast<int>(probe.fingerprint.gpus.size()), sink_->Wanted());
  if (!plan.ok()) return {.status = plan.status()};
  SetState("measuring", Text(ToString(order.kind)));
  const RunReport report =
      runner_->Run(*plan, probe, stop,
                   {.on_progress = listener.on_progress,
                    .keep = [&](absl::Span<const Measurement> measurements) {
                      return sink_->Keep(probe.fingerprint, measurements);
                    }});
  SetState("idle", "");
  Count(order.kind, report);
  // A choice of keys says nothing about the age of all the others.
  due_.OnRun(steady_time_(),
             order.key_prefixes.empty() ? order.kind : RunKind::kProbe,
             report.verdict, report.gpu_time);
  RunResult result = {.status = report.status, .kept_count = report.kept_count};
  if (report.verdict == RunVerdict::kKept && !report.status.ok()) {
    result.note = Text(report.status.message());
    result.status = absl::OkStatus();
  }
  if (report.kept_count > 0) {
    const absl::Status published = sink_->Publish(probe.fingerprint);
    result.profile_changed = published.ok();
    if (!published.ok()) result.status = published;
  }
  sink_->Log(
      result.status.ok() && result.note.empty() ? Level::kInfo
                                                : Level::kWarning,
      "run ended",
      {{"kind", Text(ToString(order.kind))},
       {"verdict", Text(ToString(report.verdict))},
       {"kept", absl::StrCat(report.kept_count)},
       {"gpu_seconds", absl::StrCat(absl::ToDoubleSeconds(report.gpu_time))},
       {"reason",
        result.note.empty() ? Text(result.status.message()) : result.note}});
  return result;
}

void Scheduler::Count(RunKind kind, const RunReport& report) {
  std::lock_guard lock(mutex_);
  ++counts_.runs[{kind, report.verdict}];
  for (const auto& [fault, count] : report.faults) {
    counts_.faults[fault] += count;
  }
  counts_.gpu_time += report.gpu_time;
  counts_.kept_count += report.kept_count;
}

void Scheduler::NoteSkip(const DueClock::Decision& decision,
                         absl::Duration now) {
  // Looking early, since somebody woke us, is no further skip.
  const bool anew = last_skip_ != decision.skip || now >= last_look_again_;
  last_skip_ = decision.skip;
  last_look_again_ = decision.look_again;
  SetState(StateWord(decision.skip), decision.text);
  if (!anew || decision.skip == SkipReason::kNotDue) return;
  {
    std::lock_guard lock(mutex_);
    ++counts_.skips[decision.skip];
  }
  sink_->Log(
      Level::kInfo, "run put off",
      {{"reason", Text(ToString(decision.skip))}, {"detail", decision.text}});
}

void Scheduler::SetState(std::string state, std::string detail) {
  std::lock_guard lock(mutex_);
  counts_.measuring = state == "measuring";
  counts_.state = std::move(state);
  counts_.detail = std::move(detail);
}

}  // namespace fabricwise
