// SPDX-License-Identifier: Apache-2.0
//
// A profile from files that other tools wrote. A file's kind is told from its
// content:
//   nccl-tests    text output, or the JSON of -J; graph (-G) and eager
//   CSV           a table of a kind of CsvKinds(), told by its columns;
//                 "# " comments carry facts. docs/importing.md has them
//   a profile     of profile_file.h, whose measurements join
// Times of nccl-tests are its means over iterations; it tells no spread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/domain/fingerprint.h"
#include "server/domain/measurement.h"
#include "server/profile/profile.h"

namespace fabricwise {

struct ImportFile {
  std::string name;  // for messages and sources; folders are dropped
  std::string content;
};

struct ImportOptions {
  std::string name;         // of the profile
  Fingerprint fingerprint;  // what is known of the node; see AssembleProfile
  std::vector<std::string> notes;
  // What the measurements are to this node. Unset: tables of systems and sweeps
  // in CSV are kReference, all others kMeasured.
  std::optional<Origin> origin;
  // Of tables with a `system` column, the one whose rows are taken.
  std::string system;
  // The operation of nccl-tests outputs that do not name it (before 2.17).
  std::optional<CollectiveOp> op;
  // Values that share a scale in int4 tables; 0: their rows are left out.
  int64_t int4_group_size = 0;
  // When files that do not say it were measured.
  absl::Time time = absl::UnixEpoch();
};

// A kind of CSV table: the columns that it must have; others may be there.
struct CsvKind {
  absl::string_view name;
  std::vector<absl::string_view> columns;
};

// All kinds. A table is of the first whose columns it has.
std::vector<CsvKind> CsvKinds();

// Larger files are refused.
inline constexpr size_t kMaxImportBytes = size_t{64} << 20;

// The profile that `files` make together, measurements in order of their
// curves. Facts of the node that `options.fingerprint` leaves empty (GPUs, NCCL
// version and environment; from a profile all that it says) are taken from
// files measured on it; facts that contradict it are refused, so that two
// fabrics cannot mix. Each measurement on this node gets the fingerprint's id.
// `as_of` is the latest time found. INVALID_ARGUMENT naming file, line or
// place, column and value: a file of no known kind or cut off, a row that is
// off, facts that contradict, a group larger than the node, no file, no name.
absl::StatusOr<ProfileData> AssembleProfile(
    const ImportOptions& options, const std::vector<ImportFile>& files);

}  // namespace fabricwise
