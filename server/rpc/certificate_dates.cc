// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/certificate_dates.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>

namespace fabricwise {
namespace {

std::optional<absl::Time> TimeOf(const ASN1_TIME* time) {
  tm parts = {};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) {
    return std::nullopt;
  }
  return absl::FromTM(parts, absl::UTCTimeZone());
}

}  // namespace

std::vector<CertificateDates> DatesIn(absl::string_view pem) {
  std::vector<CertificateDates> dates;
  const std::unique_ptr<BIO, int (*)(BIO*)> bytes(
      BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  while (bytes != nullptr) {
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr), X509_free);
    if (certificate == nullptr) break;
    const auto not_before = TimeOf(X509_get0_notBefore(certificate.get()));
    const auto not_after = TimeOf(X509_get0_notAfter(certificate.get()));
    if (not_before && not_after) dates.push_back({*not_before, *not_after});
  }
  ERR_clear_error();  // of the end of the text
  return dates;
}

std::optional<CertificateDates> WhileAll(
    const std::vector<CertificateDates>& dates) {
  std::optional<CertificateDates> all;
  for (const CertificateDates& each : dates) {
    if (!all) all = each;
    all->not_before = std::max(all->not_before, each.not_before);
    all->not_after = std::min(all->not_after, each.not_after);
  }
  return all;
}

std::optional<CertificateDates> WhileAny(
    const std::vector<CertificateDates>& dates) {
  std::optional<CertificateDates> any;
  for (const CertificateDates& each : dates) {
    if (!any) any = each;
    any->not_before = std::min(any->not_before, each.not_before);
    any->not_after = std::max(any->not_after, each.not_after);
  }
  return any;
}

}  // namespace fabricwise
