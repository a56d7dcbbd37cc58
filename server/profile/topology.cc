// SPDX-License-Identifier: Apache-2.0
#include "server/profile/topology.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace fabricwise {
namespace {

// Of a decode step and of a prompt's chunk: latency and rate.
constexpr double kMessageBytes[] = {64.0 * 1024, 4.0 * 1024 * 1024};

// Times of one kind of link differ by less from one to the next longer one:
// more than runs of one link do, less than one NVLink or PCIe lane width.
constexpr double kSameKindRatio = 1.25;

// What tells links apart, least first.
struct Link {
  int speed = 0;       // 0: the fastest group of times
  int nvlinks = 0;     // negative: more are better
  bool apart = false;  // no peer access
  bool sockets = false;

  friend auto operator<=>(const Link&, const Link&) = default;
};

struct Pair {
  size_t i, j;
  double log_seconds = 0;
  Link link;
};

template <typename T>
bool IsKnown(const std::vector<std::vector<T>>& matrix, size_t count) {
  return matrix.size() == count &&
         std::all_of(matrix.begin(), matrix.end(),
                     [&](const auto& row) { return row.size() == count; });
}

// Empty: not known.
std::string Numa(const Fingerprint& node, size_t gpu) {
  const std::string name = absl::StrCat("gpu", gpu, ".numa=");
  for (const std::string& fact : node.facts) {
    if (absl::StartsWith(fact, name)) return fact.substr(name.size());
  }
  return "";
}

// Sum of the logarithms of the times of both messages.
std::optional<double> LogSeconds(const Curve* curve) {
  if (curve == nullptr) return std::nullopt;
  double sum = 0;
  for (double bytes : kMessageBytes) {
    const std::optional<Estimate> at = curve->At(bytes);
    if (!at.has_value()) return std::nullopt;
    sum += std::log(at->seconds);
  }
  return sum;
}

// Gives each pair the rank of its group of times.
void RankBySpeed(std::vector<Pair>& pairs) {
  std::vector<Pair*> ascending;
  for (Pair& pair : pairs) ascending.push_back(&pair);
  std::stable_sort(ascending.begin(), ascending.end(),
                   [](const Pair* a, const Pair* b) {
                     return a->log_seconds < b->log_seconds;
                   });
  const double gap = std::size(kMessageBytes) * std::log(kSameKindRatio);
  int speed = 0;
  for (size_t i = 1; i < ascending.size(); ++i) {
    if (ascending[i]->log_seconds - ascending[i - 1]->log_seconds > gap) {
      ++speed;
    }
    ascending[i]->link.speed = speed;
  }
}

}  // namespace

Topology Topology::Of(
    const Fingerprint& node,
    absl::FunctionRef<const Curve*(int i, int j)> pair_curve) {
  const size_t count = node.gpus.size();
  std::vector<std::string> numa;
  for (size_t i = 0; i < count; ++i) numa.push_back(Numa(node, i));
  std::vector<Pair> pairs;
  bool measured = true;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      Pair pair{.i = i, .j = j};
      if (IsKnown(node.nvlinks, count)) {
        const int links = std::min(node.nvlinks[i][j], node.nvlinks[j][i]);
        pair.link.nvlinks = -links;
      }
      if (IsKnown(node.peer_access, count)) {
        pair.link.apart = !node.peer_access[i][j] || !node.peer_access[j][i];
      }
      pair.link.sockets = pair.link.nvlinks == 0 && numa[i] != numa[j];
      const auto seconds =
          LogSeconds(pair_curve(static_cast<int>(i), static_cast<int>(j)));
      pair.log_seconds = seconds.value_or(0);
      measured = measured && seconds.has_value();
      pairs.push_back(pair);
    }
  }
  if (measured) RankBySpeed(pairs);

  std::vector<Link> kinds;
  for (const Pair& pair : pairs) kinds.push_back(pair.link);
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  Topology topology;
  topology.kinds_.assign(count, std::vector<uint8_t>(count));
  topology.kind_count_ =
      std::clamp(static_cast<int>(kinds.size()), 1, kMostKinds);
  for (const Pair& pair : pairs) {
    const auto place = std::lower_bound(kinds.begin(), kinds.end(), pair.link);
    topology.kinds_[pair.i][pair.j] = topology.kinds_[pair.j][pair.i] =
        static_cast<uint8_t>(std::min<std::ptrdiff_t>(
            place - kinds.begin(), topology.kind_count_ - 1));
  }
  return topology;
}

Topology Topology::Among(absl::Span<const int> gpus) const {
  Topology among;
  std::set<uint8_t> kinds;
  for (const int i : gpus) {
    std::vector<uint8_t>& row = among.kinds_.emplace_back();
    for (const int j : gpus) {
      row.push_back(static_cast<uint8_t>(i == j ? 0 : Kind(i, j)));
      if (i != j) kinds.insert(row.back());
    }
  }
  if (kinds.size() > 1) among.kind_count_ = kind_count_;
  return among;
}

}  // namespace fabricwise
