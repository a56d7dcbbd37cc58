// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

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

}  // namespace fabricwise
