// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/lookout.h"

#include <pthread.h>

#include "absl/strings/str_cat.h"
#include "server/daemon/log.h"
#include "server/recommend/advice.h"

namespace fabricwise {

Lookout::Lookout(Options options, SnapshotHolder* snapshots)
    : options_(std::move(options)),
      snapshots_(snapshots),
      scenarios_(options_.scenarios) {}

Lookout::~Lookout() { Stop(); }

void Lookout::Start() {
  subscription_ = snapshots_->Subscribe([this] { LookSoon(); });
  thread_ = std::thread([this] { Loop(); });
  pthread_setname_np(thread_.native_handle(), "lookout");
}

void Lookout::Stop() {
  subscription_ = SnapshotHolder::Subscription();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Lookout::SetScenarios(std::vector<Scenario> scenarios) {
  {
    std::lock_guard lock(mutex_);
    scenarios_ = std::move(scenarios);
  }
  LookSoon();
}

void Lookout::LookSoon() {
  {
    std::lock_guard lock(mutex_);
    changed_ = true;
  }
  wake_.notify_all();
}

std::shared_ptr<const Outlook> Lookout::Get() const {
  std::lock_guard lock(mutex_);
  return outlook_;
}

void Lookout::Loop() {
  bool well = true;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto due = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopping_ || changed_;
      };
      if (well) {
        wake_.wait(lock, due);
      } else {
        wake_.wait_for(lock, absl::ToChronoNanoseconds(options_.retry), due);
      }
      if (stopping_) return;
      changed_ = false;
    }
    well = Look();
  }
}

bool Lookout::Look() {
  const std::shared_ptr<const Snapshot> snapshot = snapshots_->Get();
  if (snapshot == nullptr) return true;
  const Profile& profile = *snapshot->profile;
  std::shared_ptr<const Outlook> former;
  std::vector<Scenario> scenarios;
  {
    std::lock_guard lock(mutex_);
    former = outlook_;
    scenarios = scenarios_;
  }
  const auto former_advice =
      [&](const Scenario& scenario) -> const ScenarioAdvice* {
    if (former == nullptr) return nullptr;
    for (const ScenarioAdvice& advice : former->scenarios) {
      if (advice.name == scenario.name) return &advice;
    }
    return nullptr;
  };
  auto outlook = std::make_shared<Outlook>();
  for (const Scenario& scenario : scenarios) {
    outlook->scenarios.push_back(
        Ask(scenario, profile, former_advice(scenario)));
  }
  if (options_.reference != nullptr) {
    outlook->reference_ratios = CompareCurves(profile, *options_.reference);
  }
  bool anew = false;
  outlook->drifts = LookForDrift(profile, anew);
  const bool well = options_.on_look(profile, *outlook);
  {
    std::lock_guard lock(mutex_);
    outlook_ = std::move(outlook);
  }
  if (anew) options_.on_drift();
  return well;
}

std::vector<Drift> Lookout::LookForDrift(const Profile& profile, bool& anew) {
  const absl::StatusOr<std::vector<KeyHistory>> history =
      options_.history(profile.fingerprint_id());
  if (!history.ok()) {
    Log(LogLevel::kError, "history not read",
        {{"reason", std::string(history.status().message())}});
    return {};
  }
  std::vector<Drift> drifts = FindDrift(*history);
  std::set<std::pair<std::string, SizeBand>> drifting;
  const Drift* worst = nullptr;  // of those that did not drift before
  for (const Drift& drift : drifts) {
    if (!drift.drifted) continue;
    const auto& place = *drifting.emplace(drift.subject, drift.band).first;
    if (drifting_.contains(place)) continue;
    anew = true;
    if (worst == nullptr || drift.ratio > worst->ratio) worst = &drift;
  }
  if (worst != nullptr) {
    Log(LogLevel::kWarning, "node drifts",
        {{"curves_and_tables", absl::StrCat(drifting.size())},
         {"worst", worst->subject},
         {"sizes", std::string(ToString(worst->band))},
         {"ratio", absl::StrCat(worst->ratio)}});
  }
  drifting_ = std::move(drifting);
  return drifts;
}

ScenarioAdvice Lookout::Ask(const Scenario& scenario, const Profile& profile,
                            const ScenarioAdvice* former) const {
  const Workload& workload = scenario.question.workload;
  const ModelShape& model = scenario.model;
  ScenarioAdvice now = {.name = scenario.name,
                        .model = model.name,
                        .hidden_size = model.hidden_size,
                        .phase = std::string(ToString(workload.phase)),
                        .concurrency = workload.concurrency,
                        .flips = former == nullptr ? 0 : former->flips};
  Question question = scenario.question;
  // A mode that runs is not to be given up for less than the margin.
  if (former != nullptr) question.current_mode = former->mode;
  const absl::StatusOr<Advice> advice = Recommend(model, question, profile);
  if (!advice.ok()) {
    if (former == nullptr || former->answered) {
      Log(LogLevel::kWarning, "scenario not answerable",
          {{"scenario", scenario.name},
           {"reason", std::string(advice.status().message())}});
    }
    return now;
  }
  const PlanAdvice& first = advice->plans.front();
  now.answered = true;
  now.engine = std::string(ToString(first.engine));
  now.mode = first.mode;
  now.tpot_seconds = first.tpot_seconds;
  now.output_tokens_per_second = first.output_tokens_per_second;
  now.margin_ratio = advice->confidence.margin_ratio;
  now.within_limits = first.misses.empty();
  // The margin holds for modes; engines that tie in one mode take turns.
  if (former != nullptr && former->answered && former->mode != now.mode) {
    ++now.flips;
    Log(LogLevel::kWarning, "advice has flipped",
        {{"scenario", scenario.name},
         {"from", absl::StrCat(former->engine, " ", former->mode)},
         {"to", absl::StrCat(now.engine, " ", now.mode)}});
  }
  return now;
}

}  // namespace fabricwise
