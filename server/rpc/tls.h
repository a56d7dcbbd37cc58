// SPDX-License-Identifier: Apache-2.0
//
// Mutual TLS of the server, and who a caller showed to be.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/access.h"

namespace grpc {
class ServerContextBase;
class ServerCredentials;
}  // namespace grpc

namespace fabricwise {

// PEM files. All are read again when they change: new connections get what is
// new, open ones go on. While a certificate and a key do not belong together,
// new connections are refused.
struct TlsFiles {
  std::string certificate;  // the server's, with those in between up to its CA
  std::string key;          // the certificate's private key, without password
  std::string client_ca;    // who may vouch for clients
  absl::Duration look_again = absl::Seconds(30);  // whole seconds, at least 1
};

// Connections whose client shows no valid certificate of the CA are refused.
// Every call of the others needs a role by `access`, health and reflection too
// (PERMISSION_DENIED). `access` is borrowed and outlives the credentials.
// INVALID_ARGUMENT: a file cannot be read, or they are no pair of certificate
// and key and a CA; names the daemon's option, the file and what is allowed.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(
    const TlsFiles& files, const Access* access);

// The caller of a call of ours.
Peer PeerOf(const grpc::ServerContextBase& context);

}  // namespace fabricwise
