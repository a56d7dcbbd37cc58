// SPDX-License-Identifier: Apache-2.0
#include "server/store/store.h"

#include <malloc.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/store/sqlite.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/store/sample.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() {
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return *std::move(store);
  }

  // Runs SQL on the file behind the store's back.
  void Tamper(const std::string& sql) {
    sqlite::Connection c =
        sqlite::Connection::Open(path_, absl::ZeroDuration()).value();
    const absl::Status status = c.Run(sql);
    ASSERT_TRUE(status.ok()) << status;
  }

  void WriteFile(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
  }

  static absl::Status OpenError(const std::string& path) {
    return Store::Open(path).status();
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("store.db");
};

void ExpectEqual(const Measurement& a, const Measurement& b) {
  EXPECT_EQ(ToString(a.key), ToString(b.key));
  EXPECT_EQ(a.statistics.median_seconds, b.statistics.median_seconds);
  EXPECT_EQ(a.statistics.iqr_seconds, b.statistics.iqr_seconds);
  EXPECT_EQ(a.statistics.p99_seconds, b.statistics.p99_seconds);
  EXPECT_EQ(a.statistics.samples, b.statistics.samples);
  EXPECT_EQ(a.statistics.discarded, b.statistics.discarded);
  EXPECT_EQ(a.statistics.discard_reason, b.statistics.discard_reason);
  EXPECT_EQ(a.statistics.stop_reason, b.statistics.stop_reason);
  EXPECT_EQ(a.statistics.verified, b.statistics.verified);
  EXPECT_EQ(a.statistics.sm_clock_hertz, b.statistics.sm_clock_hertz);
  EXPECT_EQ(a.experts.rows_local, b.experts.rows_local);
  EXPECT_EQ(a.experts.experts_hit, b.experts.experts_hit);
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.fingerprint_id, b.fingerprint_id);
  EXPECT_EQ(a.start_time, b.start_time);
}

TEST_F(StoreTest, HistoryIsOfOneNodeAndTheNewestOfEachKey) {
  std::unique_ptr<Store> store = Open();
  StoredProfile profile = FullProfile();
  profile.measurements = {AllReduce(1024, 1e-6, 10), AllReduce(2048, 5e-6, 10)};
  const int64_t id = store->Import(profile).value();
  ASSERT_TRUE(
      store->Append(id, {AllReduce(1024, 2e-6, 20), AllReduce(1024, 3e-6, 30)})
          .ok());
  // The same node, imported under another name; and two that do not count.
  profile.name = "again";
  Measurement reference = AllReduce(1024, 9e-6, 50);
  reference.origin = Origin::kReference;
  profile.measurements = {AllReduce(1024, 4e-6, 25), reference};
  ASSERT_TRUE(store->Import(profile).ok());
  StoredProfile other = profile;
  other.fingerprint.driver_version = "581";
  ASSERT_TRUE(store->Import(other).ok());

  // The medians of both keys, newest first.
  const auto expect = [&](int most, const std::vector<double>& of_1024,
                          const std::vector<double>& of_2048) {
    const auto history =
        store->History(FingerprintId(profile.fingerprint), most);
    ASSERT_TRUE(history.ok()) << history.status();
    ASSERT_THAT(*history, SizeIs(2));
    EXPECT_EQ(ToString((*history)[0].key), "all_reduce/n2/nccl/graph/1024B");
    EXPECT_EQ(ToString((*history)[1].key), "all_reduce/n2/nccl/graph/2048B");
    for (const auto& [key, medians] :
         {std::pair(0, of_1024), std::pair(1, of_2048)}) {
      std::vector<double> found;
      for (const PastRun& run : (*history)[static_cast<size_t>(key)].runs) {
        found.push_back(run.median_seconds);
      }
      EXPECT_EQ(found, medians);
    }
  };
  expect(100, {3e-6, 4e-6, 2e-6, 1e-6}, {5e-6});
  expect(2, {3e-6, 4e-6}, {5e-6});
  EXPECT_THAT(store->History("unheard of", 9).value(), IsEmpty());
  store.reset();
  store = Open();
  expect(2, {3e-6, 4e-6}, {5e-6});
}

TEST_F(StoreTest, HistoryTakesLittleMemoryHoweverManyRunsThereAre) {
  constexpr int kKeys = 100, kMost = 17, kRuns = 3 * kMost;
  std::unique_ptr<Store> store = Open();
  StoredProfile profile = FullProfile();
  const int64_t id = store->Import(profile).value();
  for (int run = 0; run < kRuns; ++run) {
    std::vector<Measurement> measurements;
    for (int key = 1; key <= kKeys; ++key) {
      measurements.push_back(AllReduce(1024 * key, 1e-6, 1'800'000'000 + run));
    }
    ASSERT_TRUE(store->Append(id, measurements).ok());
  }
  const std::string fingerprint = FingerprintId(profile.fingerprint);
  // SQLite fills its page cache at first.
  ASSERT_TRUE(store->History(fingerprint, kMost).ok());
  const size_t before = mallinfo2().uordblks;
  const auto history = store->History(fingerprint, kMost);
  // With a sanitizer's allocator both are 0.
  const size_t after = mallinfo2().uordblks;
  ASSERT_TRUE(history.ok()) << history.status();
  EXPECT_GE(history->size(), size_t{kKeys});
  size_t most_bytes = 0;
  for (const KeyHistory& one : *history) {
    EXPECT_LE(one.runs.size(), size_t{kMost});
    // Twice for a vector that grew, and its own header.
    most_bytes += sizeof(KeyHistory) * 2 + sizeof(PastRun) * kMost * 2 + 64;
  }
  EXPECT_LE(after, before + most_bytes);
}

TEST_F(StoreTest, AProfileCanBeMadeTheCurrentOneAgain) {
  std::unique_ptr<Store> store = Open();
  StoredProfile profile = FullProfile();
  const int64_t first = store->Import(profile).value();
  profile.name = "another";
  const int64_t second = store->Import(profile).value();
  EXPECT_EQ(store->CurrentProfile().value(), second);
  EXPECT_TRUE(store->Select(first).ok());
  EXPECT_EQ(store->CurrentProfile().value(), first);
  const absl::Status none = store->Select(second + 1);
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr(path_), HasSubstr("no profile")));
  store.reset();
  EXPECT_EQ(Open()->CurrentProfile().value(), first);
}

TEST_F(StoreTest, ProfileComesBackWholeAfterReopening) {
  const StoredProfile put = FullProfile();
  int64_t id = 0;
  {
    std::unique_ptr<Store> store = Open();
    id = store->Import(put).value();
  }
  std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->CurrentProfile().value(), id);
  const StoredProfile got = store->Load(id).value();
  EXPECT_EQ(got.name, put.name);
  EXPECT_EQ(got.fingerprint, put.fingerprint);
  EXPECT_EQ(got.as_of, put.as_of);
  EXPECT_EQ(got.notes, put.notes);
  ASSERT_EQ(got.measurements.size(), put.measurements.size());
  for (size_t i = 0; i < put.measurements.size(); ++i) {
    ExpectEqual(got.measurements[i], put.measurements[i]);
  }
}

TEST_F(StoreTest, NewStoreIsEmpty) {
  std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->CurrentProfile().value(), std::nullopt);
  EXPECT_EQ(store->FindProfile("0123456789abcdef").value(), std::nullopt);
  EXPECT_EQ(store->MeasurementCount(), 0);
  EXPECT_TRUE(store->List(10, "", "").value().measurements.empty());
  const absl::Status status = store->Load(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path_), HasSubstr("loading profile 1")));
}

TEST_F(StoreTest, EqualProfileIsTakenIntoUseAgainAndNotAddedAgain) {
  std::unique_ptr<Store> store = Open();
  const StoredProfile a = FullProfile();
  StoredProfile b = a;
  b.notes.push_back("differs");
  const int64_t first = store->Import(a).value();
  ASSERT_TRUE(store->Append(first, {AllReduce(4096, 8e-6)}).ok());
  const int64_t second = store->Import(b).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(store->CurrentProfile().value(), second);
  const int64_t count = store->MeasurementCount();

  EXPECT_EQ(store->Import(a).value(), first);
  EXPECT_EQ(store->CurrentProfile().value(), first);
  EXPECT_EQ(store->MeasurementCount(), count);
  // What was appended since is still there.
  EXPECT_EQ(store->Load(first).value().measurements.size(),
            a.measurements.size() + 1);
}

TEST_F(StoreTest, ProfileIsFoundByFingerprintTheNewestFirst) {
  std::unique_ptr<Store> store = Open();
  StoredProfile p = FullProfile();
  ASSERT_TRUE(store->Import(p).ok());
  p.notes.push_back("newer");
  const int64_t newer = store->Import(p).value();
  StoredProfile other = FullProfile();
  other.fingerprint.fabric = "shm";
  ASSERT_TRUE(store->Import(other).ok());
  EXPECT_EQ(store->FindProfile(FingerprintId(p.fingerprint)).value(), newer);
}

TEST_F(StoreTest, LoadKeepsTheNewestOfEachKeyAndOrigin) {
  std::unique_ptr<Store> store = Open();
  StoredProfile p = FullProfile();
  p.as_of = absl::FromUnixSeconds(150);
  p.measurements = {AllReduce(1024, 1, 100), AllReduce(2048, 2, 100)};
  const int64_t id = store->Import(p).value();
  Measurement reference = AllReduce(1024, 9, 50);
  reference.origin = Origin::kReference;
  // An older start stored later, an equal start stored later, a newer start.
  ASSERT_TRUE(store
                  ->Append(id, {AllReduce(1024, 3, 90), AllReduce(2048, 4, 100),
                                reference, AllReduce(4096, 5, 200)})
                  .ok());
  const StoredProfile got = store->Load(id).value();
  std::vector<double> medians;
  for (const Measurement& m : got.measurements) {
    medians.push_back(m.statistics.median_seconds);
  }
  EXPECT_THAT(medians, ElementsAre(1, 4, 9, 5));
  EXPECT_EQ(got.as_of, absl::FromUnixSeconds(200));
}

TEST_F(StoreTest, AppendGivesAscendingIdsAndCounts) {
  std::unique_ptr<Store> store = Open();
  StoredProfile p = FullProfile();
  p.measurements.clear();
  const int64_t id = store->Import(p).value();
  EXPECT_THAT(store->Append(id, {Gemm(1, 1), Gemm(2, 2)}).value(),
              ElementsAre(1, 2));
  EXPECT_THAT(store->Append(id, {}).value(), ElementsAre());
  EXPECT_THAT(store->Append(id, {Gemm(3, 3)}).value(), ElementsAre(3));
  EXPECT_EQ(store->MeasurementCount(), 3);
}

TEST_F(StoreTest, AppendIsAllOrNothing) {
  std::unique_ptr<Store> store = Open();
  const int64_t id = store->Import(FullProfile()).value();
  const int64_t before = store->MeasurementCount();
  const absl::Status bad = store->Append(id, {Gemm(1, 1), Gemm(0, 1)}).status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("appending measurements"));
  const absl::Status nobody = store->Append(id + 1, {Gemm(1, 1)}).status();
  EXPECT_EQ(nobody.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(nobody.message()),
              HasSubstr(absl::StrCat("no profile ", id + 1)));
  EXPECT_EQ(store->MeasurementCount(), before);
}

TEST_F(StoreTest, ProfileThatCannotBeKeptIsRefusedByThePart) {
  std::unique_ptr<Store> store = Open();
  StoredProfile p = FullProfile();
  p.fingerprint.nvlinks = {{0, 18}};
  EXPECT_EQ(store->Import(p).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(store->Import(p).status().message()),
              HasSubstr("nvlinks has 1 rows; allowed: none, or 2 of 2"));
  p = FullProfile();
  p.fingerprint.peer_access = {{true}, {true, true}};
  EXPECT_THAT(std::string(store->Import(p).status().message()),
              HasSubstr("peer_access has 2 rows"));
  p = FullProfile();
  p.as_of = absl::InfinitePast();
  EXPECT_THAT(std::string(store->Import(p).status().message()),
              HasSubstr("as_of is infinite-past"));
  EXPECT_EQ(store->CurrentProfile().value(), std::nullopt);
}

TEST_F(StoreTest, ListsNewestFirstPageByPage) {
  std::unique_ptr<Store> store = Open();
  StoredProfile p = FullProfile();
  p.measurements.clear();
  for (int i = 1; i <= 7; ++i) p.measurements.push_back(Gemm(i, i));
  ASSERT_TRUE(store->Import(p).ok());
  std::vector<std::vector<int64_t>> pages;
  std::string token;
  do {
    const MeasurementPage page = store->List(3, token, "").value();
    pages.emplace_back();
    for (const StoredMeasurement& m : page.measurements) {
      pages.back().push_back(m.id);
      EXPECT_EQ(m.measurement.statistics.median_seconds,
                static_cast<double>(m.id));
    }
    token = page.next_page_token;
  } while (!token.empty());
  EXPECT_THAT(pages, ElementsAre(ElementsAre(7, 6, 5), ElementsAre(4, 3, 2),
                                 ElementsAre(1)));
  // A page that the last row fills is the last.
  EXPECT_EQ(store->List(7, "", "").value().next_page_token, "");
}

TEST_F(StoreTest, ListsOnlyKeysThatBeginWithThePrefix) {
  std::unique_ptr<Store> store = Open();
  ASSERT_TRUE(store->Import(FullProfile()).ok());
  const auto count = [&](absl::string_view prefix) {
    return store->List(100, "", prefix).value().measurements.size();
  };
  EXPECT_EQ(count("all_reduce/n2/"), 2);
  EXPECT_EQ(count("all_reduce/n2/nccl/graph/1024B"), 1);
  EXPECT_EQ(count("gemm/"), 1);
  EXPECT_EQ(count("all_reduce/n3"), 0);
  EXPECT_EQ(count("%"), 0);
  EXPECT_EQ(count("\xff"), 0);
  EXPECT_EQ(count(""), 4);
}

TEST_F(StoreTest, ListRefusesABadPage) {
  std::unique_ptr<Store> store = Open();
  for (const int size : {0, -1, 1001}) {
    const absl::Status status = store->List(size, "", "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              absl::StrCat("page_size is ", size, "; allowed: 1 to 1000"));
  }
  for (const char* token : {"x", "0", "-4", "99999999999999999999", "1;"}) {
    const absl::Status status = store->List(1, token, "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << token;
    EXPECT_THAT(std::string(status.message()),
                StartsWith(absl::StrCat("page_token is '", token, "'")));
  }
}

TEST_F(StoreTest, MeasurementsCannotBeEditedOrDeletedByAnybody) {
  { ASSERT_TRUE(Open()->Import(FullProfile()).ok()); }
  sqlite::Connection c =
      sqlite::Connection::Open(path_, absl::ZeroDuration()).value();
  EXPECT_THAT(
      std::string(
          c.Run("UPDATE measurements SET median_seconds = 0").message()),
      HasSubstr("never edited"));
  EXPECT_THAT(std::string(c.Run("DELETE FROM measurements").message()),
              HasSubstr("never deleted"));
}

TEST_F(StoreTest, SecondOpenerIsRefused) {
  std::unique_ptr<Store> store = Open();
  const absl::Status status = OpenError(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), absl::StrCat("store ", path_,
                                           ": opening: another process has it "
                                           "open"));
  store.reset();
  EXPECT_TRUE(OpenError(path_).ok());
}

TEST_F(StoreTest, NewerSchemaIsRefusedAndLeftAlone) {
  { Open(); }
  Tamper("PRAGMA user_version = 2");
  const absl::Status status = OpenError(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("its schema has version 2, this program knows up to 1"));
  sqlite::Connection c =
      sqlite::Connection::Open(path_, absl::ZeroDuration()).value();
  EXPECT_EQ(c.Number("PRAGMA user_version").value(), 2);
}

TEST_F(StoreTest, MigrationThatFailsLeavesTheFileAsItWas) {
  // Ours by its mark, of version 0, but with a table in the way.
  Tamper("PRAGMA application_id = 1180850035; CREATE TABLE measurements (a)");
  EXPECT_FALSE(OpenError(path_).ok());
  sqlite::Connection c =
      sqlite::Connection::Open(path_, absl::ZeroDuration()).value();
  EXPECT_EQ(c.Number("PRAGMA user_version").value(), 0);
  EXPECT_EQ(c.Text("SELECT group_concat(name) FROM sqlite_schema").value(),
            "measurements");
}

TEST_F(StoreTest, OlderSchemaIsMigrated) {
  // Version 0 is an empty file that bears our mark.
  Tamper(
      "PRAGMA application_id = 1180850035; CREATE TABLE t (a); DROP TABLE t");
  std::unique_ptr<Store> store = Open();
  EXPECT_TRUE(store->Import(FullProfile()).ok());
}

TEST_F(StoreTest, DatabaseOfAnotherProgramIsRefusedAndLeftAlone) {
  Tamper("CREATE TABLE theirs (a)");
  const absl::Status status = OpenError(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(path_), HasSubstr("another program's SQLite database")));
  sqlite::Connection c =
      sqlite::Connection::Open(path_, absl::ZeroDuration()).value();
  EXPECT_EQ(c.Number("SELECT count(*) FROM sqlite_schema").value(), 1);
}

TEST_F(StoreTest, FileThatIsNoDatabaseIsRefused) {
  WriteFile(std::string(5000, 'x'));
  const absl::Status status = OpenError(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("file is not a database"));
}

TEST_F(StoreTest, DamagedFileIsDataLoss) {
  {
    std::unique_ptr<Store> store = Open();
    StoredProfile p = FullProfile();
    for (int i = 1; i < 2000; ++i) p.measurements.push_back(Gemm(i, i));
    ASSERT_TRUE(store->Import(p).ok());
  }
  // Zeros over all but the first pages: the header and schema still read well.
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(20 * 4096);
  file << std::string(20 * 4096, '\0');
  file.close();
  const absl::Status status = OpenError(path_);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

TEST_F(StoreTest, ChangedKeyTextIsDataLossNotACrash) {
  int64_t id = 0;
  {
    std::unique_ptr<Store> store = Open();
    id = store->Import(FullProfile()).value();
  }
  Tamper(
      "DROP TRIGGER measurements_not_edited;"
      "UPDATE measurements SET key = 'teleport/n2' WHERE id = 1");
  std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->Load(id).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store->List(10, "", "").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(StoreTest, PathsThatCannotHoldAFileAreNamed) {
  EXPECT_EQ(OpenError("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenError(folder_.path()).code(),
            absl::StatusCode::kInvalidArgument);
  const std::string fifo = folder_.File("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(OpenError(fifo).code(), absl::StatusCode::kInvalidArgument);
  const absl::Status status = OpenError(folder_.File("no/such/store.db"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/store.db"));
}

// What `body` answers in a child process, whose limits and user may change.
std::string InChild(const std::function<absl::Status()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = body().ToString();
    const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(ends[0], text.data(), text.size());
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

// Appends until an error, and says it.
absl::Status AppendUntilError(const std::string& path, int64_t profile) {
  absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path);
  if (!store.ok()) return store.status();
  const std::vector<Measurement> batch(100, Gemm(1, 1));
  for (int i = 0; i < 1000; ++i) {
    absl::Status status = (*store)->Append(profile, batch).status();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST_F(StoreTest, FailingWriteIsUnavailableAndLosesNothing) {
  const int64_t id = Open()->Import(FullProfile()).value();
  const std::string answer = InChild([&]() -> absl::Status {
    // From this size on the kernel fails each write with EFBIG.
    constexpr rlim_t kFileSizeLimit = 400'000;
    const rlimit limit = {kFileSizeLimit, kFileSizeLimit};
    std::signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
      return absl::ErrnoToStatus(errno, "setrlimit");
    }
    return AppendUntilError(path_, id);
  });
  EXPECT_THAT(answer, AllOf(StartsWith("UNAVAILABLE"), HasSubstr(path_),
                            HasSubstr("appending"), HasSubstr("I/O error")));
  std::unique_ptr<Store> store = Open();
  EXPECT_EQ(store->MeasurementCount() % 100, 4);
  EXPECT_GE(store->MeasurementCount(), 104);
  EXPECT_TRUE(store->Append(id, {Gemm(1, 1)}).ok());
}

TEST_F(StoreTest, FullDiskIsResourceExhaustedAndLosesNothing) {
  const std::string disk = folder_.File("disk");
  ASSERT_EQ(mkdir(disk.c_str(), 0700), 0);
  const std::string answer = InChild([&]() -> absl::Status {
    if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) !=
            0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) {
      return absl::UnimplementedError("no mount");
    }
    const std::string path = disk + "/store.db";
    absl::StatusOr<std::unique_ptr<Store>> store = Store::Open(path);
    if (!store.ok()) return store.status();
    const int64_t id = (*store)->Import(FullProfile()).value();
    store->reset();
    const absl::Status status = AppendUntilError(path, id);
    store = Store::Open(path);
    if (!store.ok()) return store.status();
    const int64_t count = (*store)->MeasurementCount();
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; kept ", count % 100,
                                     " ", count > 100));
  });
  if (answer == "UNIMPLEMENTED: no mount") {
    GTEST_SKIP() << "this user may not mount a small disk";
  }
  EXPECT_THAT(answer, AllOf(StartsWith("RESOURCE_EXHAUSTED"), HasSubstr(disk),
                            HasSubstr("appending"), HasSubstr("full"),
                            HasSubstr("kept 4 1")));
}

TEST_F(StoreTest, FileThatMayNotBeWrittenIsPermissionDenied) {
  { Open(); }
  // The lock file may be written, the database not.
  ASSERT_EQ(chmod(path_.c_str(), 0444), 0);
  ASSERT_EQ(chmod((path_ + ".lock").c_str(), 0666), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0777), 0);
  const std::string answer = InChild([&]() -> absl::Status {
    constexpr uid_t kNobody = 65534;  // root may write anything
    if (getuid() == 0 && setuid(kNobody) != 0) {
      return absl::ErrnoToStatus(errno, "setuid");
    }
    return OpenError(path_);
  });
  EXPECT_THAT(answer, AllOf(StartsWith("PERMISSION_DENIED"), HasSubstr(path_)));
}

TEST_F(StoreTest, ReadersSeeWholeBatchesWhileAWriterAppends) {
  std::unique_ptr<Store> store = Open();
  StoredProfile p = FullProfile();
  p.measurements.clear();
  const int64_t id = store->Import(p).value();
  constexpr int kBatch = 5, kBatches = 60;
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  std::atomic<int> reads = 0;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      int64_t last = 0;
      do {
        const int64_t count = store->MeasurementCount();
        EXPECT_EQ(count % kBatch, 0);
        EXPECT_GE(count, last);
        last = count;
        EXPECT_EQ(store->Load(id).value().measurements.size() % kBatch, 0);
        EXPECT_EQ(
            store->List(1000, "", "").value().measurements.size() % kBatch, 0);
        ++reads;
      } while (!done);
    });
  }
  for (int b = 0; b < kBatches; ++b) {
    std::vector<Measurement> batch;
    for (int i = 0; i < kBatch; ++i)
      batch.push_back(Gemm(b * kBatch + i + 1, 1));
    ASSERT_TRUE(store->Append(id, batch).ok());
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(store->MeasurementCount(), kBatch * kBatches);
  EXPECT_GE(reads.load(), 3);
}

}  // namespace
}  // namespace fabricwise
