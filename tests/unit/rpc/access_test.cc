// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/access.h"

#include <regex.h>

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CertificatePattern Pattern(const std::string& text) {
  const auto pattern = ParseCertificatePattern("tls-reader", text);
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  return pattern.ok() ? *pattern : CertificatePattern();
}

TEST(CertificatePattern, MatchesNamesOfItsKind) {
  const struct {
    const char* pattern;
    NameKind kind;
    const char* name;
    bool matches;
  } cases[] = {
      {"dns:a.example", NameKind::kDns, "a.example", true},
      {"dns:A.Example", NameKind::kDns, "a.eXample", true},
      {"dns:a.example", NameKind::kDns, "b.example", false},
      {"dns:a.example", NameKind::kDns, "a.example.evil", false},
      {"dns:a.example", NameKind::kCommonName, "a.example", false},
      {"dns:*.example", NameKind::kDns, "a.example", true},
      {"dns:*.example", NameKind::kDns, "a.b.example", false},
      {"dns:*.example", NameKind::kDns, "example", false},
      {"dns:node-*-*.example", NameKind::kDns, "node-1-2.example", true},
      {"dns:node-*-*.example", NameKind::kDns, "node-1.example", false},
      {"uri:spiffe://c/ops/*", NameKind::kUri, "spiffe://c/ops/x.y", true},
      {"uri:spiffe://c/ops/*", NameKind::kUri, "spiffe://c/ops/x/y", false},
      {"uri:spiffe://c/*/sa/*", NameKind::kUri, "spiffe://c/a/sa/b", true},
      {"uri:spiffe://c/ops", NameKind::kUri, "spiffe://C/ops", false},
      {"cn:alice", NameKind::kCommonName, "alice", true},
      {"cn:alice", NameKind::kCommonName, "Alice", false},
      {"cn:team */*", NameKind::kCommonName, "team a.b/c/d", true},
      {"cn:*", NameKind::kCommonName, "", true},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Pattern(c.pattern).Matches({c.kind, c.name}), c.matches)
        << c.pattern << " " << c.name;
    EXPECT_EQ(Pattern(c.pattern).ToString(), c.pattern);
  }
  EXPECT_FALSE(Pattern("cn:root").Matches(
      {NameKind::kCommonName, std::string("root\0.evil", 10)}));
}

// All words up to `longest` letters of `alphabet`.
std::vector<std::string> Words(const std::string& alphabet, size_t longest) {
  std::vector<std::string> words = {""};
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].size() == longest) continue;
    for (const char c : alphabet) words.push_back(words[i] + c);
  }
  return words;
}

TEST(CertificatePattern, AgreesWithARegularExpressionOnAllShortWords) {
  const std::vector<std::string> names = Words("ab/", 5);
  for (const std::string& glob : Words("ab/*", 4)) {
    if (glob.empty()) continue;
    std::string expression = "^";
    for (const char c : glob) {
      expression += c == '*' ? std::string("[^/]*") : std::string(1, c);
    }
    regex_t regex;
    ASSERT_EQ(regcomp(&regex, (expression + "$").c_str(), REG_NOSUB), 0);
    const CertificatePattern pattern{NameKind::kUri, glob};
    for (const std::string& name : names) {
      ASSERT_EQ(pattern.Matches({NameKind::kUri, name}),
                regexec(&regex, name.c_str(), 0, nullptr, 0) == 0)
          << glob << " " << name;
    }
    regfree(&regex);
  }
}

TEST(CertificatePattern, OthersAreRefused) {
  for (const std::string& text :
       {std::string("a.example"), std::string(""), std::string("dns:"),
        std::string("ip:10.0.0.1"), "cn:" + std::string(513, 'x')}) {
    const absl::Status status =
        ParseCertificatePattern("tls-reader", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("tls-reader is '"),
                      HasSubstr("allowed: dns:NAME, uri:URI or cn:NAME of 1 "
                                "to 512 bytes")));
  }
}

TEST(Roles, AreReadAndWritten) {
  EXPECT_EQ(*ParseRole("f", "reader"), Role::kReader);
  EXPECT_EQ(*ParseRole("f", "operator"), Role::kOperator);
  const absl::Status odd = ParseRole("socket-role", "admin").status();
  EXPECT_EQ(odd.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(odd.message(), "socket-role is 'admin'; allowed: reader, operator");
}

TEST(Roles, FollowTheWayInAndTheCertificate) {
  AccessRules rules;
  rules.unix_role = Role::kReader;
  rules.loopback_role = Role::kOperator;
  rules.readers = {Pattern("dns:*.schedulers.example"), Pattern("cn:bob")};
  rules.operators = {Pattern("uri:spiffe://c/ops/*"), Pattern("cn:alice")};
  const auto tls = [&](std::vector<CertificateName> names) {
    return RoleOf({Peer::Way::kTls, std::move(names)}, rules);
  };
  EXPECT_EQ(RoleOf({Peer::Way::kUnixSocket, {}}, rules), Role::kReader);
  EXPECT_EQ(RoleOf({Peer::Way::kLoopback, {}}, rules), Role::kOperator);
  EXPECT_EQ(tls({}), std::nullopt);
  EXPECT_EQ(tls({{NameKind::kDns, "alice"}}), std::nullopt);
  EXPECT_EQ(tls({{NameKind::kDns, "a.schedulers.example"}}), Role::kReader);
  EXPECT_EQ(tls({{NameKind::kCommonName, "bob"},
                 {NameKind::kUri, "spiffe://c/ops/7"}}),
            Role::kOperator)
      << "the higher one";
}

TEST(Access, NamesTheCallTheRoleAndWhereItIsDecided) {
  const FakeClock clock;
  AccessRules rules;
  rules.readers = {Pattern("cn:bob")};
  const Access access(rules, &clock);
  const auto denied = [&](const Peer& peer, Role needed) {
    const absl::Status status = access.CheckRole(peer, needed, "ImportProfile");
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    return std::string(status.message());
  };
  EXPECT_EQ(denied({Peer::Way::kLoopback, {}}, Role::kOperator),
            "ImportProfile needs the role operator; this caller's is reader "
            "(loopback-role)");
  EXPECT_EQ(denied({Peer::Way::kTls, {{NameKind::kCommonName, "bob"}}},
                   Role::kOperator),
            "ImportProfile needs the role operator; this caller's is reader "
            "(tls-operator)");
  EXPECT_EQ(
      denied({Peer::Way::kTls, {{NameKind::kUri, "x:\n"}}}, Role::kReader),
      "ImportProfile needs the role reader; this certificate has none, "
      "by its names uri:'x:\\n' (tls-reader, tls-operator)");
  EXPECT_THAT(denied({Peer::Way::kTls, {}}, Role::kReader),
              HasSubstr("by its names no DNS name, URI or common name ("));
  EXPECT_THAT(
      denied({Peer::Way::kTls, std::vector<CertificateName>(
                                   1000, {NameKind::kDns, "a.example"})},
             Role::kReader),
      HasSubstr("dns:'a.example', dns:'a.example', ... ("));
  EXPECT_TRUE(
      access.CheckRole({Peer::Way::kUnixSocket, {}}, Role::kOperator, "x")
          .ok());
  EXPECT_TRUE(
      access.CheckRole({Peer::Way::kLoopback, {}}, Role::kReader, "x").ok());
}

TEST(Access, CountsOperatorsCallsButNotThoseItDenies) {
  FakeClock clock;
  AccessRules rules;
  rules.operator_calls_per_minute = 2;
  Access access(rules, &clock);
  const Peer socket{Peer::Way::kUnixSocket, {}};
  const Peer loopback{Peer::Way::kLoopback, {}};
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(access.AdmitOperator(loopback, "x").status.code(),
              absl::StatusCode::kPermissionDenied);
  }
  EXPECT_TRUE(access.AdmitOperator(socket, "x").status.ok());
  EXPECT_TRUE(access.AdmitOperator(socket, "x").status.ok());
  const Access::Admission third = access.AdmitOperator(socket, "DiagnoseNode");
  EXPECT_EQ(third.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(third.status.message(),
            "DiagnoseNode: too many calls of operators; try again in 30s "
            "(operator-calls-per-minute)");
  EXPECT_EQ(third.retry_after, absl::Seconds(30));
  clock.Advance(third.retry_after);
  EXPECT_TRUE(access.AdmitOperator(socket, "x").status.ok());

  rules.operator_calls_per_minute = 0;
  access.SetRules(rules);
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(access.AdmitOperator(socket, "x").status.ok());
  }
}

TEST(Access, CutsDeadlinesToTheLongestTime) {
  const FakeClock clock;
  AccessRules rules;
  rules.most_time = absl::Seconds(5);
  Access access(rules, &clock);
  const absl::Time now = clock.Now();
  EXPECT_EQ(access.Deadline(absl::InfiniteFuture()), now + absl::Seconds(5));
  EXPECT_EQ(access.Deadline(now + absl::Seconds(6)), now + absl::Seconds(5));
  EXPECT_EQ(access.Deadline(now + absl::Seconds(4)), now + absl::Seconds(4));
  rules.most_time = absl::Seconds(7);
  access.SetRules(rules);
  EXPECT_EQ(access.Deadline(absl::InfiniteFuture()), now + absl::Seconds(7));
}

}  // namespace
}  // namespace fabricwise
