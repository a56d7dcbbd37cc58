// SPDX-License-Identifier: Apache-2.0
#include "server/store/schema.h"

#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

// "FbWs": marks our databases, so that another program's is not touched.
constexpr int64_t kApplicationId = 0x46625773;

// kMigrations[v] leads from version v to v + 1. What is released is never
// edited: databases made by it exist.
constexpr const char* kMigrations[] = {
    R"sql(
CREATE TABLE profiles (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT NOT NULL,
  fingerprint_id TEXT NOT NULL,
  driver_version TEXT NOT NULL,
  cuda_version TEXT NOT NULL,
  nccl_version TEXT NOT NULL,
  fabric TEXT NOT NULL,
  peer_access TEXT NOT NULL,         -- rows by ';', entries by ','
  nvlinks TEXT NOT NULL,             -- the same
  as_of_unix_nanos INTEGER NOT NULL,
  content_digest INTEGER NOT NULL    -- of all that was imported
) STRICT;
CREATE INDEX profiles_by_fingerprint ON profiles (fingerprint_id);
CREATE INDEX profiles_by_content ON profiles (content_digest);

CREATE TABLE profile_gpus (
  profile_id INTEGER NOT NULL REFERENCES profiles (id),
  gpu_index INTEGER NOT NULL,
  name TEXT NOT NULL,
  uuid TEXT NOT NULL,
  memory_bytes INTEGER NOT NULL,
  compute_capability INTEGER NOT NULL,
  PRIMARY KEY (profile_id, gpu_index)
) STRICT, WITHOUT ROWID;

CREATE TABLE profile_lines (
  profile_id INTEGER NOT NULL REFERENCES profiles (id),
  kind TEXT NOT NULL CHECK (kind IN ('nccl_environment', 'fact', 'note')),
  line_index INTEGER NOT NULL,
  line TEXT NOT NULL,
  PRIMARY KEY (profile_id, kind, line_index)
) STRICT, WITHOUT ROWID;

-- The newest row names the profile in use.
CREATE TABLE selections (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  profile_id INTEGER NOT NULL REFERENCES profiles (id)
) STRICT;

CREATE TABLE measurements (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  profile_id INTEGER NOT NULL REFERENCES profiles (id),
  key TEXT NOT NULL,
  origin TEXT NOT NULL CHECK (origin IN ('measured', 'reference')),
  start_time_unix_nanos INTEGER NOT NULL,
  median_seconds REAL NOT NULL,
  iqr_seconds REAL,                  -- NULL: not recorded; so below
  p99_seconds REAL,
  samples INTEGER NOT NULL,          -- 0: not recorded
  discarded INTEGER NOT NULL,
  discard_reason TEXT NOT NULL,
  stop_reason TEXT NOT NULL CHECK (
      stop_reason IN ('unknown', 'good', 'settled_noisy', 'out_of_budget')),
  verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
  sm_clock_hertz REAL,
  rows_local INTEGER,
  experts_hit INTEGER,
  source TEXT NOT NULL,
  fingerprint_id TEXT NOT NULL       -- empty: imported without one
) STRICT;
CREATE INDEX measurements_by_key ON measurements (
    profile_id, key, origin, start_time_unix_nanos, id);

CREATE TRIGGER measurements_not_edited BEFORE UPDATE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are appended, never edited'); END;
CREATE TRIGGER measurements_not_deleted BEFORE DELETE ON measurements
BEGIN SELECT RAISE(ABORT, 'measurements are appended, never deleted'); END;
)sql",
};
constexpr int64_t kVersion = std::size(kMigrations);

absl::Status CheckOwner(sqlite::Connection& connection) {
  ASSIGN_OR_RETURN(const int64_t owner,
                   connection.Number("PRAGMA application_id"));
  if (owner == kApplicationId) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t objects,
                   connection.Number("SELECT count(*) FROM sqlite_schema"));
  if (owner == 0 && objects == 0) return absl::OkStatus();  // brand new
  return absl::FailedPreconditionError(
      "it is another program's SQLite database; name a file that does not "
      "exist or one that Fabricwise made");
}

}  // namespace

absl::Status PrepareSchema(sqlite::Connection& connection) {
  RETURN_IF_ERROR(CheckOwner(connection));
  // The version is read under the write lock, lest two openers both migrate.
  ASSIGN_OR_RETURN(sqlite::Transaction transaction,
                   sqlite::Transaction::Begin(connection));
  ASSIGN_OR_RETURN(const int64_t version,
                   connection.Number("PRAGMA user_version"));
  if (version > kVersion || version < 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its schema has version ", version, ", this program knows up to ",
        kVersion, "; use the newer Fabricwise that wrote it"));
  }
  if (version == kVersion) return absl::OkStatus();
  for (int64_t from = version; from < kVersion; ++from) {
    RETURN_IF_ERROR(connection.Run(kMigrations[from]));
  }
  RETURN_IF_ERROR(
      connection.Run(absl::StrCat("PRAGMA application_id = ", kApplicationId,
                                  "; PRAGMA user_version = ", kVersion)));
  return transaction.Commit();
}

}  // namespace fabricwise
