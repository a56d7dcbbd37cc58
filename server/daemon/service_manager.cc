// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/base/argument.h"

namespace fabricwise {
namespace {

std::string StatusLine(absl::string_view status) {
  return absl::StrCat("STATUS=", absl::StrReplaceAll(status, {{"\n", " "}}));
}

}  // namespace

ServiceManager::ServiceManager(const Environment& environment, int process)
    : socket_(environment.variable("NOTIFY_SOCKET")) {
  int64_t microseconds = 0;
  if (!absl::SimpleAtoi(environment.variable("WATCHDOG_USEC"), &microseconds) ||
      microseconds <= 0) {
    return;
  }
  const std::string meant = environment.variable("WATCHDOG_PID");
  if (!meant.empty() && meant != absl::StrCat(process)) return;
  watchdog_ = absl::Microseconds(microseconds);
}

absl::Status ServiceManager::Ready(absl::string_view status) const {
  return Send(absl::StrCat("READY=1\n", StatusLine(status)));
}

absl::Status ServiceManager::Reloading() const {
  // The manager tells this reload from an earlier one by its time.
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return Send(
      absl::StrCat("RELOADING=1\nMONOTONIC_USEC=",
                   absl::ToInt64Microseconds(absl::DurationFromTimespec(now))));
}

absl::Status ServiceManager::Stopping() const {
  return Send(absl::StrCat("STOPPING=1\n", StatusLine("stopping")));
}

absl::Status ServiceManager::Alive(absl::string_view status) const {
  return Send(absl::StrCat("WATCHDOG=1\n", StatusLine(status)));
}

absl::Status ServiceManager::Send(const std::string& message) const {
  if (socket_.empty()) return absl::OkStatus();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if ((socket_[0] != '/' && socket_[0] != '@') ||
      socket_.size() >= sizeof(address.sun_path)) {
    return NotAllowed("NOTIFY_SOCKET", Quoted(socket_),
                      absl::StrCat("a path or @NAME, less than ",
                                   sizeof(address.sun_path), " bytes"));
  }
  socket_.copy(address.sun_path, socket_.size());
  // Of the kernel's own name space.
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const ssize_t sent =
      s < 0 ? -1
            // A word may be lost, but nothing waits for who does not listen.
            : sendto(s, message.data(), message.size(),
                     MSG_NOSIGNAL | MSG_DONTWAIT,
                     reinterpret_cast<const sockaddr*>(&address), size);
  const int error = errno;
  if (s >= 0) close(s);
  if (sent == static_cast<ssize_t>(message.size())) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("NOTIFY_SOCKET ", Quoted(socket_), ": ", strerror(error)));
}

}  // namespace fabricwise
