// SPDX-License-Identifier: Apache-2.0
//
// From a request message to its response message, in-process: what the daemon
// answers over the network and the client answers from a profile file.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabricwise/v1/advisor.pb.h"
#include "fabricwise/v1/model.pb.h"
#include "server/domain/model_shape.h"
#include "server/profile/profile.h"

namespace fabricwise {

// The model that is meant. INVALID_ARGUMENT: none named, a shape or config
// that is odd (names the field or key). NOT_FOUND: no such preset.
absl::StatusOr<ModelShape> ResolveModel(const v1::Model& model);

// Pure; safe from any thread. Errors as the RPC's own (advisor.proto).
// `response` is overwritten; after an error its content is not defined.
absl::Status Answer(const v1::RecommendParallelismRequest& request,
                    const Profile& profile,
                    v1::RecommendParallelismResponse* response);

// `proceed` is asked every now and then: a status of it that is not OK ends the
// work and is returned.
absl::Status Answer(const v1::SweepConcurrencyRequest& request,
                    const Profile& profile,
                    absl::FunctionRef<absl::Status()> proceed,
                    v1::SweepConcurrencyResponse* response);
absl::Status Answer(const v1::SweepConcurrencyRequest& request,
                    const Profile& profile,
                    v1::SweepConcurrencyResponse* response);

// The shipped shapes.
void ListModels(v1::ListModelsResponse* response);

}  // namespace fabricwise
