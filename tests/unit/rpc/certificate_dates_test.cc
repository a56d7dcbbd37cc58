// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/certificate_dates.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Self-signed, and their key is lost. Not before 2020-01-02T03:04:05Z, not
// after 2021-02-03T04:05:06Z.
constexpr char kFirst[] = R"(-----BEGIN CERTIFICATE-----
MIIBBzCBrgIBATAKBggqhkjOPQQDAjAQMQ4wDAYDVQQDDAVmaXJzdDAeFw0yMDAx
MDIwMzA0MDVaFw0yMTAyMDMwNDA1MDZaMBAxDjAMBgNVBAMMBWZpcnN0MFkwEwYH
KoZIzj0CAQYIKoZIzj0DAQcDQgAE7LVCVypeXI4J8fR2C5GNXiWpSNzYQsFVUgwt
f1PYQR4hmiwZEiRrlfqP+ZsrzDkNxd3+9T5RinATGjU6+WierDAKBggqhkjOPQQD
AgNIADBFAiEA2bCJ7sfx2pDsNxXm6i29sgxXHnpl5I+xv4J0z+r6YG0CIAO+iw3C
fEFkHVivT7HeI5HGYQn+nbS7GIDzNGwzs2BH
-----END CERTIFICATE-----
)";

// Not before 2020-06-01, and for ever, as RFC 5280 writes it.
constexpr char kSecond[] = R"(-----BEGIN CERTIFICATE-----
MIIBCTCBsAIBAjAKBggqhkjOPQQDAjAQMQ4wDAYDVQQDDAVmaXJzdDAgFw0yMDA2
MDEwMDAwMDBaGA85OTk5MTIzMTIzNTk1OVowEDEOMAwGA1UEAwwFZmlyc3QwWTAT
BgcqhkjOPQIBBggqhkjOPQMBBwNCAATstUJXKl5cjgnx9HYLkY1eJalI3NhCwVVS
DC1/U9hBHiGaLBkSJGuV+o/5myvMOQ3F3f71PlGKcBMaNTr5aJ6sMAoGCCqGSM49
BAMCA0gAMEUCIQCSeVoHDzxPqtxjmwdYJwNKZ2RdO/H6phVDhr+2FMNPJAIgYIE0
B5IsTCIslBqFoBi6BZiwLOJz3B68GFUKUFYt6t4=
-----END CERTIFICATE-----
)";

absl::Time At(const char* text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error))
      << error;
  return time;
}

const CertificateDates& First() {
  static const auto& dates = *new CertificateDates{At("2020-01-02T03:04:05Z"),
                                                   At("2021-02-03T04:05:06Z")};
  return dates;
}

const CertificateDates& Second() {
  static const auto& dates = *new CertificateDates{At("2020-06-01T00:00:00Z"),
                                                   At("9999-12-31T23:59:59Z")};
  return dates;
}

TEST(CertificateDatesTest, ReadsEachCertificateInOrder) {
  EXPECT_THAT(DatesIn(kFirst), ElementsAre(First()));
  EXPECT_THAT(DatesIn(std::string("a remark\n") + kSecond + kFirst),
              ElementsAre(Second(), First()));
}

TEST(CertificateDatesTest, WhatIsNoCertificateHasNone) {
  EXPECT_THAT(DatesIn(""), IsEmpty());
  EXPECT_THAT(DatesIn("-----BEGIN CERTIFICATE-----\njunk\n"
                      "-----END CERTIFICATE-----\n"),
              IsEmpty());
  // A key before it does not hide it.
  EXPECT_THAT(DatesIn(std::string("-----BEGIN PRIVATE KEY-----\nMAA=\n"
                                  "-----END PRIVATE KEY-----\n") +
                      kFirst),
              ElementsAre(First()));
}

TEST(CertificateDatesTest, AChainLastsAsLongAsAllOfIt) {
  EXPECT_EQ(WhileAll({First(), Second()}),
            (CertificateDates{Second().not_before, First().not_after}));
  EXPECT_EQ(WhileAll({}), std::nullopt);
}

TEST(CertificateDatesTest, CasLastAsLongAsAnyOfThem) {
  EXPECT_EQ(WhileAny({First(), Second()}),
            (CertificateDates{First().not_before, Second().not_after}));
  EXPECT_EQ(WhileAny({}), std::nullopt);
}

}  // namespace
}  // namespace fabricwise
