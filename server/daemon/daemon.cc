// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/daemon.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "server/base/status_macros.h"
#include "server/daemon/certificates.h"
#include "server/daemon/features.h"
#include "server/daemon/log.h"
#include "server/daemon/lookout.h"
#include "server/daemon/measuring.h"
#include "server/daemon/profile_store.h"
#include "server/daemon/unix_socket.h"
#include "server/daemon/version.h"
#include "server/daemon/wanted_keys.h"
#include "server/metrics/collector.h"
#include "server/metrics/exposer.h"
#include "server/metrics/request_metrics.h"
#include "server/profile/drift.h"
#include "server/rpc/access.h"
#include "server/rpc/answer.h"
#include "server/rpc/handler.h"
#include "server/rpc/observer.h"
#include "server/rpc/service.h"
#include "server/rpc/snapshot.h"
#include "server/rpc/tls.h"
#include "server/rpc/token_bucket.h"
#include "server/store/store.h"

namespace fabricwise {
namespace {

// The names of all RPCs that are counted, from the contract itself.
std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const char* service :
       {"fabricwise.v1.ParallelismAdvisor", "fabricwise.v1.NodeProfiler"}) {
    const auto* descriptor =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            service);
    for (int i = 0; descriptor != nullptr && i < descriptor->method_count();
         ++i) {
      names.push_back(descriptor->method(i)->name());
    }
  }
  return names;
}

class MetricsObserver final : public RequestObserver {
 public:
  explicit MetricsObserver(RequestMetrics* metrics) : metrics_(metrics) {}

  void OnRequest(const RequestEvent& event) override {
    metrics_->Record(event.method, event.code, event.duration, event.cached);
  }

 private:
  RequestMetrics* const metrics_;
};

absl::Status MakeFolderOf(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(
      error.value(), absl::StrCat("cannot make the folder ", folder.string()));
}

absl::Status MakeDefaultFolders(const Config& config, const Config& defaults) {
  if (config.database == defaults.database) {
    RETURN_IF_ERROR(MakeFolderOf(config.database));
  }
  for (const ListenAddress& address : config.listen) {
    for (const ListenAddress& made : defaults.listen) {
      if (address.is_unix() && address.unix_path == made.unix_path) {
        RETURN_IF_ERROR(MakeFolderOf(address.unix_path));
      }
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<const Profile> LoadCurrentOrLog(Store& store) {
  absl::StatusOr<std::shared_ptr<const Profile>> profile =
      LoadCurrentProfile(store);
  if (profile.ok()) return *std::move(profile);
  Log(LogLevel::kError, "profile not loaded",
      {{"reason", std::string(profile.status().message())},
       {"remedy", "import a profile"}});
  return nullptr;
}

// All that can occur, so that each series is there from the start.
constexpr RunKind kRunKinds[] = {RunKind::kProbe, RunKind::kQuick,
                                 RunKind::kFull};
constexpr RunVerdict kVerdicts[] = {RunVerdict::kKept, RunVerdict::kYielded,
                                    RunVerdict::kCancelled,
                                    RunVerdict::kFailed};
constexpr SkipReason kSkips[] = {SkipReason::kBusy, SkipReason::kOverBudget,
                                 SkipReason::kBackOff};
constexpr WorkerEnd kFaults[] = {WorkerEnd::kNotStarted, WorkerEnd::kHung,
                                 WorkerEnd::kDied, WorkerEnd::kGarbled,
                                 WorkerEnd::kRefused};

MeasuringFacts FactsOf(const Measuring* measuring) {
  MeasuringFacts facts;
  SchedulerCounts counts;
  if (measuring != nullptr) {
    facts.worker_installed = true;
    facts.node_fingerprint = measuring->NodeFingerprintId();
    facts.fingerprint_changes = measuring->fingerprint_changes();
    counts = measuring->Counts();
  }
  facts.measuring = counts.measuring;
  facts.gpu_time = counts.gpu_time;
  for (const RunKind kind : kRunKinds) {
    for (const RunVerdict verdict : kVerdicts) {
      facts.runs.push_back(
          {{std::string(ToString(kind)), std::string(ToString(verdict))},
           counts.runs[{kind, verdict}]});
    }
  }
  for (const SkipReason reason : kSkips) {
    facts.skips.emplace_back(ToString(reason), counts.skips[reason]);
  }
  for (const WorkerEnd fault : kFaults) {
    facts.faults.emplace_back(ToString(fault), counts.faults[fault]);
  }
  return facts;
}

// gRPC's own errors. What a stranger can cause, as by a failed handshake, must
// not fill a log.
void LogGrpcLine(absl::string_view line) {
  constexpr int64_t kLinesPerMinute = 10;
  static std::mutex mutex;
  static TokenBucket bucket(kLinesPerMinute);
  {
    std::lock_guard lock(mutex);
    if (bucket.Take(Clock::Real()->Now()) > absl::ZeroDuration()) return;
  }
  Log(LogLevel::kWarning, "grpc says", {{"line", std::string(line)}});
}

// Sets the mode of files that are made while it lives.
class ScopedUmask {
 public:
  explicit ScopedUmask(mode_t mask) : former_(umask(mask)) {}
  ~ScopedUmask() { umask(former_); }

 private:
  const mode_t former_;
};

}  // namespace

// In the order of making; torn down from the last to the first, unless Drain
// has.
struct Daemon::Parts {
  Parts(const Config& started_with, const Clock* c)
      : clock(c),
        start_time(c->Now()),
        config(started_with),
        access(started_with.access, c) {}

  const Clock* const clock;
  const absl::Time start_time;
  Config config;
  std::atomic<bool> config_read_well = true;
  Access access;
  SnapshotHolder snapshots;
  RequestMetrics requests{MethodNames()};
  MetricsObserver observer{&requests};
  std::unique_ptr<Store> store;
  std::optional<StoreBackend> backend;
  std::optional<Handler> handler;
  std::unique_ptr<Measuring> measuring;  // null: no worker
  std::unique_ptr<Lookout> lookout;
  CertificatesInUse certificates;
  std::unique_ptr<MetricsServer> metrics;
  std::unique_ptr<RpcServer> rpc;
  std::vector<ListenAddress> listening;  // config's, with the ports it got

  absl::Status PrepareMeasuring();
  absl::Status PrepareLookout();
  absl::Status StartMetrics();
  absl::Status StartRpc();
};

absl::Status Daemon::Parts::PrepareMeasuring() {
  ASSIGN_OR_RETURN(const std::string worker, FindWorker(config));
  if (worker.empty()) {
    Log(LogLevel::kInfo, "no worker, not measuring");
    return absl::OkStatus();
  }
  measuring = std::make_unique<Measuring>(
      config, worker, store.get(), &snapshots, clock,
      [this] { backend->OnStored(); },
      [this] {
        std::vector<ModelShape> models;
        for (const v1::Model& asked : handler->recent_models().Get()) {
          if (auto model = ResolveModel(asked); model.ok()) {
            models.push_back(*std::move(model));
          }
        }
        const std::optional<NodeProbe> probe = measuring->LastProbe();
        return probe ? WantedKeys(models, probe->fingerprint)
                     : std::vector<MeasurementKey>();
      });
  backend->SetMeasuring(measuring.get());
  Log(LogLevel::kInfo, "worker found", {{"path", worker}});
  return absl::OkStatus();
}

absl::Status Daemon::Parts::PrepareLookout() {
  Lookout::Options options;
  options.scenarios = config.scenarios;
  if (!config.reference_profile.empty()) {
    auto reference = LoadProfileFile(config.reference_profile);
    if (!reference.ok()) {
      return absl::Status(
          reference.status().code(),
          absl::StrCat("reference-profile: ", reference.status().message()));
    }
    options.reference = *std::move(reference);
  }
  options.history = [this](const std::string& fingerprint_id) {
    // The last run, and those that it is compared with.
    return store->History(fingerprint_id, 1 + kMostBaselineRuns);
  };
  options.on_drift = [this] {
    if (measuring != nullptr) measuring->OnDrift();
  };
  options.on_look = [path = config.features_file, told = std::string()](
                        const Profile& profile,
                        const Outlook& outlook) mutable {
    if (path.empty()) return true;
    const absl::Status status =
        ReplaceFile(path, NodeFeatures(profile, outlook));
    if (!status.ok() && status.message() != told) {
      Log(LogLevel::kError, "features not written",
          {{"reason", std::string(status.message())},
           {"remedy", "mend it; it is tried again by itself"}});
    } else if (status.ok() && !told.empty()) {
      Log(LogLevel::kInfo, "features written");
    }
    told = std::string(status.message());
    return status.ok();
  };
  lookout = std::make_unique<Lookout>(std::move(options), &snapshots);
  return absl::OkStatus();
}

absl::Status Daemon::Parts::StartMetrics() {
  if (!config.metrics_listen) return absl::OkStatus();
  MetricSources sources;
  sources.version = kVersion;
  sources.start_time = start_time;
  sources.requests = &requests;
  sources.config_read_well = [this] { return config_read_well.load(); };
  sources.certificates = [this] { return certificates.Get(); };
  sources.stored_measurements = [this] {
    return backend->State().measurement_count;
  };
  sources.measuring = [this] { return FactsOf(measuring.get()); };
  sources.outlook = [this] { return lookout->Get(); };
  sources.profile = [this]() -> ProfileInUse {
    const std::shared_ptr<const Snapshot> snapshot = snapshots.Get();
    if (snapshot == nullptr) return {};
    return {snapshot->profile, snapshot->number};
  };
  ListenAddress address = *config.metrics_listen;
  absl::StatusOr<std::unique_ptr<MetricsServer>> started =
      MetricsServer::Start(address.ToString(), MakeCollector(sources));
  if (!started.ok()) {
    return absl::Status(
        started.status().code(),
        absl::StrCat("metrics-listen: ", started.status().message()));
  }
  metrics = *std::move(started);
  address.port = metrics->port();
  Log(LogLevel::kInfo, "serving metrics", {{"address", address.ToString()}});
  if (!address.is_local()) {
    Log(LogLevel::kWarning, "metrics are open to other machines",
        {{"address", address.ToString()}});
  }
  return absl::OkStatus();
}

absl::Status Daemon::Parts::StartRpc() {
  RpcServerOptions options;
  options.max_request_bytes = static_cast<int>(config.max_request_bytes);
  options.slow_threads = static_cast<int>(config.slow_threads);
  options.max_concurrent_streams = static_cast<int>(config.max_streams);
  if (config.max_connection_age > absl::ZeroDuration()) {
    options.max_connection_age = config.max_connection_age;
  }
  if (!config.tls.certificate.empty()) options.tls = config.tls;
  options.tls_observer = [this](const absl::StatusOr<TlsDates>& read) {
    certificates.OnRead(read, clock->Now());
  };
  for (const ListenAddress& address : config.listen) {
    if (address.is_unix()) {
      RETURN_IF_ERROR(ClearStaleSocket(address.unix_path));
    }
    options.addresses.push_back(
        {.address = address.ToString(), .tls = !address.is_local()});
  }
  {
    // Nobody gets through to a socket before its mode says so.
    constexpr mode_t kAll = 0777;
    const ScopedUmask mask(kAll & ~static_cast<mode_t>(config.socket_mode));
    ASSIGN_OR_RETURN(rpc, RpcServer::Start(options, &*handler, &snapshots,
                                           &observer, &access));
  }
  for (size_t i = 0; i < config.listen.size(); ++i) {
    ListenAddress address = config.listen[i];
    if (!address.is_unix()) {
      address.port = rpc->ports().at(i);
    } else if (!config.socket_group.empty()) {
      const absl::Status given =
          GiveToGroup(address.unix_path, config.socket_group);
      if (!given.ok()) {
        return absl::Status(given.code(),
                            absl::StrCat("socket-group: ", given.message()));
      }
    }
    Log(LogLevel::kInfo, "listening",
        {{"address", address.ToString()},
         {"tls", address.is_local() ? "no" : "yes"}});
    listening.push_back(std::move(address));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config,
                                                      const Config& defaults,
                                                      const Clock* clock) {
  SetGrpcLog(LogGrpcLine);
  RETURN_IF_ERROR(MakeDefaultFolders(config, defaults));
  auto parts = std::make_unique<Parts>(config, clock);
  ASSIGN_OR_RETURN(parts->store, Store::Open(config.database));
  Log(LogLevel::kInfo, "store opened",
      {{"path", config.database},
       {"measurements", absl::StrCat(parts->store->MeasurementCount())}});
  if (!config.profile.empty()) {
    RETURN_IF_ERROR(ImportProfileFile(config.profile, *parts->store));
  }
  parts->backend.emplace(parts->store.get(), parts->start_time);
  if (auto profile = LoadCurrentOrLog(*parts->store)) {
    Log(LogLevel::kInfo, "profile loaded",
        {{"profile", profile->name()},
         {"fingerprint", profile->fingerprint_id()},
         {"as_of",
          absl::FormatTime(profile->data().as_of, absl::UTCTimeZone())}});
    parts->snapshots.Set(std::move(profile));
  } else {
    Log(LogLevel::kWarning, "no profile, not serving",
        {{"remedy", "import one, or start with --profile FILE"}});
  }
  parts->handler.emplace(&parts->snapshots, &*parts->backend, clock,
                         Handler::Options{.cache_bytes = config.cache_bytes});
  RETURN_IF_ERROR(parts->PrepareMeasuring());
  RETURN_IF_ERROR(parts->PrepareLookout());
  RETURN_IF_ERROR(parts->StartMetrics());
  RETURN_IF_ERROR(parts->StartRpc());
  parts->lookout->Start();
  if (parts->measuring != nullptr) parts->measuring->Start();
  Log(LogLevel::kInfo, "started", {{"version", kVersion}});
  return std::unique_ptr<Daemon>(new Daemon(std::move(parts)));
}

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Daemon::~Daemon() = default;

const Config& Daemon::config() const { return parts_->config; }

void Daemon::Reload(const absl::StatusOr<Config>& read) {
  parts_->config_read_well = read.ok();
  if (!read.ok()) {
    Log(LogLevel::kError, "configuration not read, keeping the old one",
        {{"reason", std::string(read.status().message())}});
    return;
  }
  for (const ConfigChange& change : Changes(parts_->config, *read)) {
    Log(change.live ? LogLevel::kInfo : LogLevel::kWarning,
        change.live ? "option changed" : "option needs a restart",
        {{"option", change.option}, {"value", change.value}});
  }
  parts_->config = WithLiveOptions(parts_->config, *read);
  const Config& config = parts_->config;
  SetLogLevel(config.log_level);
  parts_->access.SetRules(config.access);
  parts_->lookout->SetScenarios(config.scenarios);
  if (parts_->measuring != nullptr) parts_->measuring->SetPolicy(config);
  Log(LogLevel::kInfo, "configuration read");
}

std::string Daemon::FindStuck(absl::Duration within) {
  // A full run is held to 5 minutes; its workers' starts and ends come on top.
  constexpr absl::Duration kLongestTask = absl::Minutes(30);
  using Steady = std::chrono::steady_clock;
  const Steady::time_point end =
      Steady::now() + absl::ToChronoNanoseconds(within);
  const auto rest = [&] { return absl::FromChrono(end - Steady::now()); };
  for (const ListenAddress& address : parts_->listening) {
    if (!TakesConnections(address, rest())) {
      return absl::StrCat("connections to ", address.ToString());
    }
  }
  if (!parts_->rpc->Responds(rest())) return "calls";
  if (parts_->measuring != nullptr &&
      parts_->measuring->BusyTime() > kLongestTask) {
    return "measuring";
  }
  return "";
}

std::string Daemon::StatusLine() const {
  const std::shared_ptr<const Snapshot> snapshot = parts_->snapshots.Get();
  return snapshot == nullptr
             ? "no profile to advise from"
             : absl::StrCat("advising from ", snapshot->profile->name());
}

void Daemon::Drain(absl::Duration budget) {
  const absl::Time end = parts_->clock->Now() + budget;
  parts_->rpc->StopServing();
  if (parts_->measuring != nullptr) parts_->measuring->Stop();
  // What the worker's end took comes off, and a clock that was set back adds
  // nothing.
  parts_->rpc->Shutdown(
      std::clamp(end - parts_->clock->Now(), absl::ZeroDuration(), budget));
  parts_->rpc.reset();
  parts_->lookout->Stop();
  parts_->store.reset();
  parts_->metrics.reset();
  Log(LogLevel::kInfo, "stopped");
}

}  // namespace fabricwise
