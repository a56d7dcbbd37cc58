// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/access.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

constexpr NameKind kKinds[] = {NameKind::kDns, NameKind::kUri,
                               NameKind::kCommonName};

absl::string_view Prefix(NameKind kind) {
  switch (kind) {
    case NameKind::kDns:
      return "dns:";
    case NameKind::kUri:
      return "uri:";
    case NameKind::kCommonName:
      return "cn:";
  }
  return "";
}

// What `*` does not stand for; 0: nothing.
char Divider(NameKind kind) {
  switch (kind) {
    case NameKind::kDns:
      return '.';
    case NameKind::kUri:
      return '/';
    case NameKind::kCommonName:
      return '\0';
  }
  return '\0';
}

// Without recursion. Where the text does not fit, the last star alone is made
// longer: what an earlier one could give up lies before the same divider, and
// so within the last one's reach.
bool GlobMatches(absl::string_view glob, absl::string_view text, char divider) {
  size_t g = 0, t = 0;
  size_t star = absl::string_view::npos, starred_to = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      starred_to = t;
    } else if (g < glob.size() && glob[g] == text[t]) {
      ++g;
      ++t;
    } else if (star != absl::string_view::npos &&
               (divider == '\0' || text[starred_to] != divider)) {
      g = star + 1;
      t = ++starred_to;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool AnyMatches(const std::vector<CertificatePattern>& patterns,
                const std::vector<CertificateName>& names) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const CertificatePattern& pattern) {
                         return pattern.Matches(name);
                       });
  });
}

std::string Describe(const std::vector<CertificateName>& names) {
  // A certificate may bear thousands; these tell which it is.
  constexpr size_t kMostShown = 4;
  std::vector<std::string> shown;
  for (const CertificateName& name : names) {
    if (shown.size() == kMostShown) {
      shown.push_back("...");
      break;
    }
    shown.push_back(absl::StrCat(Prefix(name.kind), Quoted(name.value)));
  }
  return shown.empty() ? "no DNS name, URI or common name"
                       : absl::StrJoin(shown, ", ");
}

// Where a peer's role is decided, for the message of a refusal.
absl::string_view RoleOption(Peer::Way way) {
  switch (way) {
    case Peer::Way::kUnixSocket:
      return "socket-role";
    case Peer::Way::kLoopback:
      return "loopback-role";
    case Peer::Way::kTls:
      return "tls-operator";
  }
  return "";
}

}  // namespace

absl::string_view ToString(Role role) {
  switch (role) {
    case Role::kReader:
      return "reader";
    case Role::kOperator:
      return "operator";
  }
  return "";
}

absl::StatusOr<Role> ParseRole(absl::string_view field,
                               absl::string_view text) {
  for (const Role role : {Role::kReader, Role::kOperator}) {
    if (text == ToString(role)) return role;
  }
  return NotAllowed(field, Quoted(text), "reader, operator");
}

bool CertificatePattern::Matches(const CertificateName& name) const {
  if (name.kind != kind) return false;
  if (kind != NameKind::kDns) {
    return GlobMatches(glob, name.value, Divider(kind));
  }
  return GlobMatches(absl::AsciiStrToLower(glob),
                     absl::AsciiStrToLower(name.value), Divider(kind));
}

std::string CertificatePattern::ToString() const {
  return absl::StrCat(Prefix(kind), glob);
}

absl::StatusOr<CertificatePattern> ParseCertificatePattern(
    absl::string_view field, absl::string_view text) {
  // Longer than any DNS name; of URIs and common names enough to match every
  // call quickly.
  constexpr size_t kMostBytes = 512;
  for (const NameKind kind : kKinds) {
    absl::string_view glob = text;
    if (!absl::ConsumePrefix(&glob, Prefix(kind))) continue;
    if (glob.empty() || glob.size() > kMostBytes) break;
    return CertificatePattern{.kind = kind, .glob = std::string(glob)};
  }
  return NotAllowed(field, Quoted(text),
                    absl::StrCat("dns:NAME, uri:URI or cn:NAME of 1 to ",
                                 kMostBytes, " bytes, with * for any part"));
}

std::optional<Role> RoleOf(const Peer& peer, const AccessRules& rules) {
  switch (peer.way) {
    case Peer::Way::kUnixSocket:
      return rules.unix_role;
    case Peer::Way::kLoopback:
      return rules.loopback_role;
    case Peer::Way::kTls:
      break;
  }
  if (AnyMatches(rules.operators, peer.names)) return Role::kOperator;
  if (AnyMatches(rules.readers, peer.names)) return Role::kReader;
  return std::nullopt;
}

Access::Access(const AccessRules& rules, const Clock* clock)
    : clock_(clock),
      rules_(std::make_shared<const AccessRules>(rules)),
      most_time_nanoseconds_(absl::ToInt64Nanoseconds(rules.most_time)),
      operator_calls_(rules.operator_calls_per_minute) {}

void Access::SetRules(AccessRules rules) {
  most_time_nanoseconds_ = absl::ToInt64Nanoseconds(rules.most_time);
  {
    std::lock_guard lock(mutex_);
    operator_calls_.SetRate(rules.operator_calls_per_minute);
  }
  rules_ = std::make_shared<const AccessRules>(std::move(rules));
}

absl::Status Access::CheckRole(const Peer& peer, Role needed,
                               absl::string_view rpc) const {
  const std::shared_ptr<const AccessRules> rules = rules_.load();
  const std::optional<Role> role = RoleOf(peer, *rules);
  if (!role) {
    return absl::PermissionDeniedError(
        absl::StrCat(rpc, " needs the role ", ToString(needed),
                     "; this certificate has none, by its names ",
                     Describe(peer.names), " (tls-reader, tls-operator)"));
  }
  if (*role == Role::kOperator || needed == Role::kReader) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      rpc, " needs the role ", ToString(needed), "; this caller's is ",
      ToString(*role), " (", RoleOption(peer.way), ")"));
}

Access::Admission Access::AdmitOperator(const Peer& peer,
                                        absl::string_view rpc) {
  if (absl::Status denied = CheckRole(peer, Role::kOperator, rpc);
      !denied.ok()) {
    return {.status = std::move(denied)};
  }
  absl::Duration wait;
  {
    std::lock_guard lock(mutex_);
    wait = operator_calls_.Take(clock_->Now());
  }
  if (wait == absl::ZeroDuration()) return {};
  // Told in whole milliseconds, upwards: who waits so long is let in.
  wait = absl::Ceil(wait, absl::Milliseconds(1));
  return {.status = absl::ResourceExhaustedError(absl::StrCat(
              rpc, ": too many calls of operators; try again in ",
              absl::FormatDuration(wait), " (operator-calls-per-minute)")),
          .retry_after = wait};
}

absl::Time Access::Deadline(absl::Time deadline) const {
  return std::min(deadline, clock_->Now() + absl::Nanoseconds(
                                                most_time_nanoseconds_.load()));
}

}  // namespace fabricwise
