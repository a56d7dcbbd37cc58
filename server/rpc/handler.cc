// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/handler.h"

#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/duration.pb.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/profile_file.h"
#include "server/rpc/answer.h"
#include "server/rpc/convert.h"

namespace fabricwise {
namespace {

// What profiler.proto allows and promises.
constexpr int64_t kMaxPageSize = 1000;
constexpr int64_t kDefaultPageSize = 100;
constexpr size_t kMaxKeyPrefixBytes = 256;
constexpr int kMaxKeyPrefixes = 64;
constexpr absl::Duration kMinBudget = absl::Seconds(1);
constexpr absl::Duration kMaxBudget = absl::Hours(1);

absl::Status NoProfile() {
  return absl::FailedPreconditionError(
      "no profile is loaded: import one with ImportProfile, or start the "
      "daemon with one");
}

absl::Status CheckKeyPrefix(absl::string_view field,
                            const std::string& prefix) {
  if (prefix.size() <= kMaxKeyPrefixBytes) return absl::OkStatus();
  return NotAllowed(field, absl::StrCat(prefix.size(), " bytes long"),
                    absl::StrCat("at most ", kMaxKeyPrefixBytes, " bytes"));
}

absl::StatusOr<absl::Duration> BudgetFrom(
    const google::protobuf::Duration& budget) {
  const absl::Duration duration =
      absl::Seconds(budget.seconds()) + absl::Nanoseconds(budget.nanos());
  if (duration >= kMinBudget && duration <= kMaxBudget) return duration;
  return NotAllowed("budget", absl::FormatDuration(duration), "1 s to 1 h");
}

absl::StatusOr<RunOrder> OrderFrom(const v1::RunMeasurementRequest& request) {
  RunOrder order;
  if (!v1::MeasurementKind_IsValid(request.kind())) {
    return NotAllowed("kind", absl::StrCat(static_cast<int>(request.kind())),
                      "MEASUREMENT_KIND_QUICK, MEASUREMENT_KIND_FULL");
  }
  order.kind = request.kind() == v1::MEASUREMENT_KIND_FULL ? RunKind::kFull
                                                           : RunKind::kQuick;
  if (request.key_prefixes_size() > kMaxKeyPrefixes) {
    return NotAllowed("key_prefixes",
                      absl::StrCat(request.key_prefixes_size(), " of them"),
                      absl::StrCat("at most ", kMaxKeyPrefixes));
  }
  for (const std::string& prefix : request.key_prefixes()) {
    RETURN_IF_ERROR(CheckKeyPrefix("key_prefixes", prefix));
    order.key_prefixes.push_back(prefix);
  }
  if (request.has_budget()) {
    ASSIGN_OR_RETURN(order.budget, BudgetFrom(request.budget()));
  }
  return order;
}

}  // namespace

RecommendationWatch::RecommendationWatch(
    v1::RecommendParallelismRequest question, const SnapshotHolder* snapshots)
    : question_(std::move(question)), snapshots_(snapshots) {}

absl::StatusOr<std::optional<v1::WatchRecommendationResponse>>
RecommendationWatch::Next() {
  const auto snapshot = snapshots_->Get();
  if (snapshot == nullptr) return NoProfile();
  if (snapshot->number == seen_) return std::nullopt;
  v1::WatchRecommendationResponse response;
  RETURN_IF_ERROR(
      Answer(question_, *snapshot->profile, response.mutable_answer()));
  const bool is_first = seen_ == 0;
  seen_ = snapshot->number;

  std::string grounds = response.answer().grounds().SerializeAsString();
  const v1::PlanAdvice& first = response.answer().plans(0);
  std::string plan =
      absl::StrCat(v1::Engine_Name(first.engine()), " ", first.plan().mode());
  if (is_first) {
    response.set_reason("first answer");
  } else if (plan != sent_plan_) {
    response.set_reason("new first plan");
  } else if (grounds != sent_grounds_) {
    response.set_reason("new grounds");
  } else {
    return std::nullopt;
  }
  sent_grounds_ = std::move(grounds);
  sent_plan_ = std::move(plan);
  return response;
}

Handler::Handler(SnapshotHolder* snapshots, Backend* backend,
                 const Clock* clock, Options options)
    : snapshots_(snapshots),
      backend_(backend),
      clock_(clock),
      recommendations_(options.cache_bytes / 2),
      sweeps_(options.cache_bytes / 2) {}

absl::Status Handler::CheckDeadline(absl::Time deadline) const {
  if (clock_->Now() < deadline) return absl::OkStatus();
  return absl::DeadlineExceededError("the deadline passed before the answer");
}

absl::Status NoMessage(absl::string_view type) {
  return absl::InvalidArgumentError(
      absl::StrCat("the request is not a valid ", type,
                   ": its encoding is broken, or a text in it is not UTF-8"));
}

AnswerBytes Handler::FindRecommendation(absl::string_view request) {
  return recommendations_.Find(request, snapshots_->number());
}

AnswerBytes Handler::FindSweep(absl::string_view request) {
  return sweeps_.Find(request, snapshots_->number());
}

template <typename Request, typename Response>
absl::StatusOr<AnswerBytes> Handler::AnswerFrom(absl::string_view request,
                                                absl::Time deadline,
                                                AnswerCache* cache) {
  RETURN_IF_ERROR(CheckDeadline(deadline));
  const auto snapshot = snapshots_->Get();
  if (snapshot == nullptr) return NoProfile();
  google::protobuf::Arena arena;
  auto* message = google::protobuf::Arena::CreateMessage<Request>(&arena);
  if (request.size() > std::numeric_limits<int>::max() ||
      !message->ParseFromArray(request.data(),
                               static_cast<int>(request.size()))) {
    return NoMessage(Request::descriptor()->full_name());
  }
  auto* response = google::protobuf::Arena::CreateMessage<Response>(&arena);
  ASSIGN_OR_RETURN(const Asked asked, AskedIn(*message));
  constexpr bool kSweeps = std::is_same_v<Request, v1::SweepConcurrencyRequest>;
  const v1::Model* model = nullptr;
  if constexpr (kSweeps) {
    model = &message->question().model();
  } else {
    model = &message->model();
  }
  const std::string model_name = model->SerializeAsString();
  ASSIGN_OR_RETURN(
      const PlanSpaces::Lease lease,
      plan_spaces_.Get(model_name, ScopeOf(asked.question), snapshot->profile,
                       [&] { return ResolveModel(*model); }));
  const absl::Status answered = Answer(
      asked, lease.space(), [&] { return CheckDeadline(deadline); }, response);
  // One that could not be answered for want of measurements most of all.
  if (answered.ok() || absl::IsFailedPrecondition(answered)) {
    recent_models_.Add(model_name);
  }
  RETURN_IF_ERROR(answered);
  auto bytes =
      std::make_shared<const std::string>(response->SerializeAsString());
  cache->Insert(request, snapshot->number, bytes);
  return bytes;
}

absl::StatusOr<AnswerBytes> Handler::RecommendParallelism(
    absl::string_view request, absl::Time deadline) {
  return AnswerFrom<v1::RecommendParallelismRequest,
                    v1::RecommendParallelismResponse>(request, deadline,
                                                      &recommendations_);
}

absl::StatusOr<AnswerBytes> Handler::SweepConcurrency(absl::string_view request,
                                                      absl::Time deadline) {
  return AnswerFrom<v1::SweepConcurrencyRequest, v1::SweepConcurrencyResponse>(
      request, deadline, &sweeps_);
}

absl::StatusOr<std::unique_ptr<RecommendationWatch>>
Handler::WatchRecommendation(const v1::WatchRecommendationRequest& request) {
  if (!request.has_question()) {
    return NotAllowed("question", "absent",
                      "a question with model and workload");
  }
  return std::make_unique<RecommendationWatch>(request.question(), snapshots_);
}

absl::Status Handler::ListModels(const v1::ListModelsRequest&,
                                 v1::ListModelsResponse* response) {
  fabricwise::ListModels(response);
  return absl::OkStatus();
}

absl::Status Handler::GetNodeProfile(const v1::GetNodeProfileRequest& request,
                                     v1::GetNodeProfileResponse* response) {
  ASSIGN_OR_RETURN(const v1::ProfileView view, ViewFromProto(request.view()));
  const auto snapshot = snapshots_->Get();
  if (snapshot == nullptr) return NoProfile();
  ToProto(*snapshot->profile, view, response->mutable_profile());
  return absl::OkStatus();
}

absl::Status Handler::ListMeasurements(
    const v1::ListMeasurementsRequest& request,
    v1::ListMeasurementsResponse* response) {
  const int64_t page_size =
      request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  RETURN_IF_ERROR(CheckRange("page_size", page_size, int64_t{1}, kMaxPageSize));
  RETURN_IF_ERROR(CheckKeyPrefix("key_prefix", request.key_prefix()));
  ASSIGN_OR_RETURN(
      const MeasurementPage page,
      backend_->ListMeasurements(static_cast<int>(page_size),
                                 request.page_token(), request.key_prefix()));
  for (const StoredMeasurement& stored : page.measurements) {
    ToProto(stored.id, stored.measurement, response->add_measurements());
  }
  response->set_next_page_token(page.next_page_token);
  return absl::OkStatus();
}

absl::Status Handler::RunMeasurement(
    const v1::RunMeasurementRequest& request, std::stop_token stop,
    const std::function<void(v1::RunMeasurementResponse)>& on_message,
    const std::function<void(const absl::Status&)>& on_end) {
  ASSIGN_OR_RETURN(const RunOrder order, OrderFrom(request));
  // The last message and the progress before it are written on one thread.
  auto last = std::make_shared<v1::RunMeasurementResponse>();
  const RunListener listener = {
      .on_progress =
          [on_message, last](const RunProgress& progress) {
            v1::RunMeasurementResponse message;
            message.set_done_count(progress.done_count);
            message.set_total_count(progress.total_count);
            *last = message;
            message.set_key(progress.key);
            if (progress.measurement) {
              // Has no number before it is stored.
              ToProto(0, *progress.measurement, message.mutable_measurement());
            }
            on_message(std::move(message));
          },
      .on_end =
          [on_message, on_end, last](const RunResult& result) {
            last->set_profile_changed(result.profile_changed);
            last->set_note(result.note);
            if (result.status.ok() || result.profile_changed) {
              on_message(*last);
            }
            on_end(result.status);
          }};
  return backend_->StartRun(order, std::move(stop), listener);
}

void Handler::DiagnoseNode(
    const v1::DiagnoseNodeRequest&, std::stop_token stop,
    v1::DiagnoseNodeResponse* response,
    const std::function<void(const absl::Status&)>& on_end) {
  const auto answer = [this, response, on_end](const absl::Status& status) {
    const std::optional<NodeProbe> probe = backend_->LastProbe();
    if (status.ok() && probe) ToProto(*probe, response);
    on_end(status);
  };
  const absl::Status started = backend_->StartRun(
      {.kind = RunKind::kProbe}, std::move(stop),
      {.on_progress = [](const RunProgress&) {},
       .on_end = [answer](const RunResult& result) { answer(result.status); }});
  if (started.ok()) return;
  // The run under way has looked at the node just before.
  answer(absl::IsAborted(started) && backend_->LastProbe() ? absl::OkStatus()
                                                           : started);
}

absl::Status Handler::ImportProfile(const v1::ImportProfileRequest& request,
                                    absl::Time deadline,
                                    v1::ImportProfileResponse* response) {
  if (request.profile_file().empty()) {
    return NotAllowed("profile_file", "empty", "the content of a profile file");
  }
  ASSIGN_OR_RETURN(ProfileData data,
                   ReadProfile("profile_file", request.profile_file()));
  ASSIGN_OR_RETURN(std::shared_ptr<const Profile> profile,
                   Profile::Build(std::move(data)));
  const std::string node = backend_->NodeFingerprintId();
  if (!node.empty() && node != profile->fingerprint_id() &&
      !request.allow_other_node()) {
    return absl::FailedPreconditionError(
        absl::StrCat("profile_file describes a node of fingerprint ",
                     profile->fingerprint_id(), ", this node's is ", node,
                     "; set allow_other_node to advise from it all the same"));
  }
  // Of two imports at once, the one stored last is also the one in use.
  std::lock_guard lock(import_mutex_);
  RETURN_IF_ERROR(CheckDeadline(deadline));
  RETURN_IF_ERROR(backend_->StoreProfile(profile->data()));
  snapshots_->Set(profile);
  ToProto(*profile, v1::PROFILE_VIEW_SUMMARY, response->mutable_profile());
  return absl::OkStatus();
}

absl::Status Handler::GetStatus(const v1::GetStatusRequest&,
                                v1::GetStatusResponse* response) {
  const DaemonState state = backend_->State();
  const auto snapshot = snapshots_->Get();
  response->set_version(state.version);
  TimeToProto(state.start_time, response->mutable_start_time());
  response->set_serving(snapshot != nullptr);
  response->set_worker_installed(state.worker_installed);
  response->set_scheduler_state(state.scheduler_state);
  response->set_scheduler_detail(state.scheduler_detail);
  response->set_node_fingerprint(backend_->NodeFingerprintId());
  response->set_measurement_count(state.measurement_count);
  if (snapshot == nullptr) {
    response->set_reason(std::string(NoProfile().message()));
    return absl::OkStatus();
  }
  v1::Grounds grounds;
  GroundsToProto(*snapshot->profile, Standing::kMeasured, &grounds);
  response->set_profile(grounds.profile());
  response->set_fingerprint(grounds.fingerprint());
  if (grounds.has_as_of_time()) {
    *response->mutable_as_of_time() = grounds.as_of_time();
  }
  response->set_snapshot_count(snapshot->number);
  return absl::OkStatus();
}

}  // namespace fabricwise
