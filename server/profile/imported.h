// SPDX-License-Identifier: Apache-2.0
//
// What one measured file holds, before it joins a profile. For the importers;
// callers use import.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/domain/fingerprint.h"
#include "server/domain/measurement.h"

namespace fabricwise {

// What a file does not say and its reader must be told.
struct ImportHints {
  // Of outputs that do not name their operation (nccl-tests before 2.17).
  std::optional<CollectiveOp> op;
  // Rows of other systems are left out of tables with a `system` column. Empty:
  // the table must hold one system only.
  std::string system;
  // Of int4 tables, which do not say it. 0: their rows are left out.
  int64_t int4_group_size = 0;
};

struct Imported {
  std::vector<Measurement> measurements;  // start_time as found, or the epoch
  std::vector<std::string> notes;
  // Facts of the node; empty or 0 where the file is silent.
  std::string gpu_name;
  int gpu_count = 0;
  std::string nccl_version;
  std::optional<std::vector<std::string>> nccl_environment;  // sorted
  std::optional<absl::Time> end_time;
  // What a profile file says of its node beyond these.
  std::optional<Fingerprint> fingerprint;
};

// "alltoall_perf", "sendrecv", "all_reduce": the operation. nullopt: none of
// ours.
std::optional<CollectiveOp> CollectiveOfProgram(absl::string_view name);

// 22803 as "2.28.3"; versions before 2.9 count in hundreds (2804: "2.8.4").
std::string NcclVersionText(int64_t code);

// nccl-tests' text output, from 2.0 to 2.20: one run or several after one
// another. Times are out of place and mean over iterations. Rows of size 0 are
// left out. Lines that are neither its comments nor its rows (of mpirun, of
// NCCL) are skipped. All errors are INVALID_ARGUMENT "<name>:<line>: ...": a
// row that is off, wrong results, a run without its closing line (it was cut
// off), an operation that is not ours or not named.
absl::StatusOr<Imported> ImportNcclTestsText(const std::string& name,
                                             absl::string_view content,
                                             const ImportHints& hints);
bool LooksLikeNcclTestsText(absl::string_view content);

// The JSON that nccl-tests writes with -J. Errors as above, with the path into
// the document instead of the line.
absl::StatusOr<Imported> ImportNcclTestsJson(const std::string& name,
                                             absl::string_view content);

// A table of one of the kinds below.
absl::StatusOr<Imported> ImportCsv(const std::string& name,
                                   const std::string& content,
                                   const ImportHints& hints);

}  // namespace fabricwise
