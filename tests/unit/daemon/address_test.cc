// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

ListenAddress Parse(absl::string_view text) {
  const auto address = ParseListenAddress("listen", text);
  EXPECT_TRUE(address.ok()) << address.status();
  return *address;
}

TEST(ListenAddress, ReadsUnixPathsInBothForms) {
  EXPECT_EQ(Parse("unix:/run/x.sock").unix_path, "/run/x.sock");
  EXPECT_EQ(Parse("unix:///run/x.sock").unix_path, "/run/x.sock");
  EXPECT_EQ(Parse("unix:x.sock").unix_path, "x.sock");
  EXPECT_EQ(Parse("unix:///run/x.sock").ToString(), "unix:/run/x.sock");
  EXPECT_TRUE(Parse("unix:x").is_local());
}

TEST(ListenAddress, ReadsTcpAddresses) {
  EXPECT_EQ(Parse("127.0.0.1:7410").ToString(), "127.0.0.1:7410");
  EXPECT_EQ(Parse("localhost:0").ToString(), "127.0.0.1:0");
  EXPECT_EQ(Parse("[::1]:65535").ToString(), "[::1]:65535");
  EXPECT_EQ(Parse("[::1]:65535").host, "::1");
}

TEST(ListenAddress, KnowsWhatOnlyThisMachineReaches) {
  EXPECT_TRUE(Parse("127.0.0.1:1").is_local());
  EXPECT_TRUE(Parse("127.255.0.9:1").is_local());
  EXPECT_TRUE(Parse("[::1]:1").is_local());
  EXPECT_FALSE(Parse("0.0.0.0:1").is_local());
  EXPECT_FALSE(Parse("128.0.0.1:1").is_local());
  EXPECT_FALSE(Parse("10.127.0.1:1").is_local());
  EXPECT_FALSE(Parse("[::]:1").is_local());
  EXPECT_FALSE(Parse("[::ffff:127.0.0.1]:1").is_local());
}

TEST(ListenAddress, RefusesWhatIsNone) {
  for (const char* text :
       {"", ":", "7410", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
        "127.0.0.1:-1", "127.0.0.1:65536", "127.0.0.1:99999999999", "::1:7410",
        "[::1]", "[]:1", "[127.0.0.1]:1", "127.1:1", "example.com:7410",
        "http://127.0.0.1:1", "unix-abstract:x", " 127.0.0.1:1"}) {
    const absl::Status status = ParseListenAddress("listen", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                StartsWith("listen is '" + std::string(text) +
                           "'; allowed: unix:PATH"));
  }
}

TEST(ListenAddress, RefusesUnixPathsThatTheKernelCannotHold) {
  EXPECT_TRUE(Parse("unix:" + std::string(107, 'x')).is_unix());
  for (const std::string& path : {std::string(), std::string(108, 'x')}) {
    const absl::Status status =
        ParseListenAddress("listen", "unix:" + path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("1 to 107 bytes"));
  }
}

// Listens, and accepts only when told to.
class Listener {
 public:
  explicit Listener(const std::string& unix_path)
      : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    unix_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    Bind(address);
  }
  explicit Listener(in_addr_t host)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(host);
    Bind(address);
    socklen_t size = sizeof(address);
    EXPECT_EQ(
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(socket_); }

  int port() const { return port_; }
  // Takes one connection, says `word` on it, and closes it with its peer.
  void Serve(const std::string& word) const {
    const int s = accept(socket_, nullptr, nullptr);
    EXPECT_EQ(send(s, word.data(), word.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(word.size()));
    char byte = 0;
    EXPECT_LE(recv(s, &byte, 1, 0), 0) << "it has said all that it will";
    close(s);
  }

 private:
  template <typename Address>
  void Bind(const Address& address) const {
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(socket_, 1), 0);
  }

  const int socket_;
  int port_ = 0;
};

TEST(TakesConnections, TellsWhoServesFromWhoIsDeafOrGone) {
  const TempFolder folder;
  const std::string path = folder.File("s");
  const std::string gone = folder.File("gone");
  const Listener of_unix(path), of_tcp(INADDR_LOOPBACK), of_all(INADDR_ANY);
  // As long as it takes to see that nobody comes.
  constexpr absl::Duration kShort = absl::Milliseconds(5);
  constexpr absl::Duration kPatience = absl::Minutes(1);
  const struct {
    const Listener* listener;
    ListenAddress address;
  } cases[] = {
      {&of_unix, {.unix_path = path}},
      {&of_tcp, {.host = "127.0.0.1", .port = of_tcp.port()}},
      {&of_all, {.host = "0.0.0.0", .port = of_all.port()}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.address.ToString());
    for (const char* word : {"", "hello"}) {
      std::thread server([&] { c.listener->Serve(word); });
      EXPECT_TRUE(TakesConnections(c.address, kPatience));
      server.join();
    }
    EXPECT_FALSE(TakesConnections(c.address, kShort));
  }
  EXPECT_FALSE(TakesConnections({.unix_path = gone}, kPatience));
}

}  // namespace
}  // namespace fabricwise
