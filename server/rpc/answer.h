// SPDX-License-Identifier: Apache-2.0
//
// From a request message to its response message, in-process: what the daemon
// answers over the network and the client answers from a profile file.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabricwise/v1/advisor.pb.h"
#include "fabricwise/v1/model.pb.h"
#include "server/domain/model_shape.h"
#include "server/domain/workload.h"
#include "server/profile/profile.h"
#include "server/recommend/plan_space.h"

namespace fabricwise {

// The model that is meant. INVALID_ARGUMENT: none named, a shape or config
// that is odd (names the field or key). NOT_FOUND: no such preset.
absl::StatusOr<ModelShape> ResolveModel(const v1::Model& model);

// What a request asks beside its model, checked.
struct Asked {
  Question question;
  v1::AdviceView view;
  std::vector<int64_t> concurrencies;  // of a sweep, ascending
};
// Errors as the RPC's own (advisor.proto), as of all below.
absl::StatusOr<Asked> AskedIn(const v1::RecommendParallelismRequest& request);
absl::StatusOr<Asked> AskedIn(const v1::SweepConcurrencyRequest& request);

// `space` is of ScopeOf(asked.question). `response` is overwritten; after an
// error its content is not defined. `proceed` is asked every now and then: a
// status of it that is not OK ends the work and is returned.
absl::Status Answer(const Asked& asked, PlanSpace& space,
                    absl::FunctionRef<absl::Status()> proceed,
                    v1::RecommendParallelismResponse* response);
absl::Status Answer(const Asked& asked, PlanSpace& space,
                    absl::FunctionRef<absl::Status()> proceed,
                    v1::SweepConcurrencyResponse* response);

// The same of a single request. Pure; safe from any thread.
absl::Status Answer(const v1::RecommendParallelismRequest& request,
                    const Profile& profile,
                    v1::RecommendParallelismResponse* response);
absl::Status Answer(const v1::SweepConcurrencyRequest& request,
                    const Profile& profile,
                    v1::SweepConcurrencyResponse* response);

// The shipped shapes.
void ListModels(v1::ListModelsResponse* response);

}  // namespace fabricwise
