// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int kProcess = 4711;

Environment Env(const std::map<std::string, std::string>& variables) {
  return {.variable = [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  }};
}

// A service manager's end of the protocol.
class Inbox {
 public:
  // "@NAME" is of the kernel's own name space.
  explicit Inbox(const std::string& name)
      : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (name[0] == '@') address.sun_path[0] = '\0';
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                          name.size())),
              0);
  }
  ~Inbox() { close(socket_); }

  std::string Next() const {
    char buffer[4096];
    const ssize_t size = recv(socket_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return size < 0 ? "nothing" : std::string(buffer, buffer + size);
  }

 private:
  const int socket_;
};

TEST(ServiceManager, HearsEachMessageAsOneDatagram) {
  const TempFolder folder;
  for (const std::string& name :
       {folder.File("notify"),
        absl::StrCat("@fabricwise_service_manager_test.", getpid())}) {
    SCOPED_TRACE(name);
    const Inbox inbox(name);
    const ServiceManager manager(Env({{"NOTIFY_SOCKET", name}}), kProcess);
    EXPECT_TRUE(manager.Ready("advising from a").ok());
    EXPECT_EQ(inbox.Next(), "READY=1\nSTATUS=advising from a");
    EXPECT_TRUE(manager.Reloading().ok());
    EXPECT_THAT(inbox.Next(),
                MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*"));
    EXPECT_TRUE(manager.Alive("two\nlines").ok());
    EXPECT_EQ(inbox.Next(), "WATCHDOG=1\nSTATUS=two lines");
    EXPECT_TRUE(manager.Stopping().ok());
    EXPECT_EQ(inbox.Next(), "STOPPING=1\nSTATUS=stopping");
    EXPECT_EQ(inbox.Next(), "nothing");
  }
}

TEST(ServiceManager, NeedNotBeThere) {
  const ServiceManager none(Env({}), kProcess);
  EXPECT_TRUE(none.Ready("x").ok());
  EXPECT_TRUE(none.Stopping().ok());
  EXPECT_EQ(none.watchdog(), absl::InfiniteDuration());
}

TEST(ServiceManager, ThatCannotBeReachedIsAnError) {
  const TempFolder folder;
  const std::string absent = folder.File("absent");
  const absl::Status gone =
      ServiceManager(Env({{"NOTIFY_SOCKET", absent}}), kProcess).Ready("x");
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(gone.message()), HasSubstr(absent));
  for (const std::string& odd :
       {std::string("vsock:1:2"), "/" + std::string(108, 'x')}) {
    const absl::Status refused =
        ServiceManager(Env({{"NOTIFY_SOCKET", odd}}), kProcess).Ready("x");
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("allowed: a path or @NAME, less than 108 bytes"));
  }
}

TEST(ServiceManager, WatchesOnlyTheProcessItNames) {
  const auto watchdog = [](const std::string& microseconds,
                           const std::string& process) {
    return ServiceManager(Env({{"WATCHDOG_USEC", microseconds},
                               {"WATCHDOG_PID", process}}),
                          kProcess)
        .watchdog();
  };
  EXPECT_EQ(watchdog("30000000", ""), absl::Seconds(30));
  EXPECT_EQ(watchdog("250000", "4711"), absl::Milliseconds(250));
  EXPECT_EQ(watchdog("250000", "4712"), absl::InfiniteDuration());
  for (const char* odd : {"", "0", "-5", "soon"}) {
    EXPECT_EQ(watchdog(odd, ""), absl::InfiniteDuration()) << odd;
  }
}

}  // namespace
}  // namespace fabricwise
