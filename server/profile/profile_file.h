// SPDX-License-Identifier: Apache-2.0
//
// A profile as one file: what moves between machines, is shipped with the
// program, and reads well in a diff.
//
//   {"format": "fabricwise.profile", "version": 2,
//    "name": "h200x2-p2p", "as_of": "2026-11-29T16:58:38+00:00",
//    "fingerprint": {"gpus": [{"name": "NVIDIA H200", ...}, ...], ...},
//    "notes": ["..."],
//    "measurements": [
//      {"key": "all_reduce/n2/nccl/graph/*B", "source": "...",
//       "start_time": "...",
//       "columns": ["*", "median_seconds", "start_after_nanoseconds"],
//       "points": [[512, 6.77591e-06, 0],
//                  [1024, 6.488e-06, 20481000]]}, ...]}
//
// Measurements that follow one another and differ in the swept size, their
// figures and when they began only stand together, one point a line; `*` in a
// key is the swept size and the first column. A column or field that is absent
// was not recorded. The reader takes nothing that it does not know, since it
// cannot tell whether that changes the meaning of what it does know: a field
// more is a new version.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/profile/profile.h"

namespace fabricwise {

inline constexpr char kProfileFormat[] = "fabricwise.profile";
// Version 1 had no start_after_nanoseconds; it is read as well.
inline constexpr int kProfileVersion = 2;
// Over a hundred thousand points; a node has a few thousand.
inline constexpr size_t kMaxProfileBytes = size_t{16} << 20;

// Ends in a newline. Reads back as an equal value, the measurements curve by
// curve in the order in which those first came, negative statistics (not
// recorded) as -1; text that is no UTF-8 has it replaced.
std::string WriteProfile(const ProfileData& data);

// `name` is for messages. INVALID_ARGUMENT, naming the place: not such a file
// (cut off, mistyped, nested deeply, too large), a field that is missing, not
// known, or out of range, a measurement that cannot be. FAILED_PRECONDITION: a
// version newer than this program's.
absl::StatusOr<ProfileData> ReadProfile(const std::string& name,
                                        absl::string_view text);

}  // namespace fabricwise
