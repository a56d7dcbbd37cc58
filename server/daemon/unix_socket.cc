// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/unix_socket.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

// Whether somebody accepts connections at `path`; an errno where unsure.
absl::StatusOr<bool> IsAlive(const std::string& path) {
  const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (s < 0) return absl::ErrnoToStatus(errno, "cannot make a socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int result =
      connect(s, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int error = errno;
  close(s);
  // EAGAIN: a listener whose queue is full.
  if (result == 0 || error == EAGAIN) return true;
  if (error == ECONNREFUSED || error == ENOENT) return false;
  return absl::ErrnoToStatus(error, absl::StrCat("cannot try ", path));
}

}  // namespace

absl::Status ClearStaleSocket(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    if (const int error = errno; error != ENOENT) {
      return absl::ErrnoToStatus(error, absl::StrCat("cannot look at ", path));
    }
    const std::filesystem::path folder =
        std::filesystem::path(path).parent_path();
    if (folder.empty() || access(folder.c_str(), F_OK) == 0) {
      return absl::OkStatus();
    }
    return absl::NotFoundError(absl::StrCat(
        "there is no folder ", folder.string(), " for the socket ", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is there and is not a socket; remove it or listen elsewhere"));
  }
  const absl::StatusOr<bool> alive = IsAlive(path);
  if (!alive.ok()) return alive.status();
  if (*alive) {
    return absl::FailedPreconditionError(absl::StrCat(
        "another process listens on ", path, "; stop it or listen elsewhere"));
  }
  if (unlink(path.c_str()) != 0) {
    const int error = errno;
    if (error == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(
        error, absl::StrCat("cannot remove the stale socket ", path));
  }
  return absl::OkStatus();
}

std::optional<gid_t> FindGroup(const std::string& name) {
  // Of a group with all its members' names; a number is the way round a longer
  // one.
  constexpr size_t kMostBytes = size_t{64} << 10;
  std::vector<char> buffer(kMostBytes);
  group entry = {};
  group* found = nullptr;
  if (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) ==
          0 &&
      found != nullptr) {
    return entry.gr_gid;
  }
  // All ones stand for "leave it" in chown.
  gid_t number = 0;
  if (absl::SimpleAtoi(name, &number) && number != static_cast<gid_t>(-1)) {
    return number;
  }
  return std::nullopt;
}

absl::Status GiveToGroup(const std::string& path, const std::string& name) {
  const std::optional<gid_t> id = FindGroup(name);
  if (!id) {
    return absl::NotFoundError(absl::StrCat("there is no group ", name));
  }
  if (chown(path.c_str(), static_cast<uid_t>(-1), *id) != 0) {
    const int error = errno;
    return absl::ErrnoToStatus(
        error, absl::StrCat("cannot give ", path, " to the group ", name,
                            "; start as a member of it, or as root"));
  }
  return absl::OkStatus();
}

}  // namespace fabricwise
