// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs of a node a plan should run on.
#pragma once

#include <deque>
#include <utility>

#include "server/domain/fingerprint.h"
#include "server/domain/placement.h"
#include "server/domain/plan.h"

namespace fabricwise {

// The GPUs in the order in which the node numbers them. `plan` uses no more
// than there are.
Placement Place(const Plan& plan, const Fingerprint& node);

// Place for the plans of one question, remembered: those that differ only in
// what their experts do share one. Borrows `node`.
class Placer {
 public:
  explicit Placer(const Fingerprint& node) : node_(node) {}

  // Good as long as the placer.
  const Placement& At(const Plan& plan);

 private:
  const Fingerprint& node_;
  std::deque<std::pair<Plan, Placement>> known_;
};

}  // namespace fabricwise
