// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"

namespace fabricwise {
namespace {

constexpr char kForms[] =
    "unix:PATH, IPV4:PORT or [IPV6]:PORT with a numeric host, localhost:PORT";
// The kernel's bound, less the terminating zero.
constexpr size_t kMaxUnixPathBytes = sizeof(sockaddr_un::sun_path) - 1;
constexpr int kMaxPort = 65535;

bool IsIpv4(const std::string& host, in_addr* address) {
  return inet_pton(AF_INET, host.c_str(), address) == 1;
}

bool IsIpv6(const std::string& host, in6_addr* address) {
  return inet_pton(AF_INET6, host.c_str(), address) == 1;
}

// As the kernel takes it.
struct SocketAddress {
  union {
    sockaddr_un unix_path;  // the largest
    sockaddr any;
    sockaddr_in ipv4;
    sockaddr_in6 ipv6;
  };
  socklen_t size = 0;
};

SocketAddress ForKernel(const ListenAddress& address) {
  SocketAddress result = {};
  const auto port = htons(static_cast<uint16_t>(address.port));
  if (address.is_unix()) {
    result.unix_path.sun_family = AF_UNIX;
    address.unix_path.copy(result.unix_path.sun_path, kMaxUnixPathBytes);
    result.size = sizeof(result.unix_path);
  } else if (IsIpv4(address.host, &result.ipv4.sin_addr)) {
    result.ipv4.sin_family = AF_INET;
    result.ipv4.sin_port = port;
    result.size = sizeof(result.ipv4);
  } else {
    IsIpv6(address.host, &result.ipv6.sin6_addr);
    result.ipv6.sin6_family = AF_INET6;
    result.ipv6.sin6_port = port;
    result.size = sizeof(result.ipv6);
  }
  return result;
}

}  // namespace

bool ListenAddress::is_local() const {
  if (is_unix()) return true;
  in_addr ipv4;
  if (IsIpv4(host, &ipv4)) {
    constexpr uint32_t kLoopbackNet = 127;  // 127.0.0.0/8, RFC 1122
    return ntohl(ipv4.s_addr) >> 24 == kLoopbackNet;
  }
  in6_addr ipv6;
  return IsIpv6(host, &ipv6) && IN6_IS_ADDR_LOOPBACK(&ipv6);
}

std::string ListenAddress::ToString() const {
  if (is_unix()) return absl::StrCat("unix:", unix_path);
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? absl::StrCat("[", host, "]:", port)
              : absl::StrCat(host, ":", port);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view field,
                                                 absl::string_view text) {
  ListenAddress address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    // A URI's empty authority, "unix:///run/x.sock".
    if (rest.substr(0, 3) == "///") rest.remove_prefix(2);
    address.unix_path = std::string(rest);
    if (rest.empty() || rest.size() > kMaxUnixPathBytes) {
      return NotAllowed(field, Quoted(text),
                        absl::StrCat("unix:PATH with a path of 1 to ",
                                     kMaxUnixPathBytes, " bytes"));
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) ||
      address.port < 0 || address.port > kMaxPort) {
    return NotAllowed(field, Quoted(text), kForms);
  }
  address.host = std::string(text.substr(0, colon));
  if (address.host == "localhost") address.host = "127.0.0.1";
  if (address.host.size() > 2 && address.host.front() == '[' &&
      address.host.back() == ']') {
    address.host = address.host.substr(1, address.host.size() - 2);
    in6_addr ipv6;
    if (IsIpv6(address.host, &ipv6)) return address;
  } else if (in_addr ipv4; IsIpv4(address.host, &ipv4)) {
    return address;
  }
  return NotAllowed(field, Quoted(text), kForms);
}

bool TakesConnections(const ListenAddress& address, absl::Duration within) {
  using Steady = std::chrono::steady_clock;
  const Steady::time_point end =
      Steady::now() + absl::ToChronoNanoseconds(within);
  const SocketAddress to = ForKernel(address);
  const int s = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (s < 0) return false;
  const auto limit = [&](int direction) {
    // Zero would be for ever.
    constexpr absl::Duration kLeast = absl::Milliseconds(1);
    const timeval rest = absl::ToTimeval(
        std::max(absl::FromChrono(end - Steady::now()), kLeast));
    return setsockopt(s, SOL_SOCKET, direction, &rest, sizeof(rest)) == 0;
  };
  bool taken = false;
  if (limit(SO_SNDTIMEO) && connect(s, &to.any, to.size) == 0 &&
      shutdown(s, SHUT_WR) == 0 && limit(SO_RCVTIMEO)) {
    char byte = 0;
    taken = recv(s, &byte, 1, 0) >= 0 || errno == ECONNRESET;
  }
  close(s);
  return taken;
}

}  // namespace fabricwise
