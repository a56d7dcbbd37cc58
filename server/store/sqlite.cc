// SPDX-License-Identifier: Apache-2.0
#include "server/store/sqlite.h"

#include <sqlite3.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"

namespace fabricwise::sqlite {
namespace {

absl::StatusCode CodeOfErrno(int error, absl::StatusCode otherwise) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    default:
      return otherwise;
  }
}

absl::StatusCode CodeOf(int result, int system_error) {
  constexpr int kPrimaryMask = 0xff;  // extended codes add detail above it
  switch (result & kPrimaryMask) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kUnavailable;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_NOTADB:
      return absl::StatusCode::kFailedPrecondition;
    case SQLITE_CORRUPT:
      return absl::StatusCode::kDataLoss;
    case SQLITE_CANTOPEN:
      return CodeOfErrno(system_error, absl::StatusCode::kFailedPrecondition);
    case SQLITE_IOERR:
      return CodeOfErrno(system_error, absl::StatusCode::kUnavailable);
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrorOf(sqlite3* handle, int result) {
  if (handle == nullptr) return absl::ResourceExhaustedError("out of memory");
  return absl::Status(
      CodeOf(result, sqlite3_system_errno(handle)),
      absl::StrCat(sqlite3_errmsg(handle), " (SQLite code ", result, ")"));
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void Connection::Close::operator()(sqlite3* handle) const {
  sqlite3_close(handle);
}

absl::StatusOr<Connection> Connection::Open(const std::string& path,
                                            absl::Duration busy_timeout) {
  Connection connection;
  sqlite3* handle = nullptr;
  const int result = sqlite3_open_v2(
      path.c_str(), &handle,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  connection.handle_.reset(handle);
  if (result != SQLITE_OK) return ErrorOf(handle, result);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(
      handle, static_cast<int>(absl::ToInt64Milliseconds(busy_timeout)));
  return connection;
}

absl::Status Connection::Run(const std::string& sql) {
  const int result =
      sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return ErrorOf(handle_.get(), result);
  return absl::OkStatus();
}

absl::StatusOr<Statement> Connection::Prepare(absl::string_view sql) {
  Statement statement;
  sqlite3_stmt* handle = nullptr;
  const int result = sqlite3_prepare_v3(
      handle_.get(), sql.data(), static_cast<int>(sql.size()),
      SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  statement.handle_.reset(handle);
  if (result != SQLITE_OK) return ErrorOf(handle_.get(), result);
  return statement;
}

absl::StatusOr<int64_t> Connection::Number(absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  Cursor cursor(statement);
  ASSIGN_OR_RETURN(const bool found, cursor.Next());
  if (!found) return absl::InternalError(absl::StrCat("no row: ", sql));
  return cursor.Integer(0);
}

absl::StatusOr<std::string> Connection::Text(absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  Cursor cursor(statement);
  ASSIGN_OR_RETURN(const bool found, cursor.Next());
  if (!found) return absl::InternalError(absl::StrCat("no row: ", sql));
  return cursor.Text(0);
}

bool Connection::read_only() const {
  return sqlite3_db_readonly(handle_.get(), "main") == 1;
}

int64_t Connection::last_insert_id() const {
  return sqlite3_last_insert_rowid(handle_.get());
}

Cursor::Cursor(Statement& statement)
    : statement_(statement.handle_.get()), result_(SQLITE_OK) {}

Cursor::~Cursor() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Cursor& Cursor::Bind(int64_t value) {
  ++parameter_;
  if (result_ == SQLITE_OK) {
    result_ = sqlite3_bind_int64(statement_, parameter_, value);
  }
  return *this;
}

Cursor& Cursor::Bind(double value) {
  ++parameter_;
  if (result_ == SQLITE_OK) {
    result_ = sqlite3_bind_double(statement_, parameter_, value);
  }
  return *this;
}

Cursor& Cursor::Bind(absl::string_view value) {
  ++parameter_;
  if (result_ == SQLITE_OK) {
    // A null pointer would bind NULL, not an empty text.
    result_ = sqlite3_bind_text64(statement_, parameter_,
                                  value.empty() ? "" : value.data(),
                                  value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  }
  return *this;
}

Cursor& Cursor::BindNull() {
  ++parameter_;
  if (result_ == SQLITE_OK) {
    result_ = sqlite3_bind_null(statement_, parameter_);
  }
  return *this;
}

absl::StatusOr<bool> Cursor::Next() {
  if (result_ == SQLITE_OK) {
    const int result = sqlite3_step(statement_);
    if (result == SQLITE_ROW) return true;
    if (result == SQLITE_DONE) return false;
    result_ = result;
  }
  return ErrorOf(sqlite3_db_handle(statement_), result_);
}

absl::Status Cursor::Finish() { return Next().status(); }

int64_t Cursor::Integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double Cursor::Real(int column) const {
  return sqlite3_column_double(statement_, column);
}

std::string Cursor::Text(int column) const {
  // The order matters: sqlite3_column_bytes counts what the text call made.
  const void* text = sqlite3_column_text(statement_, column);
  const int bytes = sqlite3_column_bytes(statement_, column);
  if (text == nullptr) return "";
  return std::string(static_cast<const char*>(text),
                     static_cast<size_t>(bytes));
}

bool Cursor::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

absl::StatusOr<Transaction> Transaction::Begin(Connection& connection) {
  RETURN_IF_ERROR(connection.Run("BEGIN IMMEDIATE"));
  return Transaction(&connection);
}

absl::StatusOr<Transaction> Transaction::BeginRead(Connection& connection) {
  RETURN_IF_ERROR(connection.Run("BEGIN"));
  return Transaction(&connection);
}

Transaction::Transaction(Transaction&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr)) {}

Transaction::~Transaction() {
  if (connection_ == nullptr) return;
  // Where SQLite undid it by itself (disk full, I/O error), this fails, and
  // nothing is left to undo.
  connection_->Run("ROLLBACK").IgnoreError();
}

absl::Status Transaction::Commit() {
  RETURN_IF_ERROR(connection_->Run("COMMIT"));
  connection_ = nullptr;
  return absl::OkStatus();
}

}  // namespace fabricwise::sqlite
