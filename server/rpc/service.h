// SPDX-License-Identifier: Apache-2.0
//
// The handler behind gRPC: fabricwise.v1, grpc.health.v1 and reflection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/rpc/access.h"
#include "server/rpc/handler.h"
#include "server/rpc/observer.h"
#include "server/rpc/snapshot.h"
#include "server/rpc/tls.h"

namespace fabricwise {

struct RpcAddress {
  // In gRPC's forms: "127.0.0.1:7410" (port 0: any free), "[::1]:7410",
  // "unix:///run/fabricwise/fabricwised.sock".
  std::string address;
  bool tls = false;
};

struct RpcServerOptions {
  std::vector<RpcAddress> addresses;  // at least one
  // Needed where an address speaks TLS.
  std::optional<TlsFiles> tls;
  TlsCertificates::Observer tls_observer;  // may be empty
  // A longer request is refused with RESOURCE_EXHAUSTED.
  int max_request_bytes = 4 << 20;
  // Streams of one connection, and watchers in all.
  int max_concurrent_streams = 1024;
  int max_watchers = 256;
  // Threads for what takes long: sweeps, imports, big configs, watchers. The
  // rest runs on gRPC's own.
  int slow_threads = 1;
  // Calls that may wait for those; more are refused with RESOURCE_EXHAUSTED.
  int max_queued_calls = 256;
  // Connections older than this take no further calls, and clients open new
  // ones; calls under way go on, streams included. Infinite: never.
  absl::Duration max_connection_age = absl::InfiniteDuration();
};

// A listening server. Health is SERVING exactly while a snapshot is loaded and
// Shutdown has not begun. Thread-safe.
class RpcServer {
 public:
  virtual ~RpcServer() = default;

  // All pointers are borrowed and outlive the server; `observer` may be null.
  // INVALID_ARGUMENT: an option is out of range. UNAVAILABLE: an address cannot
  // be listened on (names it). For TLS also the errors of
  // TlsCertificates::Load.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcServerOptions& options, Handler* handler,
      SnapshotHolder* snapshots, RequestObserver* observer, Access* access);

  // The TCP port of each address, in order; 1 for a UNIX socket.
  virtual const std::vector<int>& ports() const = 0;

  // Whether a call, and a task of the threads for what takes long, are through
  // within this time. What is under way there delays the answer. Not during
  // Shutdown.
  virtual bool Responds(absl::Duration within) = 0;

  // Turns health to NOT_SERVING for good, and nothing else: the first step of
  // an orderly end. Shutdown does so too.
  virtual void StopServing() = 0;

  // Turns health to NOT_SERVING, ends watches with UNAVAILABLE, tells clients
  // to go, lets the calls whose requests have arrived finish within `budget`
  // and cancels the rest. Returns when no call is left, however many
  // connections idle. Never to be called from a call. A second call does
  // nothing.
  virtual void Shutdown(absl::Duration budget) = 0;
};

// Has what gRPC itself would print on standard error go to `log` instead, of
// all servers and clients of the process. `log` is thread-safe.
void SetGrpcLog(void (*log)(absl::string_view message));

}  // namespace fabricwise
