// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/certificates.h"

#include <optional>
#include <string>
#include <utility>

#include "server/daemon/log.h"

namespace fabricwise {
namespace {

std::string Utc(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
}

void LogDates(const CertificateFacts& certificates, absl::Time now) {
  if (now > certificates.not_after) {
    Log(LogLevel::kWarning, "certificate has expired",
        {{"option", certificates.option},
         {"not_after", Utc(certificates.not_after)},
         {"remedy", "renew it; it is read again by itself"}});
  }
  if (now < certificates.not_before) {
    Log(LogLevel::kWarning, "certificate is not valid yet",
        {{"option", certificates.option},
         {"not_before", Utc(certificates.not_before)},
         {"remedy", "is this machine's clock right? Else, renew it"}});
  }
}

}  // namespace

void CertificatesInUse::OnRead(const absl::StatusOr<TlsDates>& read,
                               absl::Time now) {
  if (!read.ok()) {
    Log(LogLevel::kError, "certificates not read, serving with the former ones",
        {{"reason", std::string(read.status().message())},
         {"remedy", "mend the file; it is read again by itself"}});
    return;
  }
  Log(LogLevel::kInfo, "certificates read");
  std::vector<CertificateFacts> certificates;
  const auto add = [&](const char* option,
                       const std::optional<CertificateDates>& dates) {
    if (!dates) return;
    certificates.push_back({option, dates->not_before, dates->not_after});
    LogDates(certificates.back(), now);
  };
  add("tls-cert", read->certificate);
  add("tls-client-ca", read->client_ca);
  std::lock_guard lock(mutex_);
  certificates_ = std::move(certificates);
}

std::vector<CertificateFacts> CertificatesInUse::Get() const {
  std::lock_guard lock(mutex_);
  return certificates_;
}

}  // namespace fabricwise
