// SPDX-License-Identifier: Apache-2.0
#include "client/resolve.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace fabricwise {

absl::StatusOr<std::vector<Endpoint>> Resolve(const std::string& target) {
  if (!absl::StartsWith(target, "dns:")) {
    return std::vector<Endpoint>{{.target = target}};
  }
  absl::string_view rest = target;
  const bool whole = absl::ConsumePrefix(&rest, "dns:///");
  const size_t colon = rest.rfind(':');
  int port = 0;
  constexpr int kLargestPort = 65535;
  if (!whole || colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(rest.substr(colon + 1), &port) || port < 1 ||
      port > kLargestPort) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--targets has \"", target, "\"; allowed: dns:///HOST:PORT"));
  }
  absl::string_view name = rest.substr(0, colon);
  // Of IPv6, as in every address with a port.
  if (absl::StartsWith(name, "[") && absl::EndsWith(name, "]")) {
    name = name.substr(1, name.size() - 2);
  }
  const std::string host(name);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(
      found, &freeaddrinfo);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
  }
  std::vector<Endpoint> endpoints;
  std::set<std::string> seen;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr,
                    0, NI_NUMERICHOST) != 0) {
      continue;
    }
    std::string address = one->ai_family == AF_INET6
                              ? absl::StrCat("[", text, "]:", port)
                              : absl::StrCat(text, ":", port);
    if (seen.insert(address).second) {
      endpoints.push_back({.target = std::move(address), .server_name = host});
    }
  }
  return endpoints;
}

}  // namespace fabricwise
