// SPDX-License-Identifier: Apache-2.0
//
// Short ways to a recipe and to what is in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/domain/fingerprint.h"
#include "server/domain/model_shape.h"
#include "server/domain/placement.h"
#include "server/domain/plan.h"
#include "server/domain/recipe.h"
#include "server/engines/engine.h"

namespace fabricwise {

// `text` as the name of a test: other characters than letters and digits are
// underscores.
std::string TestName(std::string text);

// The preset called `name`.
const ModelShape& Preset(const std::string& name);

// The plan called `mode` of `model`.
Plan PlanOf(const ModelShape& model, const std::string& mode);

// `gpus` GPUs of 141 GB with NVLink among all, or among none.
Fingerprint Node(int gpus, bool nvlink = true);

// `count` GPUs of this name, of 141 GB, with NVLink and peer access among all
// or among none.
Fingerprint Box(const char* name, int count, bool nvlink, bool peers);

// The GPUs of a plan, in the order of the node's numbers.
Placement Gpus(const Plan& plan);

// The recipe of a mode that the engine does not refuse.
Recipe RecipeOf(EngineId engine, const ModelShape& model,
                const std::string& mode, const Fingerprint& node = Node(8));

// Why the engine refuses a mode; empty: it does not.
std::string RefusalOf(EngineId engine, const ModelShape& model,
                      const std::string& mode,
                      const Fingerprint& node = Node(8));

// Expects that the engine refuses a mode of 64 GPUs with `why` in its words;
// empty: that it does not refuse it.
void ExpectRefusal(EngineId engine, const ModelShape& model,
                   const std::string& mode, const std::string& why);

// Occurrences of `op` in a step; each step of a use counts.
double CountOf(const Recipe& recipe, CollectiveOp op);

// One line for each collective, without its name, as in "60 x all_gather n8
// 14336 stage": bytes a token, and which tokens.
std::vector<std::string> Lines(const Recipe& recipe);

// The only use of this name; ends the test's program where there is none.
const CollectiveUse& CollectiveOf(const Recipe& recipe,
                                  const std::string& name);
const GemmUse& GemmOf(const Recipe& recipe, const std::string& name);

// Calls `each` with every plan of a list of modes of every kind that `engine`
// takes, for every preset on three nodes of eight GPUs, and with all that its
// launch would have pasted. Returns how many.
int ForEachLaunch(
    EngineId engine,
    absl::FunctionRef<void(const Plan&, const std::string&)> each);

}  // namespace fabricwise
