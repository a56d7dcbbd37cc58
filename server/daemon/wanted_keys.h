// SPDX-License-Identifier: Apache-2.0
//
// What the models that were asked about would have measured exactly.
#pragma once

#include <vector>

#include "server/domain/fingerprint.h"
#include "server/domain/measurement.h"
#include "server/domain/model_shape.h"

namespace fabricwise {

// Products, routed experts and attention of a step of `models` in any plan that
// an engine runs on `node`, at a few sizes: formats that the worker measures,
// no key twice, the first models' first, at most kMostWantedKeys.
std::vector<MeasurementKey> WantedKeys(const std::vector<ModelShape>& models,
                                       const Fingerprint& node);

inline constexpr int kMostWantedKeys = 256;

}  // namespace fabricwise
