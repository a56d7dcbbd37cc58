// SPDX-License-Identifier: Apache-2.0
//
// Many nodes asked at once, each a service of the test's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/json.h"
#include "client/local_service.h"
#include "client/resolve.h"
#include "google/protobuf/util/json_util.h"
#include "tests/support/synthetic_profile.h"
#include "tests/unit/client/samples.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FixedClock final : public Clock {
 public:
  absl::Time Now() const override { return SampleNow(); }
};

struct Result {
  int code = 0;
  std::string out, err;
};

class RankTest : public ::testing::Test {
 protected:
  // A node whose every measurement takes `factor` of the sample's time.
  void AddNode(const std::string& target, double factor) {
    ProfileData data = SampleProfileData(target);
    for (Measurement& m : data.measurements) {
      m.statistics.median_seconds *= factor;
    }
    nodes_[target] = Profile::Build(std::move(data)).value();
  }

  Result Run(std::vector<std::string> arguments) {
    std::ostringstream out, err;
    ClientEnvironment environment;
    environment.out = &out;
    environment.err = &err;
    environment.clock = &clock_;
    environment.connect = [this](const ServiceAddress& address)
        -> absl::StatusOr<std::unique_ptr<Service>> {
      const std::string& name =
          address.target.empty() ? address.profile : address.target;
      {
        std::lock_guard lock(mutex_);
        asked_[name] = address;
      }
      const auto node = nodes_.find(name);
      if (node == nodes_.end()) {
        return absl::UnavailableError(absl::StrCat("cannot reach ", name));
      }
      return AnswerFrom(node->second);
    };
    arguments.insert(arguments.end(), {"--model", "Qwen3-8B", "--engine",
                                       "reference", "--phase", "decode"});
    const int code = RunClient(std::move(arguments), environment);
    return {code, out.str(), err.str()};
  }

  static std::vector<std::string> Targets(const std::string& json) {
    v1::NodeRanking ranking;
    EXPECT_TRUE(
        google::protobuf::util::JsonStringToMessage(json, &ranking).ok());
    std::vector<std::string> targets;
    for (const v1::RankedNode& node : ranking.nodes()) {
      EXPECT_EQ(node.has_plan(), node.error().empty()) << node.target();
      targets.push_back(node.target());
    }
    return targets;
  }

  FixedClock clock_;
  std::map<std::string, std::shared_ptr<const Profile>> nodes_;
  std::mutex mutex_;
  std::map<std::string, ServiceAddress> asked_;
};

TEST_F(RankTest, NodesStandByWhatTheyWouldDo) {
  AddNode("slow:1", 3);
  AddNode("fast:1", 1);
  AddNode("middle", 2);
  for (const char* objective : {"throughput", "latency"}) {
    const Result result = Run({"rank", "--targets", "slow:1,gone:1,fast:1",
                               "--profiles", "middle", "--concurrency", "8",
                               "--objective", objective, "--format", "json"});
    EXPECT_EQ(result.code, kAnswered) << result.err;
    EXPECT_THAT(Targets(result.out),
                ElementsAre("fast:1", "middle", "slow:1", "gone:1"));
  }
}

TEST_F(RankTest, TheTableSaysWhoDidNotAnswerAndWhy) {
  AddNode("fast:1", 1);
  const Result result =
      Run({"rank", "--targets", "gone:1,fast:1", "--concurrency", "8"});
  EXPECT_EQ(result.code, kAnswered) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 of 2 nodes"));
  EXPECT_THAT(result.out, HasSubstr(" 1  fast:1"));
  EXPECT_THAT(result.out,
              HasSubstr("no answer    gone:1: cannot reach gone:1"));
}

TEST_F(RankTest, WithoutAnyAnswerItFailsAsTheFirstNodeDid) {
  const Result result = Run({"rank", "--targets", "gone:1,lost:1",
                             "--concurrency", "8", "--format", "json"});
  EXPECT_EQ(result.code, kUnreachable);
  EXPECT_THAT(Targets(result.out), ElementsAre("gone:1", "lost:1"));
  const Result table =
      Run({"rank", "--targets", "gone:1", "--concurrency", "8"});
  EXPECT_THAT(table.out, StartsWith(" Qwen3-8B, 8 sequences"));
  EXPECT_THAT(result.err,
              HasSubstr("no node has an answer; first: cannot reach gone:1"));
}

TEST_F(RankTest, AWrongQuestionIsRefusedAtOnce) {
  AddNode("fast:1", 1);
  Result result = Run({"rank", "--targets", "fast:1", "--concurrency", "0"});
  EXPECT_EQ(result.code, kRefused);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("--concurrency"));

  result = Run({"rank", "--targets", "fast:1", "--concurrency", "1,8"});
  EXPECT_EQ(result.code, kRefused);
  EXPECT_THAT(result.err,
              HasSubstr("--concurrency has 2 values; allowed: one"));

  result = Run({"rank", "--concurrency", "8"});
  EXPECT_EQ(result.code, kRefused);
  EXPECT_THAT(result.err, HasSubstr("--targets or --profiles name them"));

  for (const char* flag : {"--targets", "--profiles"}) {
    for (const char* value :
         {"", ",", "fast:1,", ",fast:1", "fast:1,,fast:1"}) {
      result = Run({"rank", flag, value, "--concurrency", "8"});
      EXPECT_EQ(result.code, kRefused) << flag << " '" << value << "'";
      EXPECT_THAT(result.err, HasSubstr(absl::StrCat(
                                  flag, " has an empty name; allowed: ")));
    }
  }
  EXPECT_TRUE(asked_.empty() || asked_.contains("fast:1"));
}

TEST_F(RankTest, ANodeThatCannotTakeTheQuestionDoesNotSpoilIt) {
  AddNode("large:1", 1);
  nodes_["small:1"] = SampleProfile("small:1", 1);
  const Result result =
      Run({"rank", "--targets", "small:1,large:1,dns:///a..b:1,large:1",
           "--gpus", "2", "--concurrency", "8", "--format", "json"});
  EXPECT_EQ(result.code, kAnswered) << result.err;
  EXPECT_THAT(Targets(result.out),
              ElementsAre("large:1", "dns:///a..b:1", "small:1"));
}

TEST_F(RankTest, WhatMissesALimitIsSaidToMissIt) {
  AddNode("fast:1", 1);
  const Result result = Run({"rank", "--targets", "fast:1", "--concurrency",
                             "8", "--objective", "slo", "--tpot-ms", "0.001"});
  EXPECT_EQ(result.code, kAnswered) << result.err;
  EXPECT_THAT(result.out, HasSubstr("* misses     fast:1: TPOT "));
}

TEST_F(RankTest, MoreNodesThanAreAskedAtOnceAreAllAsked) {
  std::string targets;
  for (int i = 0; i < 200; ++i) {
    absl::StrAppend(&targets, i == 0 ? "" : ",", "node", i, ":1");
  }
  const Result result =
      Run({"rank", "--targets", targets, "--concurrency", "8"});
  EXPECT_EQ(result.code, kUnreachable);
  EXPECT_EQ(asked_.size(), 200u);
}

TEST_F(RankTest, ANameIsEveryAddressAndStaysTheCertificatesName) {
  const Result result = Run({"rank", "--targets", "dns:///localhost:7410",
                             "--tls-ca", "ca.pem", "--concurrency", "8"});
  EXPECT_EQ(result.code, kUnreachable);
  ASSERT_TRUE(asked_.contains("127.0.0.1:7410"));
  EXPECT_EQ(asked_["127.0.0.1:7410"].tls.server_name, "localhost");
}

TEST(ResolveTest, OtherTargetsStayAsTheyAre) {
  for (const char* target : {"node7:7410", "unix:///run/f.sock"}) {
    const auto endpoints = Resolve(target);
    ASSERT_TRUE(endpoints.ok());
    ASSERT_EQ(endpoints->size(), 1u);
    EXPECT_EQ(endpoints->front().target, target);
    EXPECT_EQ(endpoints->front().server_name, "");
  }
}

TEST(ResolveTest, AnAddressOfIpv6StandsInBrackets) {
  const auto endpoints = Resolve("dns:///[::1]:7410");
  ASSERT_TRUE(endpoints.ok()) << endpoints.status();
  ASSERT_EQ(endpoints->size(), 1u);
  EXPECT_EQ(endpoints->front().target, "[::1]:7410");
  EXPECT_EQ(endpoints->front().server_name, "::1");
}

TEST(ResolveTest, ANameInAnotherFormIsRefused) {
  for (const char* target :
       {"dns:host:1", "dns://server/host:1", "dns:///host", "dns:///:1",
        "dns:///host:0", "dns:///host:65536", "dns:///host:port"}) {
    const absl::Status status = Resolve(target).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << target;
    EXPECT_THAT(status.message(), HasSubstr("allowed: dns:///HOST:PORT"));
  }
}

TEST(ResolveTest, ANameWithoutAddressIsUnavailable) {
  // No name of the Internet: no name server is asked.
  const absl::Status status = Resolve("dns:///a..b:1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("cannot resolve a..b: "));
}

}  // namespace
}  // namespace fabricwise
