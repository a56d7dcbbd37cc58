// SPDX-License-Identifier: Apache-2.0
#include "server/store/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/store/record.h"
#include "server/store/schema.h"

namespace fabricwise {
namespace {

// How long a statement waits for a lock held by another connection: ours are
// held for one commit, and a person's sqlite3 shell for not much more.
constexpr absl::Duration kBusyTimeout = absl::Seconds(5);

absl::Status WithContext(const absl::Status& status, absl::string_view doing,
                         absl::string_view path) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("store ", path, ": ", doing,
                                                  ": ", status.message()));
}

absl::Status CheckPlainFile(const std::string& path) {
  struct stat info;
  if (path.empty()) {
    return absl::InvalidArgumentError("the path is empty; name a file");
  }
  // Absent is fine: it is made. What else stat finds wrong, opening tells.
  if (stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("it is not a plain file");
}

absl::Status CheckSquare(size_t gpus, size_t rows, bool square,
                         absl::string_view name) {
  if (rows == 0 || (rows == gpus && square)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " has ", rows, " rows; allowed: none, or ", gpus,
                   " of ", gpus, " entries, one for each GPU"));
}

template <typename T>
absl::Status CheckSquare(size_t gpus, const std::vector<std::vector<T>>& matrix,
                         absl::string_view name) {
  const bool square =
      std::all_of(matrix.begin(), matrix.end(),
                  [&](const auto& row) { return row.size() == gpus; });
  return CheckSquare(gpus, matrix.size(), square, name);
}

absl::Status CheckProfile(const StoredProfile& profile) {
  const Fingerprint& f = profile.fingerprint;
  RETURN_IF_ERROR(CheckSquare(f.gpus.size(), f.peer_access, "peer_access"));
  RETURN_IF_ERROR(CheckSquare(f.gpus.size(), f.nvlinks, "nvlinks"));
  return CheckKeepable(profile.as_of, "as_of");
}

int64_t Digest(const StoredProfile& profile) {
  const Fingerprint& f = profile.fingerprint;
  ContentDigest digest;
  digest.Add(profile.name);
  digest.Add(FingerprintId(f));
  digest.Add(absl::ToUnixNanos(profile.as_of));
  digest.Add(static_cast<int64_t>(profile.notes.size()));
  for (const std::string& note : profile.notes) digest.Add(note);
  for (const Measurement& m : profile.measurements) digest.Add(m);
  return digest.value();
}

struct Wanted {
  sqlite::Statement* statement;
  std::string sql;
};

absl::Status PrepareAll(sqlite::Connection& connection,
                        const std::vector<Wanted>& wanted) {
  for (const Wanted& w : wanted) {
    ASSIGN_OR_RETURN(*w.statement, connection.Prepare(w.sql));
  }
  return absl::OkStatus();
}

// The lists of lines that a profile has, by the word of their column `kind`.
template <typename Profile>
auto LinesOf(Profile& profile) {
  return std::map<absl::string_view, decltype(&profile.notes)>{
      {"nccl_environment", &profile.fingerprint.nccl_environment},
      {"fact", &profile.fingerprint.facts},
      {"note", &profile.notes}};
}

// The smallest text that is greater than all that begin with `prefix`; nullopt:
// there is none.
std::optional<std::string> EndOfPrefix(absl::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && end.back() == '\xff') end.pop_back();
  if (end.empty()) return std::nullopt;
  end.back() = static_cast<char>(end.back() + 1);
  return end;
}

}  // namespace

absl::StatusOr<Store::FileLock> Store::FileLock::Take(const std::string& path) {
  const std::string lock_path = path + ".lock";
  constexpr mode_t kMode = 0640;
  const int descriptor =
      open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode);
  if (descriptor < 0) {
    const int error = errno;
    return absl::ErrnoToStatus(error, absl::StrCat("cannot open ", lock_path));
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(descriptor);
    if (error == EWOULDBLOCK) {
      return absl::FailedPreconditionError("another process has it open");
    }
    return absl::ErrnoToStatus(error, absl::StrCat("cannot lock ", lock_path));
  }
  return FileLock(descriptor);
}

Store::FileLock::FileLock(FileLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

Store::FileLock::~FileLock() {
  // The file stays: to remove it would let two processes lock two files.
  if (descriptor_ >= 0) close(descriptor_);
}

Store::Store(std::string path, FileLock lock, Writer writer, Reader reader,
             int64_t count)
    : path_(std::move(path)),
      lock_(std::move(lock)),
      count_(count),
      writer_(std::move(writer)),
      reader_(std::move(reader)) {}

absl::Status Store::Annotate(const absl::Status& status,
                             absl::string_view doing) const {
  return WithContext(status, doing, path_);
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path) {
  constexpr absl::string_view kDoing = "opening";
  if (absl::Status status = CheckPlainFile(path); !status.ok()) {
    return WithContext(status, kDoing, path);
  }
  absl::StatusOr<FileLock> lock = FileLock::Take(path);
  if (!lock.ok()) return WithContext(lock.status(), kDoing, path);
  absl::StatusOr<Writer> writer = OpenWriter(path);
  if (!writer.ok()) return WithContext(writer.status(), kDoing, path);
  absl::StatusOr<Reader> reader = OpenReader(path);
  if (!reader.ok()) return WithContext(reader.status(), kDoing, path);
  // Rows are never deleted: the newest id counts them.
  absl::StatusOr<int64_t> count =
      reader->connection.Number("SELECT ifnull(max(id), 0) FROM measurements");
  if (!count.ok()) return WithContext(count.status(), kDoing, path);
  return std::unique_ptr<Store>(new Store(
      path, *std::move(lock), *std::move(writer), *std::move(reader), *count));
}

absl::StatusOr<Store::Writer> Store::OpenWriter(const std::string& path) {
  Writer w;
  ASSIGN_OR_RETURN(w.connection, sqlite::Connection::Open(path, kBusyTimeout));
  // The first statement that reads the file tells whether it is a database.
  RETURN_IF_ERROR(
      w.connection.Number("SELECT count(*) FROM sqlite_schema").status());
  if (w.connection.read_only()) {
    return absl::PermissionDeniedError("the file may not be written");
  }
  ASSIGN_OR_RETURN(const std::string check,
                   w.connection.Text("PRAGMA quick_check(1)"));
  if (check != "ok") {
    return absl::DataLossError(absl::StrCat("the file is damaged: ", check));
  }
  RETURN_IF_ERROR(PrepareSchema(w.connection));
  ASSIGN_OR_RETURN(const std::string mode,
                   w.connection.Text("PRAGMA journal_mode = WAL"));
  if (mode != "wal") {
    return absl::FailedPreconditionError(
        absl::StrCat("its file system allows no write-ahead log (mode ", mode,
                     "); name a file on a local disk"));
  }
  RETURN_IF_ERROR(
      w.connection.Run("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON"));

  RETURN_IF_ERROR(PrepareAll(
      w.connection,
      {{&w.find_content,
        "SELECT id FROM profiles WHERE content_digest = ? AND name = ? AND "
        "fingerprint_id = ?"},
       {&w.insert_profile,
        "INSERT INTO profiles (name, fingerprint_id, driver_version, "
        "cuda_version, nccl_version, fabric, peer_access, nvlinks, "
        "as_of_unix_nanos, content_digest) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"},
       {&w.insert_gpu,
        "INSERT INTO profile_gpus (profile_id, gpu_index, name, uuid, "
        "memory_bytes, compute_capability) VALUES (?, ?, ?, ?, ?, ?)"},
       {&w.insert_line,
        "INSERT INTO profile_lines (profile_id, kind, line_index, line) "
        "VALUES (?, ?, ?, ?)"},
       {&w.select, "INSERT INTO selections (profile_id) VALUES (?)"},
       {&w.has_profile, "SELECT 1 FROM profiles WHERE id = ?"},
       {&w.insert_measurement,
        absl::StrCat("INSERT INTO measurements (profile_id, ",
                     kMeasurementColumns,
                     ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
                     "?, ?, ?, ?, ?, ?, ?, ?, ?)")}}));
  return w;
}

absl::StatusOr<Store::Reader> Store::OpenReader(const std::string& path) {
  Reader r;
  ASSIGN_OR_RETURN(r.connection, sqlite::Connection::Open(path, kBusyTimeout));
  RETURN_IF_ERROR(r.connection.Run("PRAGMA query_only = ON"));
  RETURN_IF_ERROR(PrepareAll(
      r.connection,
      {{&r.current,
        "SELECT profile_id FROM selections ORDER BY id DESC LIMIT 1"},
       {&r.by_fingerprint,
        "SELECT id FROM profiles WHERE fingerprint_id = ? ORDER BY id DESC"},
       {&r.profile,
        "SELECT name, driver_version, cuda_version, nccl_version, fabric, "
        "peer_access, nvlinks, as_of_unix_nanos FROM profiles WHERE id = ?"},
       {&r.gpus,
        "SELECT name, uuid, memory_bytes, compute_capability FROM "
        "profile_gpus WHERE profile_id = ? ORDER BY gpu_index"},
       {&r.lines,
        "SELECT kind, line FROM profile_lines WHERE profile_id = ? "
        "ORDER BY kind, line_index"},
       // Years of runs hold hundreds of times as many rows as keys: these go
       // from key to key in the index and read there what they need.
       {&r.newest,
        absl::StrCat(
            "WITH RECURSIVE keys (k) AS (SELECT min(key) FROM measurements "
            "WHERE profile_id = ?1 UNION ALL SELECT (SELECT min(key) FROM "
            "measurements WHERE profile_id = ?1 AND key > k) FROM keys WHERE k "
            "IS NOT NULL) SELECT ",
            kMeasurementColumns,
            " FROM keys JOIN (SELECT 'measured' AS o UNION ALL SELECT "
            "'reference') JOIN measurements ON id = (SELECT id FROM "
            "measurements WHERE profile_id = ?1 AND key = k AND origin = o "
            "ORDER BY start_time_unix_nanos DESC, id DESC LIMIT 1) ORDER BY "
            "id")},
       {&r.next_key,
        "SELECT min(key) FROM measurements WHERE profile_id = ? AND key > ?"},
       {&r.runs,
        "SELECT start_time_unix_nanos, median_seconds, iqr_seconds FROM "
        "measurements WHERE profile_id = ? AND key = ? AND origin = 'measured' "
        "ORDER BY start_time_unix_nanos DESC, id DESC LIMIT ?"},
       // A scan by id, newest first: a full page ends it, and none is sorted.
       {&r.page, absl::StrCat("SELECT id, ", kMeasurementColumns,
                              " FROM measurements NOT INDEXED WHERE id < ?1 "
                              "AND key >= ?2 AND (?3 IS NULL OR key < ?3) "
                              "ORDER BY id DESC LIMIT ?4")}}));
  return r;
}

absl::StatusOr<int64_t> Store::Import(const StoredProfile& profile) {
  absl::MutexLock lock(&writer_mutex_);
  absl::StatusOr<int64_t> id = ImportLocked(profile);
  if (id.ok()) return id;
  return Annotate(id.status(),
                  absl::StrCat("importing profile ", Quoted(profile.name)));
}

absl::StatusOr<int64_t> Store::ImportLocked(const StoredProfile& profile) {
  RETURN_IF_ERROR(CheckProfile(profile));
  for (const Measurement& m : profile.measurements) {
    RETURN_IF_ERROR(CheckKeepable(m));
  }
  const int64_t digest = Digest(profile);
  ASSIGN_OR_RETURN(sqlite::Transaction transaction,
                   sqlite::Transaction::Begin(writer_.connection));
  std::optional<int64_t> id;
  int64_t count = count_;
  {
    sqlite::Cursor known(writer_.find_content);
    known.Bind(digest)
        .Bind(profile.name)
        .Bind(FingerprintId(profile.fingerprint));
    ASSIGN_OR_RETURN(const bool found, known.Next());
    if (found) id = known.Integer(0);
  }
  if (!id) {
    ASSIGN_OR_RETURN(id, InsertProfile(profile, digest));
    for (const Measurement& m : profile.measurements) {
      ASSIGN_OR_RETURN(count, InsertMeasurement(*id, m));
    }
  }
  RETURN_IF_ERROR(sqlite::Cursor(writer_.select).Bind(*id).Finish());
  RETURN_IF_ERROR(transaction.Commit());
  count_ = count;
  return *id;
}

absl::StatusOr<int64_t> Store::InsertProfile(const StoredProfile& profile,
                                             int64_t digest) {
  const Fingerprint& f = profile.fingerprint;
  RETURN_IF_ERROR(sqlite::Cursor(writer_.insert_profile)
                      .Bind(profile.name)
                      .Bind(FingerprintId(f))
                      .Bind(f.driver_version)
                      .Bind(f.cuda_version)
                      .Bind(f.nccl_version)
                      .Bind(f.fabric)
                      .Bind(MatrixText(f.peer_access))
                      .Bind(MatrixText(f.nvlinks))
                      .Bind(absl::ToUnixNanos(profile.as_of))
                      .Bind(digest)
                      .Finish());
  const int64_t id = writer_.connection.last_insert_id();
  for (int64_t i = 0; const Gpu& gpu : f.gpus) {
    RETURN_IF_ERROR(sqlite::Cursor(writer_.insert_gpu)
                        .Bind(id)
                        .Bind(i++)
                        .Bind(gpu.name)
                        .Bind(gpu.uuid)
                        .Bind(gpu.memory_bytes)
                        .Bind(int64_t{gpu.compute_capability})
                        .Finish());
  }
  for (const auto& [kind, lines] : LinesOf(profile)) {
    for (int64_t i = 0; const std::string& line : *lines) {
      RETURN_IF_ERROR(sqlite::Cursor(writer_.insert_line)
                          .Bind(id)
                          .Bind(kind)
                          .Bind(i++)
                          .Bind(line)
                          .Finish());
    }
  }
  return id;
}

absl::StatusOr<int64_t> Store::InsertMeasurement(
    int64_t profile_id, const Measurement& measurement) {
  sqlite::Cursor cursor(writer_.insert_measurement);
  cursor.Bind(profile_id);
  BindMeasurement(measurement, cursor);
  RETURN_IF_ERROR(cursor.Finish());
  return writer_.connection.last_insert_id();
}

absl::StatusOr<std::vector<int64_t>> Store::Append(
    int64_t profile_id, absl::Span<const Measurement> measurements) {
  absl::MutexLock lock(&writer_mutex_);
  absl::StatusOr<std::vector<int64_t>> ids =
      AppendLocked(profile_id, measurements);
  if (ids.ok()) return ids;
  return Annotate(ids.status(), "appending measurements");
}

absl::Status Store::Select(int64_t profile_id) {
  absl::MutexLock lock(&writer_mutex_);
  const absl::Status status = SelectLocked(profile_id);
  return status.ok() ? status : Annotate(status, "selecting a profile");
}

absl::Status Store::SelectLocked(int64_t profile_id) {
  ASSIGN_OR_RETURN(sqlite::Transaction transaction,
                   sqlite::Transaction::Begin(writer_.connection));
  {
    sqlite::Cursor profile(writer_.has_profile);
    ASSIGN_OR_RETURN(const bool found, profile.Bind(profile_id).Next());
    if (!found) {
      return absl::NotFoundError(absl::StrCat("no profile ", profile_id));
    }
  }
  RETURN_IF_ERROR(sqlite::Cursor(writer_.select).Bind(profile_id).Finish());
  return transaction.Commit();
}

absl::StatusOr<std::vector<int64_t>> Store::AppendLocked(
    int64_t profile_id, absl::Span<const Measurement> measurements) {
  for (const Measurement& m : measurements) RETURN_IF_ERROR(CheckKeepable(m));
  ASSIGN_OR_RETURN(sqlite::Transaction transaction,
                   sqlite::Transaction::Begin(writer_.connection));
  {
    sqlite::Cursor profile(writer_.has_profile);
    ASSIGN_OR_RETURN(const bool found, profile.Bind(profile_id).Next());
    if (!found) {
      return absl::NotFoundError(absl::StrCat("no profile ", profile_id));
    }
  }
  std::vector<int64_t> ids;
  for (const Measurement& m : measurements) {
    ASSIGN_OR_RETURN(const int64_t id, InsertMeasurement(profile_id, m));
    ids.push_back(id);
  }
  RETURN_IF_ERROR(transaction.Commit());
  if (!ids.empty()) count_ = ids.back();
  return ids;
}

absl::StatusOr<std::optional<int64_t>> Store::CurrentProfile() {
  absl::MutexLock lock(&reader_mutex_);
  sqlite::Cursor cursor(reader_.current);
  absl::StatusOr<bool> found = cursor.Next();
  if (!found.ok()) return Annotate(found.status(), "reading");
  if (!*found) return std::nullopt;
  return cursor.Integer(0);
}

absl::StatusOr<std::optional<int64_t>> Store::FindProfile(
    absl::string_view fingerprint_id) {
  absl::MutexLock lock(&reader_mutex_);
  sqlite::Cursor cursor(reader_.by_fingerprint);
  absl::StatusOr<bool> found = cursor.Bind(fingerprint_id).Next();
  if (!found.ok()) return Annotate(found.status(), "reading");
  if (!*found) return std::nullopt;
  return cursor.Integer(0);
}

absl::StatusOr<StoredProfile> Store::Load(int64_t profile_id) {
  absl::MutexLock lock(&reader_mutex_);
  absl::StatusOr<StoredProfile> profile = LoadLocked(profile_id);
  if (profile.ok()) return profile;
  return Annotate(profile.status(),
                  absl::StrCat("loading profile ", profile_id));
}

absl::StatusOr<StoredProfile> Store::LoadLocked(int64_t profile_id) {
  // One view of the file for all the statements below; undone where it goes.
  ASSIGN_OR_RETURN(const sqlite::Transaction view,
                   sqlite::Transaction::BeginRead(reader_.connection));
  StoredProfile profile;
  Fingerprint& f = profile.fingerprint;
  {
    sqlite::Cursor row(reader_.profile);
    ASSIGN_OR_RETURN(const bool found, row.Bind(profile_id).Next());
    if (!found) return absl::NotFoundError("there is no such profile");
    profile.name = row.Text(0);
    f.driver_version = row.Text(1);
    f.cuda_version = row.Text(2);
    f.nccl_version = row.Text(3);
    f.fabric = row.Text(4);
    ASSIGN_OR_RETURN(f.peer_access, ParseMatrix<bool>(row.Text(5)));
    ASSIGN_OR_RETURN(f.nvlinks, ParseMatrix<int>(row.Text(6)));
    profile.as_of = absl::FromUnixNanos(row.Integer(7));
  }
  sqlite::Cursor gpus(reader_.gpus);
  gpus.Bind(profile_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool found, gpus.Next());
    if (!found) break;
    f.gpus.push_back({.name = gpus.Text(0),
                      .uuid = gpus.Text(1),
                      .memory_bytes = gpus.Integer(2),
                      .compute_capability = static_cast<int>(gpus.Integer(3))});
  }
  sqlite::Cursor lines(reader_.lines);
  lines.Bind(profile_id);
  const auto lists = LinesOf(profile);
  while (true) {
    ASSIGN_OR_RETURN(const bool found, lines.Next());
    if (!found) break;
    const auto list = lists.find(lines.Text(0));
    if (list == lists.end()) {
      return absl::DataLossError(
          absl::StrCat("unknown kind of line \"", lines.Text(0), "\""));
    }
    list->second->push_back(lines.Text(1));
  }
  sqlite::Cursor newest(reader_.newest);
  newest.Bind(profile_id);
  while (true) {
    ASSIGN_OR_RETURN(const bool found, newest.Next());
    if (!found) break;
    ASSIGN_OR_RETURN(Measurement measurement, ReadMeasurement(newest, 0));
    profile.as_of = std::max(profile.as_of, measurement.start_time);
    profile.measurements.push_back(std::move(measurement));
  }
  return profile;
}

absl::StatusOr<std::vector<KeyHistory>> Store::History(
    absl::string_view fingerprint_id, int most_per_key) {
  absl::MutexLock lock(&reader_mutex_);
  auto history = HistoryLocked(fingerprint_id, most_per_key);
  if (history.ok()) return history;
  return Annotate(history.status(), "reading the history");
}

absl::StatusOr<std::vector<KeyHistory>> Store::HistoryLocked(
    absl::string_view fingerprint_id, int most_per_key) {
  // One view of the file for all the statements below; undone where it goes.
  ASSIGN_OR_RETURN(const sqlite::Transaction view,
                   sqlite::Transaction::BeginRead(reader_.connection));
  std::vector<int64_t> profiles;  // newest first
  {
    sqlite::Cursor cursor(reader_.by_fingerprint);
    cursor.Bind(fingerprint_id);
    while (true) {
      ASSIGN_OR_RETURN(const bool found, cursor.Next());
      if (!found) break;
      profiles.push_back(cursor.Integer(0));
    }
  }
  std::map<std::string, std::vector<PastRun>> by_key;
  for (const int64_t profile : profiles) {
    std::string key;  // less than any
    while (true) {
      {
        sqlite::Cursor cursor(reader_.next_key);
        RETURN_IF_ERROR(cursor.Bind(profile).Bind(key).Next().status());
        if (cursor.IsNull(0)) break;
        key = cursor.Text(0);
      }
      std::vector<PastRun>& runs = by_key[key];
      RETURN_IF_ERROR(AddRuns(profile, key, most_per_key, runs));
    }
  }
  std::vector<KeyHistory> history;
  for (auto& [text, runs] : by_key) {
    if (runs.empty()) continue;  // of other nodes alone
    absl::StatusOr<MeasurementKey> key = ParseMeasurementKey(text);
    // A key that was fit to be stored and is not now: the file changed.
    if (!key.ok()) return absl::DataLossError(key.status().message());
    history.push_back({*std::move(key), std::move(runs)});
  }
  return history;
}

absl::Status Store::AddRuns(int64_t profile_id, const std::string& key,
                            int most, std::vector<PastRun>& runs) {
  const auto former = static_cast<std::ptrdiff_t>(runs.size());
  sqlite::Cursor cursor(reader_.runs);
  cursor.Bind(profile_id).Bind(key).Bind(int64_t{most});
  while (true) {
    ASSIGN_OR_RETURN(const bool found, cursor.Next());
    if (!found) break;
    runs.push_back({.start_time = absl::FromUnixNanos(cursor.Integer(0)),
                    .median_seconds = cursor.Real(1),
                    .iqr_seconds = cursor.IsNull(2) ? -1 : cursor.Real(2)});
  }
  std::inplace_merge(runs.begin(), runs.begin() + former, runs.end(),
                     [](const PastRun& a, const PastRun& b) {
                       return a.start_time > b.start_time;
                     });
  runs.resize(std::min(runs.size(), static_cast<size_t>(most)));
  return absl::OkStatus();
}

absl::StatusOr<MeasurementPage> Store::List(int page_size,
                                            absl::string_view token,
                                            absl::string_view key_prefix) {
  RETURN_IF_ERROR(CheckRange("page_size", int64_t{page_size}, 1, kMaxPageSize));
  int64_t before_id = std::numeric_limits<int64_t>::max();
  if (!token.empty() &&
      (!absl::SimpleAtoi(token, &before_id) || before_id < 1)) {
    return NotAllowed("page_token", Quoted(token),
                      "empty, or next_page_token of a response");
  }
  absl::MutexLock lock(&reader_mutex_);
  absl::StatusOr<MeasurementPage> page =
      ListLocked(page_size, before_id, key_prefix);
  if (page.ok()) return page;
  return Annotate(page.status(), "listing measurements");
}

absl::StatusOr<MeasurementPage> Store::ListLocked(int page_size,
                                                  int64_t before_id,
                                                  absl::string_view prefix) {
  MeasurementPage page;
  sqlite::Cursor cursor(reader_.page);
  cursor.Bind(before_id).Bind(prefix);
  if (const std::optional<std::string> end = EndOfPrefix(prefix)) {
    cursor.Bind(*end);
  } else {
    cursor.BindNull();
  }
  // One row more than the page tells whether there is a next one.
  cursor.Bind(int64_t{page_size} + 1);
  while (true) {
    ASSIGN_OR_RETURN(const bool found, cursor.Next());
    if (!found) return page;
    if (static_cast<int>(page.measurements.size()) == page_size) {
      page.next_page_token = absl::StrCat(page.measurements.back().id);
      return page;
    }
    ASSIGN_OR_RETURN(Measurement measurement, ReadMeasurement(cursor, 1));
    page.measurements.push_back({cursor.Integer(0), std::move(measurement)});
  }
}

}  // namespace fabricwise
