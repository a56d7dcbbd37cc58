// SPDX-License-Identifier: Apache-2.0
//
// Addresses to listen on.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fabricwise {

struct ListenAddress {
  std::string unix_path;  // empty: TCP
  std::string host;       // numeric, "127.0.0.1" or "::1"
  int port = 0;           // 0: any free

  bool is_unix() const { return !unix_path.empty(); }
  // Whether only this machine reaches it.
  bool is_local() const;
  // "unix:/run/x.sock", "127.0.0.1:7410", "[::1]:7410".
  std::string ToString() const;
};

// `field` names the option in messages. Takes the forms of ToString,
// "unix:///run/x.sock", and "localhost:7410" for 127.0.0.1. INVALID_ARGUMENT
// naming field, value and what is allowed.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view field,
                                                 absl::string_view text);

// Whether who listens there takes a connection, and says something on it or
// closes it once we have closed our side, within this time. A listener that is
// there and deaf does neither. Nothing is asked, so TLS makes no difference.
bool TakesConnections(const ListenAddress& address, absl::Duration within);

}  // namespace fabricwise
