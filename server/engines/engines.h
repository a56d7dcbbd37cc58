// SPDX-License-Identifier: Apache-2.0
//
// The engines, one function each; use GetEngine.
#pragma once

#include "server/engines/engine.h"

namespace fabricwise {

const Engine& ReferenceEngine();
const Engine& VllmEngine();
const Engine& SglangEngine();
const Engine& TrtllmEngine();

}  // namespace fabricwise
