// SPDX-License-Identifier: Apache-2.0
#include "server/profile/profile.h"

#include <algorithm>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

// What a curve is built from: the points of its better origin.
struct CurveDraft {
  Origin origin = Origin::kReference;
  std::vector<CurvePoint> points;

  void Add(int64_t size, const Measurement& measurement) {
    if (measurement.origin != origin) {
      if (measurement.origin == Origin::kReference) return;
      points.clear();
      origin = Origin::kMeasured;
    }
    points.push_back({.size = static_cast<double>(size),
                      .seconds = measurement.statistics.median_seconds,
                      .relative_sigma = RelativeSigma(measurement.statistics),
                      .p99_seconds = measurement.statistics.p99_seconds});
  }
};

CurveKey CurveOf(const CollectiveKey& key) {
  return {key.op,
          key.group,
          key.implementation,
          key.launch,
          key.concurrent_groups,
          key.skew_alpha};
}

ExchangeCurveKey CurveOf(const ExchangeKey& key) {
  return {key.implementation, key.stage,       key.group,
          key.hidden_size,    key.num_experts, key.experts_per_token};
}

// Whether `a` is to be used rather than an earlier `b` of the same key.
bool Supersedes(const Measurement& a, const Measurement& b) {
  if (a.origin != b.origin) return a.origin == Origin::kMeasured;
  return a.start_time >= b.start_time;
}

// One measurement a key, in the order in which the keys first came.
absl::StatusOr<std::vector<Measurement>> Newest(
    const std::vector<Measurement>& all) {
  std::vector<Measurement> used;
  absl::flat_hash_map<std::string, size_t> place;
  for (size_t i = 0; i < all.size(); ++i) {
    if (absl::Status status = Validate(all[i]); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("measurements[", i, "]: ", status.message()));
    }
    const auto [entry, inserted] =
        place.try_emplace(ToString(all[i].key), used.size());
    if (inserted) {
      used.push_back(all[i]);
    } else if (Supersedes(all[i], used[entry->second])) {
      used[entry->second] = all[i];
    }
  }
  return used;
}

template <typename Key>
absl::StatusOr<std::map<Key, Curve>> CurvesOf(
    std::map<Key, CurveDraft> drafts) {
  std::map<Key, Curve> curves;
  for (auto& [key, draft] : drafts) {
    ASSIGN_OR_RETURN(Curve curve,
                     Curve::Create(std::move(draft.points), draft.origin));
    curves.emplace(key, std::move(curve));
  }
  return curves;
}

template <typename Key>
const std::pair<const Key, Curve>* Find(const std::map<Key, Curve>& curves,
                                        const Key& key) {
  if (const auto found = curves.find(key); found != curves.end()) {
    return &*found;
  }
  if (key.group.members.empty()) return nullptr;
  Key any = key;
  any.group.members.clear();
  const auto found = curves.find(any);
  return found == curves.end() ? nullptr : &*found;
}

}  // namespace

std::string ToString(const CurveKey& key) {
  const std::string text = ToString(MeasurementKey(
      CollectiveKey{key.op, key.group, key.implementation, key.launch,
                    key.concurrent_groups, key.skew_alpha}));
  return text.substr(0, text.rfind('/'));
}

std::string ToString(const ExchangeCurveKey& key) {
  const std::string text = ToString(MeasurementKey(
      ExchangeKey{key.implementation, key.stage, key.group, key.hidden_size,
                  key.num_experts, key.experts_per_token}));
  return text.substr(0, text.rfind('/'));
}

absl::StatusOr<std::shared_ptr<const Profile>> Profile::Build(
    ProfileData data) {
  ASSIGN_OR_RETURN(const std::vector<Measurement> used,
                   Newest(data.measurements));

  std::map<CurveKey, CurveDraft> curves;
  std::map<ExchangeCurveKey, CurveDraft> exchanges;
  std::map<MemoryOp, CurveDraft> memory;
  std::shared_ptr<Profile> profile(new Profile);
  profile->oldest_ = data.as_of;
  for (const Measurement& measurement : used) {
    profile->oldest_ = std::min(profile->oldest_, measurement.start_time);
    std::visit(
        [&](const auto& key) {
          using Key = std::decay_t<decltype(key)>;
          if constexpr (std::is_same_v<Key, CollectiveKey>) {
            curves[CurveOf(key)].Add(key.size_bytes, measurement);
          } else if constexpr (std::is_same_v<Key, ExchangeKey>) {
            exchanges[CurveOf(key)].Add(key.tokens_per_rank, measurement);
          } else if constexpr (std::is_same_v<Key, MemoryKey>) {
            memory[key.op].Add(key.size_bytes, measurement);
          } else if constexpr (std::is_same_v<Key, LaunchKey>) {
            profile->graph_node_ = Estimate{
                measurement.statistics.median_seconds,
                RelativeSigma(measurement.statistics),
                measurement.origin == Origin::kMeasured ? Standing::kMeasured
                                                        : Standing::kReference};
          }
        },
        measurement.key);
  }

  ASSIGN_OR_RETURN(profile->curves_, CurvesOf(std::move(curves)));
  // The map is in order of sizes within each operation only.
  std::set<int> named;
  for (const auto& [key, curve] : profile->curves_) {
    if (!key.group.members.empty()) named.insert(key.group.size);
    profile->measures_contention_ |= key.concurrent_groups > 1;
  }
  profile->named_sizes_.assign(named.begin(), named.end());
  ASSIGN_OR_RETURN(profile->exchanges_, CurvesOf(std::move(exchanges)));
  ASSIGN_OR_RETURN(auto memory_curves, CurvesOf(std::move(memory)));
  for (auto& [op, curve] : memory_curves) {
    (op == MemoryOp::kRead ? profile->memory_read_ : profile->memory_copy_) =
        std::move(curve);
  }
  profile->gemm_ = GemmTable::Build(used);
  profile->experts_ = ExpertsTable::Build(used);
  profile->attention_ = AttentionTable::Build(used);
  profile->topology_ = Topology::Of(
      data.fingerprint, [&](int i, int j) { return profile->FindPair(i, j); });
  profile->fingerprint_id_ = FingerprintId(data.fingerprint);
  profile->data_ = std::move(data);
  return profile;
}

const Curve* Profile::FindCurve(const CurveKey& key) const {
  const KeyedCurve* found = Find(curves_, key);
  return found == nullptr ? nullptr : &found->second;
}

const Profile::KeyedCurve* Profile::FindKeyedCurve(const CurveKey& key) const {
  return Find(curves_, key);
}

bool Profile::NamesGroupsOf(int size) const {
  return std::binary_search(named_sizes_.begin(), named_sizes_.end(), size);
}

const Curve* Profile::FindPair(int i, int j) const {
  for (Launch launch : {Launch::kGraph, Launch::kEager}) {
    const auto found =
        curves_.find({.op = CollectiveOp::kSendRecv,
                      .group = {.size = 2, .members = absl::StrCat(i, ",", j)},
                      .launch = launch});
    if (found != curves_.end()) return &found->second;
  }
  return nullptr;
}

const Curve* Profile::FindExchange(const ExchangeCurveKey& key) const {
  const auto* found = Find(exchanges_, key);
  return found == nullptr ? nullptr : &found->second;
}

const Curve* Profile::memory_read() const {
  return memory_read_.has_value() ? &*memory_read_ : nullptr;
}

const Curve* Profile::memory_copy() const {
  return memory_copy_.has_value() ? &*memory_copy_ : nullptr;
}

}  // namespace fabricwise
