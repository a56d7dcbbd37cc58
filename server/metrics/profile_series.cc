// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/profile_series.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

std::string Text(absl::string_view text) { return std::string(text); }

void ForEachCurve(
    const Profile& profile,
    absl::FunctionRef<void(const CurveKey&, const Curve&)> visit) {
  size_t left = kMaxExportedCurves;
  for (const auto& [key, curve] : profile.curves()) {
    if (left-- == 0) return;
    visit(key, curve);
  }
}

std::optional<double> P99At(const Curve& curve, int64_t size) {
  for (const CurvePoint& point : curve.points()) {
    if (point.size == static_cast<double>(size) && point.p99_seconds >= 0) {
      return point.p99_seconds;
    }
  }
  return std::nullopt;
}

void ForEachCliff(
    const Profile& profile,
    absl::FunctionRef<void(const CurveKey&, const char* edge, double bytes)>
        visit) {
  ForEachCurve(profile, [&](const CurveKey& key, const Curve& curve) {
    const std::vector<Cliff> cliffs = curve.Cliffs();
    if (cliffs.empty()) return;
    visit(key, "from", cliffs.front().from_size);
    visit(key, "to", cliffs.front().to_size);
  });
}

void ForEachPair(const Profile& profile,
                 absl::FunctionRef<void(size_t gpu, size_t peer)> visit) {
  const size_t count =
      std::min(profile.fingerprint().gpus.size(), kMaxExportedGpus);
  for (size_t gpu = 0; gpu < count; ++gpu) {
    for (size_t peer = 0; peer < count; ++peer) {
      if (gpu != peer) visit(gpu, peer);
    }
  }
}

}  // namespace

void AddCurves(const Profile& profile, CurveValue value, Family& family) {
  const std::string& fabric = profile.fingerprint().fabric;
  ForEachCurve(profile, [&](const CurveKey& key, const Curve& curve) {
    for (const int64_t size : kServingSizesBytes) {
      std::vector<std::string> labels = {ToString(key),
                                         Text(ToString(key.op)),
                                         ToString(key.group),
                                         Text(ToString(key.implementation)),
                                         Text(ToString(key.launch)),
                                         fabric,
                                         absl::StrCat(size)};
      const auto estimate = curve.At(static_cast<double>(size));
      const auto p99 = P99At(curve, size);
      switch (value) {
        case CurveValue::kMedian:
          if (!estimate) break;
          labels.push_back(Text(ToString(estimate->standing)));
          family.Add(std::move(labels), estimate->seconds);
          break;
        case CurveValue::kP99:
          if (p99) family.Add(std::move(labels), *p99);
          break;
        case CurveValue::kBusBandwidth:
          if (!estimate) break;
          family.Add(std::move(labels), static_cast<double>(size) /
                                            estimate->seconds *
                                            BusFactor(key.op, key.group.size));
          break;
      }
    }
  });
}

void AddCliffCounts(const Profile& profile, Family& family) {
  ForEachCurve(profile, [&](const CurveKey& key, const Curve& curve) {
    family.Add({ToString(key)}, static_cast<double>(curve.Cliffs().size()));
  });
}

void AddCliffBytes(const Profile& profile, Family& family) {
  ForEachCliff(profile,
               [&](const CurveKey& key, const char* edge, double bytes) {
                 family.Add({ToString(key), edge}, bytes);
               });
}

void AddCliffTokens(const Profile& profile, const Outlook& outlook,
                    Family& family) {
  std::map<std::string, int64_t> widths;
  for (const ScenarioAdvice& s : outlook.scenarios) {
    widths.emplace(s.model, s.hidden_size);
  }
  for (const auto& model : widths) {
    ForEachCliff(profile, [&](const CurveKey& key, const char* edge,
                              double bytes) {
      family.Add({ToString(key), edge, model.first},
                 bytes / BytesPerToken(key.op, key.group.size, model.second));
    });
  }
}

int64_t CurvesLeftOut(const Profile& profile) {
  const size_t count = profile.curves().size();
  return static_cast<int64_t>(count - std::min(count, kMaxExportedCurves));
}

void AddGpus(const Profile& profile, Family& family) {
  const std::vector<Gpu>& gpus = profile.fingerprint().gpus;
  for (size_t i = 0; i < std::min(gpus.size(), kMaxExportedGpus); ++i) {
    family.Add({absl::StrCat(i), gpus[i].name, gpus[i].uuid}, 1);
  }
}

void AddGpuMemory(const Profile& profile, Family& family) {
  const std::vector<Gpu>& gpus = profile.fingerprint().gpus;
  for (size_t i = 0; i < std::min(gpus.size(), kMaxExportedGpus); ++i) {
    if (gpus[i].memory_bytes == 0) continue;
    family.Add({absl::StrCat(i)}, static_cast<double>(gpus[i].memory_bytes));
  }
}

void AddNvlinks(const Profile& profile, Family& family) {
  const auto& links = profile.fingerprint().nvlinks;
  if (links.empty()) return;
  ForEachPair(profile, [&](size_t gpu, size_t peer) {
    family.Add({absl::StrCat(gpu), absl::StrCat(peer)}, links[gpu][peer]);
  });
}

void AddPeerAccess(const Profile& profile, Family& family) {
  const auto& access = profile.fingerprint().peer_access;
  if (access.empty()) return;
  ForEachPair(profile, [&](size_t gpu, size_t peer) {
    family.Add({absl::StrCat(gpu), absl::StrCat(peer)},
               access[gpu][peer] ? 1 : 0);
  });
}

void AddDriftRatios(const Outlook& outlook, Family& family) {
  for (const Drift& drift : outlook.drifts) {
    family.Add({drift.subject, Text(ToString(drift.band))}, drift.ratio);
  }
}

void AddDrifted(const Outlook& outlook, Family& family) {
  for (const Drift& drift : outlook.drifts) {
    family.Add({drift.subject, Text(ToString(drift.band))},
               drift.drifted ? 1 : 0);
  }
}

void AddReferenceRatios(const Outlook& outlook, Family& family) {
  for (const ReferenceRatio& each : outlook.reference_ratios) {
    family.Add({ToString(each.key)}, each.ratio);
  }
}

}  // namespace fabricwise
