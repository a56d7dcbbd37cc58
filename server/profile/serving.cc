// SPDX-License-Identifier: Apache-2.0
#include "server/profile/serving.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace fabricwise {
namespace {

// Activations between layers are bf16 in every engine that is modelled.
constexpr double kActivationBytes = 2;

}  // namespace

double BusFactor(CollectiveOp op, int group_size) {
  const double n = group_size;
  switch (op) {
    case CollectiveOp::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatter:
    case CollectiveOp::kAllToAll:
      return (n - 1) / n;
    case CollectiveOp::kSendRecv:
      return 1;
  }
  return 1;
}

double BytesPerToken(CollectiveOp op, int group_size, int64_t hidden_size) {
  const double token = static_cast<double>(hidden_size) * kActivationBytes;
  switch (op) {
    case CollectiveOp::kAllReduce:
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatter:
    case CollectiveOp::kSendRecv:
      return token;
    case CollectiveOp::kAllToAll:
      return token * group_size;
  }
  return token;
}

std::vector<ReferenceRatio> CompareCurves(const Profile& profile,
                                          const Profile& reference) {
  std::vector<ReferenceRatio> all;
  for (const auto& [key, curve] : profile.curves()) {
    const Curve* const other = reference.FindCurve(key);
    if (other == nullptr) continue;
    std::vector<double> ratios;
    for (const int64_t size : kServingSizesBytes) {
      const auto ours = curve.At(static_cast<double>(size));
      const auto theirs = other->At(static_cast<double>(size));
      if (ours && theirs) ratios.push_back(ours->seconds / theirs->seconds);
    }
    if (ratios.empty()) continue;
    const auto middle =
        ratios.begin() + static_cast<std::ptrdiff_t>((ratios.size() - 1) / 2);
    std::nth_element(ratios.begin(), middle, ratios.end());
    all.push_back({key, *middle});
  }
  return all;
}

}  // namespace fabricwise
