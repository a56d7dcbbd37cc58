// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs of a node a plan should run on.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/domain/placement.h"
#include "server/domain/plan.h"
#include "server/model/pricer.h"
#include "server/profile/profile.h"

namespace fabricwise {

// `plan` on the best of the node's links. Placements are compared by what is
// waited for most often: first by tensor-parallel groups, then by whole stages,
// then by neighbours in a pipeline. Of each, the fewer are held back by the
// worst kind of link the better, then by the second worst, and so on; of equal
// groups those with fewer such links. Between replicas nothing is sent, so
// nothing counts.
//
// The replica with the poorest links comes first: engines judge, and the model
// prices, all by it. Where links are alike, and on nodes of more than
// kMostPlacedGpus, GPUs are taken in the node's order. `plan` uses no more GPUs
// than there are.
//
// The best of all placements where kMostPlacementSteps are enough to look at
// all that could be: on six GPUs with any links, on eight with the usual
// bridges, switches and sockets. Else the best of those seen, which begin with
// the nearest GPUs.
Placement Place(const Plan& plan, const Topology& topology);

inline constexpr int kMostPlacedGpus = 16;
// A GPU tried in a place; about 0.4 us each.
inline constexpr int kMostPlacementSteps = 4000;

// What the curves of a replica of `plan` on `gpus` (Placement) are looked up
// by. Nothing but the replicas on a node whose links are alike.
Site SiteOf(const Plan& plan, absl::Span<const int> gpus,
            const Profile& profile);

// Place for the plans of one question, remembered: those that differ only in
// what their experts do share one. Borrows `topology`.
class Placer {
 public:
  // On `gpus` of `topology` alone, each named once; empty: on all.
  explicit Placer(const Topology& topology, std::vector<int> gpus = {});

  // Good as long as the placer.
  const Placement& At(const Plan& plan);

 private:
  const Topology& whole_;
  std::vector<int> gpus_;  // ascending; empty: all
  Topology among_;         // of these
  std::deque<std::pair<Plan, Placement>> known_;
};

}  // namespace fabricwise
