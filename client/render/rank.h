// SPDX-License-Identifier: Apache-2.0
//
// Many nodes' answers to one question, side by side. Pure.
#pragma once

#include <string>

#include "client/render/recommend.h"
#include "fabricwise/v1/advisor.pb.h"

namespace fabricwise {

// Puts nodes in the order that v1::NodeRanking promises, stable for equals.
void SortNodes(const v1::RecommendParallelismRequest& question,
               v1::NodeRanking* ranking);

// A row for each node that has an answer, and below why others have none.
std::string RenderRanking(const v1::RecommendParallelismRequest& question,
                          const std::string& model,
                          const v1::NodeRanking& ranking,
                          const RenderOptions& options);

}  // namespace fabricwise
