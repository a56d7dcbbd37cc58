// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/exposer.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/metrics/sources.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

int Connect(int port) {
  const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(s, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  return s;
}

std::string Get(int port, const std::string& path) {
  const int s = Connect(port);
  // The test fails rather than hangs.
  constexpr timeval kLongestWait = {.tv_sec = 10, .tv_usec = 0};
  EXPECT_EQ(setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &kLongestWait,
                       sizeof(kLongestWait)),
            0);
  const std::string request =
      absl::StrCat("GET ", path,
                   " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(send(s, request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(s, buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(n));
  }
  close(s);
  return answer;
}

TEST(MetricsServer, ServesTheCollectorOverHttp) {
  RequestMetrics requests({"A"});
  auto server = MetricsServer::Start(
      "127.0.0.1:0", MakeCollector(Sources(&requests, nullptr)));
  ASSERT_TRUE(server.ok()) << server.status();
  // The caller kept no pointer to the collector: the server must.
  const std::string answer = Get((*server)->port(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("text/plain"));
  EXPECT_THAT(answer, HasSubstr("fabricwise_build_info{version=\"1.2.3\"} 1"));
  EXPECT_THAT(Get((*server)->port(), "/other"), StartsWith("HTTP/1.1 404"));
}

TEST(MetricsServer, AnswersBesideConnectionsThatStaySilent) {
  RequestMetrics requests({"A"});
  auto server = MetricsServer::Start(
      "127.0.0.1:0", MakeCollector(Sources(&requests, nullptr)));
  ASSERT_TRUE(server.ok()) << server.status();
  // Accepted in order, so that the last one finds these before it.
  int silent[100];
  for (int& s : silent) s = Connect((*server)->port());
  EXPECT_THAT(Get((*server)->port(), "/metrics"), StartsWith("HTTP/1.1 200"));
  for (const int s : silent) close(s);
}

TEST(MetricsServer, PortInUseIsUnavailableAndNamed) {
  RequestMetrics requests({"A"});
  const auto collector = MakeCollector(Sources(&requests, nullptr));
  auto server = MetricsServer::Start("127.0.0.1:0", collector);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = absl::StrCat("127.0.0.1:", (*server)->port());
  const absl::Status status = MetricsServer::Start(address, collector).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("cannot listen on " + address));
}

}  // namespace
}  // namespace fabricwise
