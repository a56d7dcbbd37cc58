// SPDX-License-Identifier: Apache-2.0
//
// Public messages to and from domain values. The way in checks what only the
// message can get wrong (absent fields, values that stand for "not set" among
// ours, unknown enum values) and names the field; what a value may be is said
// by the domain's Validate functions.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "fabricwise/v1/advisor.pb.h"
#include "fabricwise/v1/model.pb.h"
#include "fabricwise/v1/profiler.pb.h"
#include "google/protobuf/timestamp.pb.h"
#include "server/domain/finding.h"
#include "server/domain/fingerprint.h"
#include "server/domain/measurement.h"
#include "server/domain/model_shape.h"
#include "server/domain/plan.h"
#include "server/domain/workload.h"
#include "server/profile/curve.h"
#include "server/profile/profile.h"
#include "server/recommend/advice.h"

namespace fabricwise {

// Messages to values. INVALID_ARGUMENT names the field as in the message.

// Not yet checked by Validate(ModelShape).
absl::StatusOr<ModelShape> FromProto(const v1::ModelShape& message);

// All of the question but its model; not yet checked by Validate(Question).
absl::StatusOr<Question> QuestionFromProto(
    const v1::RecommendParallelismRequest& message);

// Absent is full.
absl::StatusOr<v1::AdviceView> ViewFromProto(v1::AdviceView view);

// Absent is curves.
absl::StatusOr<v1::ProfileView> ViewFromProto(v1::ProfileView view);

// Values to messages. `message` is empty before.

void ToProto(const ModelShape& shape, v1::ModelShape* message);
void ToProto(const Plan& plan, absl::string_view mode, v1::Plan* message);
// ADVICE_VIEW_BASIC leaves the terms out.
void ToProto(const PlanAdvice& advice, v1::AdviceView view,
             v1::PlanAdvice* message);
void ToProto(const RuledOut& ruled_out, v1::RuledOut* message);
void ToProto(const NotAnswerable& not_answerable, v1::NotAnswerable* message);
void ToProto(const FlipPoint& flip, v1::FlipPoint* message);
void ToProto(const Confidence& confidence, v1::Confidence* message);
void ToProto(const Fingerprint& fingerprint, v1::Fingerprint* message);
// `key`: the canonical text of the curve's key.
void ToProto(absl::string_view key, const Curve& curve, v1::Curve* message);
void ToProto(const Profile& profile, v1::ProfileView view,
             v1::NodeProfile* message);
// `id`: its number in the store.
void ToProto(const NodeProbe& probe, v1::DiagnoseNodeResponse* message);
void ToProto(int64_t id, const Measurement& measurement,
             v1::Measurement* message);

void TimeToProto(absl::Time time, google::protobuf::Timestamp* message);
v1::Engine ToProto(EngineId engine);
v1::Basis ToProto(Standing standing);

// What an answer from `profile` rests on; `basis` is the first plan's.
void GroundsToProto(const Profile& profile, Standing basis,
                    v1::Grounds* message);

}  // namespace fabricwise
