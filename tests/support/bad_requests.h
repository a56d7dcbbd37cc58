// SPDX-License-Identifier: Apache-2.0
//
// Questions that must be refused, each with the status it must get: asked of
// the pure core and over the wire.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fabricwise/v1/advisor.pb.h"

namespace fabricwise {

// A question that the sample profile answers: a small Qwen3 MoE model, bf16,
// on two GPUs, decode only, by the reference engine.
v1::RecommendParallelismRequest GoodRequest();

struct BadRequest {
  std::string what;
  v1::RecommendParallelismRequest request;
  absl::StatusCode code;
  ::testing::Matcher<std::string> message;
};

std::vector<BadRequest> BadRequests();

}  // namespace fabricwise
