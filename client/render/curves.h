// SPDX-License-Identifier: Apache-2.0
//
// Measured curves as text for people: a list, or one drawn with its cliffs.
#pragma once

#include <string>
#include <vector>

#include "client/render/style.h"
#include "fabricwise/v1/profiler.pb.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

// The curves as a table: points, range, the time at a few serving sizes ("~"
// where it is not measured at that size), cliffs.
std::string RenderCurveList(const Style& style,
                            const std::vector<const v1::Curve*>& curves);

// One curve drawn over logarithmic axes, its cliffs marked and told in bytes
// (also to each peer for all-to-all) and, where `model` is given, in tokens of
// that model. Null: no model.
std::string RenderCurve(const Style& style, const v1::Curve& curve,
                        const ModelShape* model);

// "key,size,seconds,relative_sigma,basis" lines with a header.
std::string CurvesCsv(const std::vector<const v1::Curve*>& curves);

}  // namespace fabricwise
