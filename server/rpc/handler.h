// SPDX-License-Identifier: Apache-2.0
//
// What each RPC does, without a transport. Errors are those of the contract
// (advisor.proto, profiler.proto).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabricwise/v1/advisor.pb.h"
#include "fabricwise/v1/profiler.pb.h"
#include "server/base/clock.h"
#include "server/rpc/answer_cache.h"
#include "server/rpc/backend.h"
#include "server/rpc/plan_spaces.h"
#include "server/rpc/recent_models.h"
#include "server/rpc/snapshot.h"

namespace fabricwise {

// Decides when a watcher of one question hears of a new answer. Not
// thread-safe.
class RecommendationWatch {
 public:
  RecommendationWatch(v1::RecommendParallelismRequest question,
                      const SnapshotHolder* snapshots);

  // The message that is due on the current snapshot; nullopt: the watcher has
  // it already. An error ends the watch.
  absl::StatusOr<std::optional<v1::WatchRecommendationResponse>> Next();

 private:
  const v1::RecommendParallelismRequest question_;
  const SnapshotHolder* const snapshots_;
  int64_t seen_ = 0;  // number of the snapshot last looked at
  // Of the message sent last; grounds serialized, plan with its engine.
  std::string sent_grounds_;
  std::string sent_plan_;
};

// INVALID_ARGUMENT: a request's bytes are no message of this full name.
absl::Status NoMessage(absl::string_view type);

// Thread-safe.
class Handler {
 public:
  struct Options {
    // Of answers kept to be given again; 0: none.
    int64_t cache_bytes = int64_t{32} << 20;
  };

  // All pointers are borrowed and outlive the handler.
  Handler(SnapshotHolder* snapshots, Backend* backend, const Clock* clock,
          Options options);

  // The two methods on a scheduler's path take and give messages in wire form,
  // so that an answer given before needs neither parsing nor serializing.
  // Find... looks only, for an answer on the current snapshot; null: none.
  AnswerBytes FindRecommendation(absl::string_view request);
  AnswerBytes FindSweep(absl::string_view request);
  absl::StatusOr<AnswerBytes> RecommendParallelism(absl::string_view request,
                                                   absl::Time deadline);
  absl::StatusOr<AnswerBytes> SweepConcurrency(absl::string_view request,
                                               absl::Time deadline);

  absl::StatusOr<std::unique_ptr<RecommendationWatch>> WatchRecommendation(
      const v1::WatchRecommendationRequest& request);

  absl::Status ListModels(const v1::ListModelsRequest& request,
                          v1::ListModelsResponse* response);

  absl::Status GetNodeProfile(const v1::GetNodeProfileRequest& request,
                              v1::GetNodeProfileResponse* response);

  // May do I/O.
  absl::Status ListMeasurements(const v1::ListMeasurementsRequest& request,
                                v1::ListMeasurementsResponse* response);

  // Begins a run, which goes on after the call; `stop` ends it. The two are
  // called on another thread, `on_end` last, and neither after an error.
  absl::Status RunMeasurement(
      const v1::RunMeasurementRequest& request, std::stop_token stop,
      const std::function<void(v1::RunMeasurementResponse)>& on_message,
      const std::function<void(const absl::Status&)>& on_end);

  // Calls `on_end` once, on this thread or another, where OK after filling
  // `response`; `stop` ends the look.
  void DiagnoseNode(const v1::DiagnoseNodeRequest& request,
                    std::stop_token stop, v1::DiagnoseNodeResponse* response,
                    const std::function<void(const absl::Status&)>& on_end);

  // Does I/O.
  absl::Status ImportProfile(const v1::ImportProfileRequest& request,
                             absl::Time deadline,
                             v1::ImportProfileResponse* response);

  // Of questions answered anew, not from the cache.
  const RecentModels& recent_models() const { return recent_models_; }

  absl::Status GetStatus(const v1::GetStatusRequest& request,
                         v1::GetStatusResponse* response);

 private:
  // DEADLINE_EXCEEDED where it has passed.
  absl::Status CheckDeadline(absl::Time deadline) const;
  template <typename Request, typename Response>
  absl::StatusOr<AnswerBytes> AnswerFrom(absl::string_view request,
                                         absl::Time deadline,
                                         AnswerCache* cache);

  SnapshotHolder* const snapshots_;
  Backend* const backend_;
  const Clock* const clock_;
  AnswerCache recommendations_;
  AnswerCache sweeps_;
  PlanSpaces plan_spaces_;
  RecentModels recent_models_;
  std::mutex import_mutex_;
};

}  // namespace fabricwise
