// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/measuring.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/daemon/log.h"
#include "server/daemon/profile_store.h"

namespace fabricwise {
namespace {

constexpr char kWorkerName[] = "fabricwise-worker";

// What a profile that was measured here is called: after its host.
std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') {
    return "this node";
  }
  return name;
}

absl::Duration SteadyTime() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

DuePolicy PolicyOf(const Config& config) {
  DuePolicy policy;
  policy.quick_interval = config.quick_interval;
  policy.full_interval = config.full_interval;
  policy.budget_ratio = config.gpu_budget_ratio;
  return policy;
}

Scheduler::Options SchedulerOptions(const Config& config) {
  Scheduler::Options options;
  options.policy = PolicyOf(config);
  options.scheduled = config.measure == MeasureMode::kScheduled;
  options.seed = std::random_device()();
  return options;
}

void LogWorkerLine(absl::string_view line) {
  fabricwise::Log(LogLevel::kInfo, "worker says",
                  {{"line", std::string(line)}});
}

}  // namespace

Measuring::Measuring(const Config& config, const std::string& worker,
                     Store* store, SnapshotHolder* snapshots,
                     const Clock* clock, std::function<void()> on_stored,
                     std::function<std::vector<MeasurementKey>()> wanted)
    : store_(store),
      snapshots_(snapshots),
      on_stored_(std::move(on_stored)),
      wanted_(std::move(wanted)),
      runner_(
          [this, command = WorkerCommand{.path = worker}](
              const worker::v1::WorkerPlan& plan, const WorkerLimits& limits,
              const std::stop_token& stop,
              const WorkerLauncher::Listener& listener) {
            return launcher_.Run(command, plan, limits, stop, listener);
          },
          RunnerOptions(), clock, LogWorkerLine),
      scheduler_(SchedulerOptions(config), &runner_, this, clock, SteadyTime) {}

void Measuring::SetPolicy(const Config& config) {
  scheduler_.SetPolicy(PolicyOf(config));
}

std::string Measuring::NodeFingerprintId() const {
  std::lock_guard lock(mutex_);
  return node_fingerprint_id_;
}

absl::StatusOr<std::optional<MeasurementSink::Span>> Measuring::OnProbe(
    const NodeProbe& probe) {
  const std::string id = FingerprintId(probe.fingerprint);
  std::string former = id;
  {
    std::lock_guard lock(mutex_);
    former.swap(node_fingerprint_id_);
  }
  if (former != id) {
    if (!former.empty()) ++fingerprint_changes_;
    fabricwise::Log(former.empty() ? LogLevel::kInfo : LogLevel::kWarning,
                    former.empty() ? "node looked at" : "node has changed",
                    {{"fingerprint", id},
                     {"gpus", absl::StrCat(probe.fingerprint.gpus.size())},
                     {"fabric", probe.fingerprint.fabric},
                     {"findings", absl::StrCat(probe.findings.size())}});
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> profile,
                   store_->FindProfile(id));
  if (!profile) return std::nullopt;
  ASSIGN_OR_RETURN(const StoredProfile stored, store_->Load(*profile));
  std::optional<Span> span;
  for (const Measurement& m : stored.measurements) {
    if (m.origin != Origin::kMeasured || m.fingerprint_id != id) continue;
    if (!span) span = Span{.newest = m.start_time, .oldest = m.start_time};
    span->newest = std::max(span->newest, m.start_time);
    span->oldest = std::min(span->oldest, m.start_time);
  }
  // A profile that somebody chose stays in use until the node is measured; one
  // of this node as it was gives way to one of it as it is.
  const std::shared_ptr<const Snapshot> in_use = snapshots_->Get();
  if (in_use == nullptr ||
      (in_use->profile->fingerprint_id() == former && former != id)) {
    RETURN_IF_ERROR(Publish(probe.fingerprint));
  }
  return span;
}

absl::Status Measuring::Keep(const Fingerprint& fingerprint,
                             absl::Span<const Measurement> measurements) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> profile,
                   store_->FindProfile(FingerprintId(fingerprint)));
  if (profile) {
    RETURN_IF_ERROR(store_->Append(*profile, measurements).status());
  } else {
    RETURN_IF_ERROR(
        store_
            ->Import(
                {.name = HostName(),
                 .fingerprint = fingerprint,
                 .notes = {"measured here by fabricwise-worker"},
                 .measurements = {measurements.begin(), measurements.end()}})
            .status());
  }
  on_stored_();
  return absl::OkStatus();
}

absl::Status Measuring::Publish(const Fingerprint& fingerprint) {
  const std::string id = FingerprintId(fingerprint);
  ASSIGN_OR_RETURN(const std::optional<int64_t> found, store_->FindProfile(id));
  if (!found) {
    return absl::NotFoundError(absl::StrCat("no profile of node ", id));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Profile> profile,
                   LoadProfile(*store_, *found));
  RETURN_IF_ERROR(store_->Select(*found));
  fabricwise::Log(LogLevel::kInfo, "profile taken into use",
                  {{"profile", profile->name()}, {"fingerprint", id}});
  snapshots_->Set(std::move(profile));
  return absl::OkStatus();
}

void Measuring::Log(
    Level level, absl::string_view event,
    const std::vector<std::pair<absl::string_view, std::string>>& fields) {
  std::vector<LogField> all;
  for (const auto& [name, value] : fields) {
    all.push_back({.name = name, .value = value});
  }
  switch (level) {
    case Level::kDebug:
      return fabricwise::Log(LogLevel::kDebug, event, all);
    case Level::kInfo:
      return fabricwise::Log(LogLevel::kInfo, event, all);
    case Level::kWarning:
      return fabricwise::Log(LogLevel::kWarning, event, all);
    case Level::kError:
      return fabricwise::Log(LogLevel::kError, event, all);
  }
}

absl::StatusOr<std::string> FindWorker(const Config& config) {
  if (config.worker == kNoWorker) return "";
  std::error_code error;
  if (config.worker == kWorkerBesideUs) {
    const std::filesystem::path us =
        std::filesystem::read_symlink("/proc/self/exe", error);
    const std::filesystem::path beside = us.parent_path() / kWorkerName;
    return access(beside.c_str(), X_OK) == 0 ? beside.string() : "";
  }
  if (access(config.worker.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(
        "worker is ", config.worker,
        ", which is no program that can be run; allowed: the path of "
        "fabricwise-worker, auto, none"));
  }
  return config.worker;
}

}  // namespace fabricwise
