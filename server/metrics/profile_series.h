// SPDX-License-Identifier: Apache-2.0
//
// The series of a profile and of what it means: curves, topology, scenarios.
#pragma once

#include <cstddef>
#include <cstdint>

#include "server/metrics/family.h"
#include "server/metrics/outlook.h"
#include "server/profile/profile.h"

namespace fabricwise {

// At most so many curves are exported, in order of key; and so many GPUs.
inline constexpr size_t kMaxExportedCurves = 128;
inline constexpr size_t kMaxExportedGpus = 16;

// What a curve tells at the serving sizes that it reaches.
enum class CurveValue {
  kMedian,
  kP99,           // where one was recorded at this very size
  kBusBandwidth,  // as nccl-tests has it, from the median
};
void AddCurves(const Profile& profile, CurveValue value, Family& family);

void AddCliffCounts(const Profile& profile, Family& family);
// Both edges of the first cliff of each curve that has one.
void AddCliffBytes(const Profile& profile, Family& family);
// The same in tokens of each model of the scenarios.
void AddCliffTokens(const Profile& profile, const Outlook& outlook,
                    Family& family);
int64_t CurvesLeftOut(const Profile& profile);

void AddGpus(const Profile& profile, Family& family);
void AddGpuMemory(const Profile& profile, Family& family);
void AddNvlinks(const Profile& profile, Family& family);
void AddPeerAccess(const Profile& profile, Family& family);

void AddDriftRatios(const Outlook& outlook, Family& family);
void AddDrifted(const Outlook& outlook, Family& family);
void AddReferenceRatios(const Outlook& outlook, Family& family);

}  // namespace fabricwise
