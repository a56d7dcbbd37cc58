// SPDX-License-Identifier: Apache-2.0
//
// From when to when certificates are valid.
#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fabricwise {

struct CertificateDates {
  absl::Time not_before;
  absl::Time not_after;

  friend bool operator==(const CertificateDates&,
                         const CertificateDates&) = default;
};

// Of each certificate that `pem` holds, in order. What is no certificate, or
// has a date that cannot be read, is left out.
std::vector<CertificateDates> DatesIn(absl::string_view pem);

// While all of them are valid: a chain. Absent where there is none.
std::optional<CertificateDates> WhileAll(
    const std::vector<CertificateDates>& dates);

// From the first that becomes valid to the last that expires: CAs of which one
// is enough. Absent where there is none.
std::optional<CertificateDates> WhileAny(
    const std::vector<CertificateDates>& dates);

}  // namespace fabricwise
