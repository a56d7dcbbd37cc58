// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/placement.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/numeric/int128.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace fabricwise {
namespace {

// What a placement costs, to be compared in order: for each of these, how many
// there are by their kind of link, from the worst kind to the second best.
enum Counted {
  kGroupsHeldBack,
  kGroupLinks,
  kStagesHeldBack,
  kStageLinks,
  kBoundaryLinks,
};
constexpr int kCounted = 5;

// All counts in one number, the first ones highest.
using Cost = absl::uint128;
constexpr int kCountBits = 8;
constexpr int kCountsOfEach = Topology::kMostKinds - 1;
static_assert(kMostPlacedGpus * (kMostPlacedGpus - 1) / 2 < 1 << kCountBits);
static_assert(kCounted * kCountsOfEach * kCountBits <= 128);

// What one of `what` by links of `kind` adds.
Cost One(Counted what, int kind) {
  if (kind == 0) return 0;
  const int below =
      (kCounted - what) * kCountsOfEach - 1 - (Topology::kMostKinds - 1 - kind);
  return Cost{1} << (below * kCountBits);
}

// Takes GPUs one after another in rank order.
class Search {
 public:
  Search(const Plan& plan, const Topology& topology)
      : topology_(topology),
        tp_(plan.attention_tp),
        stage_(plan.stage_gpus()),
        replica_(plan.pipeline * plan.stage_gpus()),
        all_(plan.gpus()) {
    for (int gpu = 0; gpu < topology.gpu_count(); ++gpu) {
      int& twin = twins_.emplace_back(0);
      while (!AreTwins(twin, gpu)) ++twin;
    }
  }

  // The GPUs of all replicas, one after another.
  std::vector<int> Best() {
    Extend(0, 0, 0);
    return best_;
  }

  // Of these alone.
  Cost CostOf(absl::Span<const int> gpus) {
    gpus_.clear();
    Cost cost = 0;
    int group_kind = 0, stage_kind = 0;
    for (int gpu : gpus) cost = With(gpu, cost, group_kind, stage_kind);
    return cost;
  }

 private:
  struct Choice {
    int gpu;
    Cost cost;
    int group_kind, stage_kind;
  };

  // Tries every GPU in the next place. `group_kind`, `stage_kind`: the worst
  // link so far of the group and stage that the last one belongs to.
  void Extend(const Cost& cost, int group_kind, int stage_kind) {
    if (static_cast<int>(gpus_.size()) == all_) {
      best_ = gpus_;
      best_cost_ = cost;
      return;
    }
    absl::InlinedVector<Choice, kMostPlacedGpus> choices;
    for (int gpu = 0; gpu < topology_.gpu_count(); ++gpu) {
      if (!IsNext(gpu)) continue;
      const int twin = twins_[static_cast<size_t>(gpu)];
      if (std::any_of(choices.begin(), choices.end(), [&](const Choice& other) {
            return twins_[static_cast<size_t>(other.gpu)] == twin;
          })) {
        continue;
      }
      Choice choice{gpu, 0, group_kind, stage_kind};
      choice.cost = With(gpu, cost, choice.group_kind, choice.stage_kind);
      gpus_.pop_back();
      choices.push_back(choice);
    }
    std::stable_sort(
        choices.begin(), choices.end(),
        [](const Choice& a, const Choice& b) { return a.cost < b.cost; });
    for (const Choice& choice : choices) {
      // Costs only grow.
      if (!best_.empty() &&
          (choice.cost >= best_cost_ || steps_ >= kMostPlacementSteps)) {
        return;
      }
      ++steps_;
      gpus_.push_back(choice.gpu);
      Extend(choice.cost, choice.group_kind, choice.stage_kind);
      gpus_.pop_back();
    }
  }

  // Appends `gpu` and returns what all cost then.
  Cost With(int gpu, Cost cost, int& group_kind, int& stage_kind) {
    const int slot = static_cast<int>(gpus_.size());
    Join(gpu, slot - slot % tp_, kGroupsHeldBack, kGroupLinks, group_kind,
         cost);
    if (stage_ > tp_) {
      Join(gpu, slot - slot % stage_, kStagesHeldBack, kStageLinks, stage_kind,
           cost);
    }
    if (slot % replica_ >= stage_) {
      cost += One(kBoundaryLinks, topology_.Kind(gpu, At(slot - stage_)));
    }
    gpus_.push_back(gpu);
    return cost;
  }

  // Counts `gpu` in with those from place `first` on.
  void Join(int gpu, int first, Counted held_back, Counted links, int& worst,
            Cost& cost) {
    const int end = static_cast<int>(gpus_.size());
    if (first == end) worst = 0;
    const int before = worst;
    for (int place = first; place < end; ++place) {
      const int kind = topology_.Kind(gpu, At(place));
      cost += One(links, kind);
      worst = std::max(worst, kind);
    }
    cost += One(held_back, worst) - One(held_back, before);
  }

  // Whether `gpu` is free, and next in the one order in which each placement is
  // looked at: groups within a first stage and the GPUs of each, replicas, and
  // the two ways through a pipeline are alike.
  bool IsNext(int gpu) const {
    if (std::find(gpus_.begin(), gpus_.end(), gpu) != gpus_.end()) return false;
    const int slot = static_cast<int>(gpus_.size());
    const int in_replica = slot % replica_;
    if (in_replica == 0) return slot == 0 || gpu > At(slot - replica_);
    if (in_replica < stage_) {
      return gpu > (slot % tp_ > 0 ? gpus_.back() : At(slot - tp_));
    }
    return in_replica < replica_ - stage_ || gpu > At(slot - in_replica);
  }

  // Whether each other GPU has the same kind of link to both.
  bool AreTwins(int a, int b) const {
    for (int other = 0; other < topology_.gpu_count(); ++other) {
      if (other != a && other != b &&
          topology_.Kind(a, other) != topology_.Kind(b, other)) {
        return false;
      }
    }
    return true;
  }

  int At(int place) const { return gpus_[static_cast<size_t>(place)]; }

  const Topology& topology_;
  const int tp_, stage_, replica_, all_;  // GPUs
  // The first GPU that could stand for this one.
  absl::InlinedVector<int, kMostPlacedGpus> twins_;
  std::vector<int> gpus_;  // in the places filled so far
  std::vector<int> best_;
  Cost best_cost_ = 0;
  int steps_ = 0;
};

}  // namespace

Placement Place(const Plan& plan, const Topology& topology) {
  std::vector<int> gpus(static_cast<size_t>(plan.gpus()));
  std::iota(gpus.begin(), gpus.end(), 0);
  Placement placement;
  std::vector<std::vector<int>>& replicas = placement.replicas;
  const auto divide = [&] {
    const std::ptrdiff_t each = plan.pipeline * plan.stage_gpus();
    for (auto at = gpus.begin(); at != gpus.end(); at += each) {
      replicas.emplace_back(at, at + each);
    }
  };
  if (topology.kind_count() == 1 || topology.gpu_count() > kMostPlacedGpus) {
    divide();
    return placement;
  }
  Search search(plan, topology);
  gpus = search.Best();
  divide();
  const auto poorest = std::max_element(
      replicas.begin(), replicas.end(), [&](const auto& a, const auto& b) {
        return search.CostOf(a) < search.CostOf(b);
      });
  std::rotate(replicas.begin(), poorest, poorest + 1);
  return placement;
}

namespace {

// The worst link first, then the fewer of all.
std::pair<int, int> Poverty(absl::Span<const int> gpus,
                            const Topology& topology) {
  std::pair<int, int> poverty{0, 0};
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const int kind = topology.Kind(gpus[i], gpus[j]);
      poverty.first = std::max(poverty.first, kind);
      poverty.second += kind;
    }
  }
  return poverty;
}

// Of the poorest of `groups`, which are of equal size; none for no group.
Site::Group PoorestOf(const std::vector<std::vector<int>>& groups,
                      const Profile& profile) {
  if (groups.empty()) return {};
  const Topology& topology = profile.topology();
  std::vector<int> poorest = *std::max_element(
      groups.begin(), groups.end(), [&](const auto& a, const auto& b) {
        return Poverty(a, topology) < Poverty(b, topology);
      });
  std::sort(poorest.begin(), poorest.end());
  std::vector<int> first(poorest.size());
  std::iota(first.begin(), first.end(), 0);
  const bool named = profile.NamesGroupsOf(static_cast<int>(poorest.size()));
  return {.members = named ? absl::StrJoin(poorest, ",") : "",
          .linked_otherwise =
              Poverty(poorest, topology) != Poverty(first, topology)};
}

}  // namespace

Site SiteOf(const Plan& plan, absl::Span<const int> gpus,
            const Profile& profile) {
  Site site{.replicas = plan.replicas};
  // Where links are alike the curves of any group have more points.
  if (profile.topology().kind_count() == 1) return site;
  const auto consecutive = [&](int each) {
    const auto size = static_cast<size_t>(each);
    std::vector<std::vector<int>> groups;
    for (size_t i = 0; size > 1 && i < gpus.size(); i += size) {
      const auto group = gpus.subspan(i, size);
      groups.emplace_back(group.begin(), group.end());
    }
    return PoorestOf(groups, profile);
  };
  site.tensor_group = consecutive(plan.attention_tp);
  site.stage = consecutive(plan.stage_gpus());
  const auto stage = static_cast<size_t>(plan.stage_gpus());
  std::vector<std::vector<int>> pairs;
  for (size_t i = stage; i < gpus.size(); ++i) {
    pairs.push_back({gpus[i - stage], gpus[i]});
  }
  site.neighbours = PoorestOf(pairs, profile);
  return site;
}

Placer::Placer(const Topology& topology, std::vector<int> gpus)
    : whole_(topology), gpus_(std::move(gpus)) {
  std::sort(gpus_.begin(), gpus_.end());
  if (!gpus_.empty()) among_ = topology.Among(gpus_);
}

const Placement& Placer::At(const Plan& plan) {
  for (const auto& [known, placement] : known_) {
    if (known.replicas == plan.replicas && known.pipeline == plan.pipeline &&
        known.attention_dp == plan.attention_dp &&
        known.attention_tp == plan.attention_tp) {
      return placement;
    }
  }
  Placement& placement =
      known_.emplace_back(plan, Place(plan, gpus_.empty() ? whole_ : among_))
          .second;
  if (gpus_.empty()) return placement;
  for (std::vector<int>& replica : placement.replicas) {
    for (int& gpu : replica) gpu = gpus_[static_cast<size_t>(gpu)];
  }
  return placement;
}

}  // namespace fabricwise
