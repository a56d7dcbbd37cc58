// SPDX-License-Identifier: Apache-2.0
//
// What a node has measured and which profiles it was given, kept in one SQLite
// file. Measurements are appended, never edited.
//
// What a call has answered OK survives the death of the process and the loss
// of power (write-ahead log, synced at each commit). The file belongs to one
// process at a time; within it any thread may call anything: writers queue,
// readers do not wait for writers.
//
// Every error names the file. Beside the codes below: UNAVAILABLE for I/O
// errors, RESOURCE_EXHAUSTED where the disk is full, PERMISSION_DENIED,
// DATA_LOSS where the file is damaged.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/domain/fingerprint.h"
#include "server/domain/measurement.h"
#include "server/domain/stored_measurement.h"
#include "server/store/sqlite.h"

namespace fabricwise {

// A node, or what was imported of one.
struct StoredProfile {
  std::string name;
  Fingerprint fingerprint;
  absl::Time as_of = absl::UnixEpoch();
  std::vector<std::string> notes;
  std::vector<Measurement> measurements;
};

class Store {
 public:
  // Opens the store at `path`, making it where there is no file; its folder
  // must exist. An older version's is migrated. INVALID_ARGUMENT: not a plain
  // file. FAILED_PRECONDITION: not a store of ours, a newer version's, or in
  // use by another process. NOT_FOUND: no such folder.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path);

  // Adds a profile with its measurements, all or nothing, and makes it the
  // current one. A profile equal in every part to one imported before is not
  // added again: that one becomes current, with all appended to it since.
  // Returns its id. INVALID_ARGUMENT naming what cannot be kept.
  absl::StatusOr<int64_t> Import(const StoredProfile& profile);

  // Appends to a profile, all or nothing. Returns the new ids, in order.
  // NOT_FOUND: no such profile. INVALID_ARGUMENT naming what cannot be kept: a
  // number that is not finite, a time before 1678 or after 2262.
  absl::StatusOr<std::vector<int64_t>> Append(
      int64_t profile_id, absl::Span<const Measurement> measurements);

  // Makes a profile the current one, as an import does. NOT_FOUND: no such
  // profile.
  absl::Status Select(int64_t profile_id);

  // The id of the profile imported or selected last; nullopt: there is none.
  absl::StatusOr<std::optional<int64_t>> CurrentProfile();

  // The id of the profile of this fingerprint imported last; nullopt: none.
  absl::StatusOr<std::optional<int64_t>> FindProfile(
      absl::string_view fingerprint_id);

  // A profile with the newest measurement (by start, then by storing) of each
  // key and origin, in order of storing. `as_of` is moved up to the newest of
  // them. NOT_FOUND: no such profile.
  absl::StatusOr<StoredProfile> Load(int64_t profile_id);

  // What was measured on the node of this fingerprint itself, all its profiles
  // together: of each key the newest `most_per_key` runs. By key.
  absl::StatusOr<std::vector<KeyHistory>> History(
      absl::string_view fingerprint_id, int most_per_key);

  // Measurements of all profiles whose key begins with `key_prefix`. `token`
  // is empty or a former page's. INVALID_ARGUMENT naming page_size (1 to
  // kMaxPageSize) or page_token.
  absl::StatusOr<MeasurementPage> List(int page_size, absl::string_view token,
                                       absl::string_view key_prefix);

  // How many measurements there are. Does no I/O.
  int64_t MeasurementCount() const { return count_; }

  const std::string& path() const { return path_; }

  static constexpr int kMaxPageSize = 1000;

 private:
  // Held as long as the store is open, let go by the kernel when we die.
  class FileLock {
   public:
    static absl::StatusOr<FileLock> Take(const std::string& path);
    FileLock(FileLock&& other) noexcept;
    FileLock& operator=(FileLock&&) = delete;
    ~FileLock();

   private:
    explicit FileLock(int descriptor) : descriptor_(descriptor) {}
    int descriptor_;  // negative: moved from
  };

  // A connection and the statements prepared on it, once.
  struct Writer {
    sqlite::Connection connection;
    sqlite::Statement find_content, insert_profile, insert_gpu, insert_line,
        select, has_profile, insert_measurement;
  };
  struct Reader {
    sqlite::Connection connection;
    sqlite::Statement current, by_fingerprint, profile, gpus, lines, newest,
        next_key, runs, page;
  };

  Store(std::string path, FileLock lock, Writer writer, Reader reader,
        int64_t count);

  static absl::StatusOr<Writer> OpenWriter(const std::string& path);
  static absl::StatusOr<Reader> OpenReader(const std::string& path);

  // `status` with the file and what was tried put before it.
  absl::Status Annotate(const absl::Status& status,
                        absl::string_view doing) const;

  absl::Status SelectLocked(int64_t profile_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<int64_t> ImportLocked(const StoredProfile& profile)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<std::vector<int64_t>> AppendLocked(
      int64_t profile_id, absl::Span<const Measurement> measurements)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<int64_t> InsertProfile(const StoredProfile& profile,
                                        int64_t digest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<int64_t> InsertMeasurement(int64_t profile_id,
                                            const Measurement& measurement)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(writer_mutex_);
  absl::StatusOr<StoredProfile> LoadLocked(int64_t profile_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mutex_);
  absl::StatusOr<std::vector<KeyHistory>> HistoryLocked(
      absl::string_view fingerprint_id, int most_per_key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mutex_);
  // Adds a key's newest runs of one more profile to `runs`, the newest first,
  // and keeps `most` of them.
  absl::Status AddRuns(int64_t profile_id, const std::string& key, int most,
                       std::vector<PastRun>& runs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mutex_);
  absl::StatusOr<MeasurementPage> ListLocked(int page_size, int64_t before_id,
                                             absl::string_view key_prefix)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reader_mutex_);

  const std::string path_;
  const FileLock lock_;
  std::atomic<int64_t> count_;
  absl::Mutex writer_mutex_;
  Writer writer_ ABSL_GUARDED_BY(writer_mutex_);
  absl::Mutex reader_mutex_;
  Reader reader_ ABSL_GUARDED_BY(reader_mutex_);
};

}  // namespace fabricwise
