// SPDX-License-Identifier: Apache-2.0
//
// SQLite with our error flow: a connection, prepared statements, one use of a
// statement, a transaction. Each connection and all made from it belong to one
// thread at a time.
//
// Codes, by what the caller can do next: UNAVAILABLE try again (locked, I/O);
// RESOURCE_EXHAUSTED make room; PERMISSION_DENIED fix the file's rights;
// NOT_FOUND make the folder; FAILED_PRECONDITION name another file (it is no
// database); DATA_LOSS restore a copy (it is damaged); INTERNAL our own fault.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

struct sqlite3;
struct sqlite3_stmt;

namespace fabricwise::sqlite {

// A prepared statement. Must go before its connection.
class Statement {
 public:
  Statement() = default;

 private:
  friend class Connection;
  friend class Cursor;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
};

class Connection {
 public:
  // Opens `path` for reading and writing, creating the file where there is
  // none. A statement waits for other connections' locks up to `busy_timeout`.
  static absl::StatusOr<Connection> Open(const std::string& path,
                                         absl::Duration busy_timeout);

  // Runs statements that answer no rows.
  absl::Status Run(const std::string& sql);
  absl::StatusOr<Statement> Prepare(absl::string_view sql);
  // The first column of the only row of `sql`.
  absl::StatusOr<int64_t> Number(absl::string_view sql);
  absl::StatusOr<std::string> Text(absl::string_view sql);

  // Whether the file's rights allow no writing.
  bool read_only() const;
  // Of the newest row put in.
  int64_t last_insert_id() const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  std::unique_ptr<sqlite3, Close> handle_;
};

// One use of a statement: parameters in order, then rows, then it is free for
// the next use. An error of Bind shows at Next.
class Cursor {
 public:
  explicit Cursor(Statement& statement);
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  Cursor& Bind(int64_t value);
  Cursor& Bind(double value);
  Cursor& Bind(absl::string_view value);
  Cursor& BindNull();

  // Whether there is a further row, which the readers below then give.
  absl::StatusOr<bool> Next();
  // Runs a statement that answers no rows.
  absl::Status Finish();

  // Columns count from 0.
  int64_t Integer(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;
  bool IsNull(int column) const;

 private:
  sqlite3_stmt* statement_;
  int parameter_ = 0;
  int result_;
};

// Undone where it goes without Commit.
class Transaction {
 public:
  // Takes the database's write lock.
  static absl::StatusOr<Transaction> Begin(Connection& connection);
  // Fixes what the database holds as seen by the statements that follow.
  static absl::StatusOr<Transaction> BeginRead(Connection& connection);
  ~Transaction();
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;

  // OK once it is on the disk.
  absl::Status Commit();

 private:
  explicit Transaction(Connection* connection) : connection_(connection) {}
  Connection* connection_;  // null: nothing to undo
};

}  // namespace fabricwise::sqlite
