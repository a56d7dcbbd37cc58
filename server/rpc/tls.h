// SPDX-License-Identifier: Apache-2.0
//
// Mutual TLS of the server, and who a caller showed to be.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/access.h"
#include "server/rpc/certificate_dates.h"

namespace grpc {
class ServerContextBase;
class ServerCredentials;
}  // namespace grpc

namespace fabricwise {

// PEM files, looked at again and again.
struct TlsFiles {
  std::string certificate;  // the server's, with those in between up to its CA
  std::string key;          // the certificate's private key, without password
  std::string client_ca;    // who may vouch for clients
  absl::Duration look_again = absl::Seconds(30);  // whole seconds, at least 1
};

// When certificates in use can serve; absent where that cannot be read.
struct TlsDates {
  std::optional<CertificateDates> certificate;  // with those up to its CA
  std::optional<CertificateDates> client_ca;    // one of them is enough
};

// What the files last held that could serve, in memory: whatever becomes of
// them later, it stays until they are good again, all three together.
class TlsCertificates {
 public:
  struct Pems {
    std::string certificate;
    std::string key;
    std::string client_ca;

    bool operator==(const Pems&) const = default;
  };

  // Hears in Load, and then on a thread of the certificates, what is in use
  // when what is new in the files is taken or they are good again, and once why
  // they cannot serve: the errors of Load. Certificates out of their dates are
  // taken like others.
  using Observer = std::function<void(const absl::StatusOr<TlsDates>&)>;

  // `observer` may be empty and does not hear why Load fails. INVALID_ARGUMENT:
  // a file cannot be read, or they are no pair of certificate and key and a CA;
  // names the daemon's option, the file and what is allowed. UNAVAILABLE: no
  // port to try them on.
  static absl::StatusOr<std::unique_ptr<TlsCertificates>> Load(
      TlsFiles files, Observer observer);
  ~TlsCertificates();

  std::shared_ptr<const Pems> Get() const;

 private:
  TlsCertificates(TlsFiles files, Observer observer, Pems pems);

  void Run(const std::stop_token& stop);
  void Look();

  const TlsFiles files_;
  const Observer observer_;
  // Of the thread that looks.
  std::string told_;  // the error that was told last; empty: all well
  std::optional<Pems> refused_;  // what need not be tried again

  mutable std::mutex mutex_;
  std::condition_variable_any wake_;
  std::shared_ptr<const Pems> pems_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

// For one address to listen on: new connections get what `certificates` hold,
// open ones go on. Those whose client shows no valid certificate of the CA are
// refused. Every call of the others needs a role by `access`, health and
// reflection too (PERMISSION_DENIED). All outlive the server: the pointers are
// borrowed, and gRPC borrows what is returned.
std::shared_ptr<grpc::ServerCredentials> MakeTlsCredentials(
    const TlsCertificates* certificates, const Access* access);

// The caller of a call of ours.
Peer PeerOf(const grpc::ServerContextBase& context);

}  // namespace fabricwise
