// SPDX-License-Identifier: Apache-2.0
//
// Models that nobody trained, for properties that must hold for any.
#pragma once

#include <random>

#include "server/domain/model_shape.h"

namespace fabricwise {

// A valid shape of 1 to 64 layers with any mixture of the parts that a shape
// can have: GQA or MLA, sliding and linear layers, an indexer, dense and MoE
// layers, shared experts, any weight formats. Most divide by 8; some do not.
ModelShape RandomModel(std::mt19937& random);

// One of `low` ... `high`, alike on every platform.
int64_t RandomBetween(std::mt19937& random, int64_t low, int64_t high);

}  // namespace fabricwise
