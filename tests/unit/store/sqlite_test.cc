// SPDX-License-Identifier: Apache-2.0
#include "server/store/sqlite.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace fabricwise::sqlite {
namespace {

using ::testing::HasSubstr;

class SqliteTest : public testing::Test {
 protected:
  Connection Open() {
    absl::StatusOr<Connection> connection =
        Connection::Open(folder_.File("t.db"), absl::ZeroDuration());
    EXPECT_TRUE(connection.ok()) << connection.status();
    return *std::move(connection);
  }
  TempFolder folder_;
};

TEST_F(SqliteTest, TextWithZerosAndEmptyTextComeBack) {
  Connection c = Open();
  ASSERT_TRUE(c.Run("CREATE TABLE t (a TEXT NOT NULL, b TEXT NOT NULL)").ok());
  Statement insert = c.Prepare("INSERT INTO t VALUES (?, ?)").value();
  const absl::string_view zeros("a\0b", 3);
  ASSERT_TRUE(
      Cursor(insert).Bind(zeros).Bind(absl::string_view()).Finish().ok());
  Statement select = c.Prepare("SELECT a, b FROM t").value();
  Cursor row(select);
  ASSERT_TRUE(row.Next().value());
  EXPECT_EQ(row.Text(0), zeros);
  EXPECT_EQ(row.Text(1), "");
  EXPECT_FALSE(row.Next().value());
}

TEST_F(SqliteTest, TransactionThatIsNotCommittedIsUndone) {
  Connection c = Open();
  ASSERT_TRUE(c.Run("CREATE TABLE t (a)").ok());
  {
    absl::StatusOr<Transaction> t = Transaction::Begin(c);
    ASSERT_TRUE(t.ok());
    ASSERT_TRUE(c.Run("INSERT INTO t VALUES (1)").ok());
  }
  EXPECT_EQ(c.Number("SELECT count(*) FROM t").value(), 0);
  {
    absl::StatusOr<Transaction> t = Transaction::Begin(c);
    ASSERT_TRUE(t.ok());
    ASSERT_TRUE(c.Run("INSERT INTO t VALUES (1)").ok());
    ASSERT_TRUE(t->Commit().ok());
  }
  EXPECT_EQ(c.Number("SELECT count(*) FROM t").value(), 1);
}

TEST_F(SqliteTest, LockHeldElsewhereIsUnavailable) {
  Connection a = Open();
  Connection b = Open();
  absl::StatusOr<Transaction> held = Transaction::Begin(a);
  ASSERT_TRUE(held.ok());
  const absl::Status status = Transaction::Begin(b).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("locked"));
}

TEST_F(SqliteTest, FullDatabaseIsResourceExhausted) {
  Connection c = Open();
  ASSERT_TRUE(c.Run("CREATE TABLE t (a)").ok());
  ASSERT_TRUE(c.Run("PRAGMA max_page_count = 2").ok());
  const absl::Status status =
      c.Run("INSERT INTO t VALUES (randomblob(100000))");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("full"));
}

TEST_F(SqliteTest, WrongStatementIsInternal) {
  Connection c = Open();
  EXPECT_EQ(c.Prepare("SELECT nothing FROM nowhere").status().code(),
            absl::StatusCode::kInternal);
  EXPECT_EQ(c.Number("SELECT 1 WHERE 0").status().code(),
            absl::StatusCode::kInternal);
  Statement one = c.Prepare("SELECT ?").value();
  EXPECT_EQ(
      Cursor(one).Bind(int64_t{1}).Bind(int64_t{2}).Next().status().code(),
      absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace fabricwise::sqlite
