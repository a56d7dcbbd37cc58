// SPDX-License-Identifier: Apache-2.0
#include "client/profile_diff.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/render/units.h"

namespace fabricwise {
namespace {

// Gathers ratios of one series.
class Ratios {
 public:
  void Add(double first, double second, std::string at) {
    double log_ratio = std::log(second / first);
    sum_ += log_ratio;
    ++count_;
    if (count_ == 1 || std::abs(log_ratio) > std::abs(worst_)) {
      worst_ = log_ratio;
      worst_at_ = std::move(at);
    }
  }
  SeriesDiff Result(std::string name) const {
    SeriesDiff diff;
    diff.name = std::move(name);
    diff.compared = count_;
    if (count_ > 0) {
      diff.typical_change = std::expm1(sum_ / count_);
      diff.worst_change = std::expm1(worst_);
      diff.worst_at = worst_at_;
    }
    return diff;
  }

 private:
  int count_ = 0;
  double sum_ = 0;
  double worst_ = 0;
  std::string worst_at_;
};

SeriesDiff Compare(std::string name, const Curve& first, const Curve& second,
                   std::string (*format)(double)) {
  double low =
      std::max(first.points().front().size, second.points().front().size);
  double high =
      std::min(first.points().back().size, second.points().back().size);
  std::set<double> sizes;
  for (const Curve* curve : {&first, &second}) {
    for (const CurvePoint& point : curve->points()) {
      if (point.size >= low && point.size <= high) sizes.insert(point.size);
    }
  }
  Ratios ratios;
  for (double size : sizes) {
    std::optional<Estimate> a = first.At(size), b = second.At(size);
    if (a && b) ratios.Add(a->seconds, b->seconds, format(size));
  }
  return ratios.Result(std::move(name));
}

template <typename Key>
void CompareAll(const std::map<Key, Curve>& first,
                const std::map<Key, Curve>& second,
                std::string (*format)(double), ProfileDiff* diff) {
  for (const auto& [key, curve] : first) {
    auto other = second.find(key);
    if (other == second.end()) {
      diff->only_first.push_back(ToString(key));
    } else {
      diff->series.push_back(
          Compare(ToString(key), curve, other->second, format));
    }
  }
  for (const auto& [key, curve] : second) {
    if (!first.contains(key)) diff->only_second.push_back(ToString(key));
  }
}

// Table entries by kind ("gemm/bf16") and then by the rest of their key.
using Tables = std::map<std::string, std::map<std::string, double>>;

Tables TablesOf(const Profile& profile) {
  Tables tables;
  for (const Measurement& measurement : profile.data().measurements) {
    if (std::holds_alternative<CollectiveKey>(measurement.key) ||
        std::holds_alternative<ExchangeKey>(measurement.key)) {
      continue;
    }
    std::string key = ToString(measurement.key);
    std::vector<std::string> parts =
        absl::StrSplit(key, absl::MaxSplits('/', 2));
    std::string kind = absl::StrCat(parts[0], "/", parts[1]);
    std::string rest = parts.size() > 2 ? parts[2] : "";
    tables[kind][rest] = measurement.statistics.median_seconds;
  }
  return tables;
}

std::string GpuNames(const Fingerprint& node) {
  std::map<std::string, int> counts;
  for (const Gpu& gpu : node.gpus) ++counts[gpu.name];
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second, "x ", entry.first);
  });
}

std::vector<std::string> NodeChanges(const Fingerprint& first,
                                     const Fingerprint& second) {
  auto joined = [](const std::vector<std::string>& items) {
    return absl::StrJoin(items, " ");
  };
  struct Part {
    absl::string_view name;
    std::string first, second;
  };
  std::vector<std::string> changes;
  for (const Part& part : std::vector<Part>{
           {"GPUs", GpuNames(first), GpuNames(second)},
           {"fabric", first.fabric, second.fabric},
           {"driver", first.driver_version, second.driver_version},
           {"CUDA", first.cuda_version, second.cuda_version},
           {"NCCL", first.nccl_version, second.nccl_version},
           {"NCCL environment", joined(first.nccl_environment),
            joined(second.nccl_environment)},
           {"facts", joined(first.facts), joined(second.facts)}}) {
    if (part.first == part.second) continue;
    auto said = [](const std::string& text) {
      return text.empty() ? std::string("none") : text;
    };
    changes.push_back(absl::StrCat(part.name, ": ", said(part.first), " -> ",
                                   said(part.second)));
  }
  return changes;
}

}  // namespace

ProfileDiff Diff(const Profile& first, const Profile& second) {
  ProfileDiff diff;
  diff.first = {first.name(), first.fingerprint_id(), first.data().as_of};
  diff.second = {second.name(), second.fingerprint_id(), second.data().as_of};
  diff.node_changes = NodeChanges(first.fingerprint(), second.fingerprint());
  CompareAll(first.curves(), second.curves(), FormatBytes, &diff);
  CompareAll(
      first.exchanges(), second.exchanges(),
      [](double tokens) {
        return absl::StrCat(FormatNumber(tokens), " tokens");
      },
      &diff);
  Tables a = TablesOf(first), b = TablesOf(second);
  for (const auto& [kind, entries] : a) {
    auto other = b.find(kind);
    if (other == b.end()) {
      diff.only_first.push_back(kind);
      continue;
    }
    Ratios ratios;
    for (const auto& [rest, seconds] : entries) {
      auto match = other->second.find(rest);
      if (match != other->second.end()) {
        ratios.Add(seconds, match->second, rest);
      }
    }
    diff.series.push_back(ratios.Result(kind));
  }
  for (const auto& [kind, entries] : b) {
    if (!a.contains(kind)) diff.only_second.push_back(kind);
  }
  return diff;
}

}  // namespace fabricwise
