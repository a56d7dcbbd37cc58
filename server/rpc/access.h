// SPDX-License-Identifier: Apache-2.0
//
// Who may call what, how often, and for how long. Knows no transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/rpc/token_bucket.h"

namespace fabricwise {

enum class Role {
  kReader,    // advice, profiles, status, health, reflection
  kOperator,  // that, and what uses the GPUs or changes the profile in use
};

// "reader", "operator".
absl::string_view ToString(Role role);
// INVALID_ARGUMENT naming `field`, the text and the words that are allowed.
absl::StatusOr<Role> ParseRole(absl::string_view field, absl::string_view text);

// A name that a certificate bears: of its subject alternative names those that
// are DNS names or URIs, and its subject's common name.
enum class NameKind { kDns, kUri, kCommonName };
struct CertificateName {
  NameKind kind = NameKind::kDns;
  std::string value;
};

// Names of one kind. `*` stands for any bytes, none included, but for the mark
// that divides such names: "." in DNS names, "/" in URIs; common names have
// none. DNS names compare without regard to case.
struct CertificatePattern {
  NameKind kind = NameKind::kDns;
  std::string glob;

  bool Matches(const CertificateName& name) const;
  // "dns:*.schedulers.example", "uri:spiffe://cluster/ops/*", "cn:alice".
  std::string ToString() const;
};

// Takes the forms of ToString. INVALID_ARGUMENT naming `field`, the text and
// what is allowed.
absl::StatusOr<CertificatePattern> ParseCertificatePattern(
    absl::string_view field, absl::string_view text);

// How a caller reached the daemon, and who it showed to be.
struct Peer {
  enum class Way {
    kUnixSocket,
    kLoopback,  // TCP without TLS
    kTls,       // its certificate was verified
  };
  Way way = Way::kLoopback;
  std::vector<CertificateName> names;  // of its certificate
};

struct AccessRules {
  Role unix_role = Role::kOperator;
  Role loopback_role = Role::kReader;
  // Certificates with a name that one of these matches. Operators win.
  std::vector<CertificatePattern> readers, operators;
  // Calls that need an operator, of all callers together; 0: no limit.
  int64_t operator_calls_per_minute = 60;
  // A call whose caller set no deadline, or a later one, gets this.
  absl::Duration most_time = absl::Seconds(60);
};

// nullopt: a certificate whose names have no role.
std::optional<Role> RoleOf(const Peer& peer, const AccessRules& rules);

// Decides by rules that can be replaced while calls are served. Thread-safe.
class Access {
 public:
  // `clock` is borrowed and outlives this.
  Access(const AccessRules& rules, const Clock* clock);

  // For calls from now on; those under way go on, streams included.
  void SetRules(AccessRules rules);

  // OK, or PERMISSION_DENIED naming the RPC, the peer's role or names, and what
  // is needed.
  absl::Status CheckRole(const Peer& peer, Role needed,
                         absl::string_view rpc) const;

  struct Admission {
    absl::Status status;
    absl::Duration retry_after;  // with RESOURCE_EXHAUSTED
  };
  // For a call that only an operator may make: CheckRole, then its count.
  // RESOURCE_EXHAUSTED: there were too many, of all callers together.
  Admission AdmitOperator(const Peer& peer, absl::string_view rpc);

  // When a call that arrives now and asked for `deadline` is to end.
  absl::Time Deadline(absl::Time deadline) const;

 private:
  const Clock* const clock_;
  std::atomic<std::shared_ptr<const AccessRules>> rules_;
  // Of rules_, where a lock would be in the way of short calls.
  std::atomic<int64_t> most_time_nanoseconds_;
  mutable std::mutex mutex_;
  TokenBucket operator_calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fabricwise
