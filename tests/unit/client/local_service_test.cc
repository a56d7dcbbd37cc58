// SPDX-License-Identifier: Apache-2.0
//
// The client in-process, from a profile file, without a daemon anywhere.
#include "client/local_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/file.h"
#include "client/remote_service.h"
#include "server/profile/profile_file.h"
#include "tests/unit/client/samples.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Two GPUs whose all-reduce was measured, and nothing else.
ProfileData SmallProfile() {
  ProfileData data;
  data.name = "small";
  data.as_of = SampleNow();
  data.fingerprint.gpus.assign(2, Gpu{.name = "GPU", .memory_bytes = 80 << 20});
  for (int64_t size = 1024; size <= 64 << 20; size *= 4) {
    Measurement measurement;
    measurement.key = ParseMeasurementKey(
                          absl::StrCat("all_reduce/n2/nccl/graph/", size, "B"))
                          .value();
    measurement.statistics.median_seconds =
        10e-6 + static_cast<double>(size) / 100e9;
    measurement.start_time = SampleNow();
    data.measurements.push_back(measurement);
  }
  return data;
}

struct Result {
  int code = 0;
  std::string out, err;
};

Result RunClientWith(std::vector<std::string> arguments) {
  std::ostringstream out, err;
  ClientEnvironment environment;
  environment.out = &out;
  environment.err = &err;
  environment.clock = Clock::Real();
  environment.connect = Connect;
  int code = RunClient(std::move(arguments), environment);
  return {code, out.str(), err.str()};
}

class LocalServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(
        WriteFile(Path("small.json"), WriteProfile(SmallProfile())).ok());
  }
  std::string Path(const std::string& name) { return folder_ / name; }

  std::filesystem::path folder_;
};

TEST_F(LocalServiceTest, CommunicationCanBeAnsweredFromCollectivesAlone) {
  Result result = RunClientWith(
      {"recommend", "--profile", Path("small.json"), "--model", "Llama-3.1-8B",
       "--concurrency", "8", "--engine", "reference", "--scope",
       "communication", "--ignore-memory", "--gpus", "2"});
  EXPECT_EQ(result.code, kAnswered) << result.err;
  EXPECT_THAT(result.out, HasSubstr("TP2"));
  EXPECT_THAT(result.out, HasSubstr("comm/step"));
}

TEST_F(LocalServiceTest, AStepCannotBeAnsweredAndTheMissingIsNamed) {
  Result result = RunClientWith(
      {"recommend", "--profile", Path("small.json"), "--model", "Llama-3.1-8B",
       "--concurrency", "8", "--engine", "reference", "--ignore-memory"});
  EXPECT_EQ(result.code, kNotAnswerable);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("gemm"));
}

TEST_F(LocalServiceTest, AShippedProfileIsFoundByName) {
  ASSERT_EQ(setenv("FABRICWISE_PROFILES", folder_.c_str(), 1), 0);
  EXPECT_EQ(RunClientWith({"profile", "show", "--profile", "small"}).code,
            kAnswered);
  Result unknown = RunClientWith({"profile", "show", "--profile", "smal"});
  EXPECT_EQ(unsetenv("FABRICWISE_PROFILES"), 0);
  EXPECT_EQ(unknown.code, kRefused);
  EXPECT_THAT(unknown.err,
              StartsWith("fabricwise: no profile \"smal\": no such file, and "
                         "none shipped by that name; shipped: "));
  EXPECT_THAT(unknown.err, HasSubstr("small"));
}

TEST_F(LocalServiceTest, APathThatLeadsNowhereIsNoName) {
  Result result =
      RunClientWith({"profile", "show", "--profile", Path("none.json")});
  EXPECT_EQ(result.code, kRefused);
  EXPECT_THAT(result.err, HasSubstr("none.json"));
}

TEST_F(LocalServiceTest, FilesThatAreNoProfileAreRefused) {
  ASSERT_TRUE(WriteFile(Path("odd.json"), "{\"format\": 7").ok());
  EXPECT_EQ(RunClientWith({"curves", "--profile", Path("odd.json")}).code,
            kRefused);
  std::string text = WriteProfile(SmallProfile());
  ASSERT_TRUE(
      WriteFile(Path("cut.json"), text.substr(0, text.size() / 2)).ok());
  Result cut = RunClientWith({"curves", "--profile", Path("cut.json")});
  EXPECT_EQ(cut.code, kRefused);
  EXPECT_THAT(cut.err, HasSubstr("cut.json"));
  const std::string version = absl::StrCat("\"version\": ", kProfileVersion);
  size_t at = text.find(version);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, version.size(),
               absl::StrCat("\"version\": ", kProfileVersion + 1));
  ASSERT_TRUE(WriteFile(Path("new.json"), text).ok());
  Result newer = RunClientWith({"curves", "--profile", Path("new.json")});
  EXPECT_EQ(newer.code, kRefused);
  EXPECT_THAT(newer.err, HasSubstr("version"));
  EXPECT_EQ(RunClientWith({"curves", "--profile", folder_}).code, kRefused);
}

TEST_F(LocalServiceTest, ExportReadsBackAsTheSameProfile) {
  EXPECT_EQ(RunClientWith({"profile", "export", "--profile", Path("small.json"),
                           "--out", Path("again.json")})
                .code,
            kAnswered);
  EXPECT_EQ(ReadFile(Path("again.json"), 1 << 20).value(),
            WriteProfile(SmallProfile()));
  Result diff = RunClientWith(
      {"profile", "diff", Path("small.json"), Path("again.json")});
  EXPECT_EQ(diff.code, kAnswered);
  EXPECT_THAT(diff.out, HasSubstr("node         the same"));
}

TEST_F(LocalServiceTest, ImportMakesAProfileOfTables) {
  ASSERT_TRUE(WriteFile(Path("memory.csv"),
                        "op,bytes,time_us\nread,1048576,1.5\ncopy,1048576,2\n")
                  .ok());
  Result made =
      RunClientWith({"profile", "import", Path("memory.csv"), "--name", "mine",
                     "--gpu-name", "GPU", "--gpus", "2", "--gpu-memory-gb",
                     "80", "--fabric", "pcie", "--nccl-env", "NCCL_ALGO=Ring",
                     "--note", "by hand", "--out", Path("mine.json")});
  ASSERT_EQ(made.code, kAnswered) << made.err;
  Result shown =
      RunClientWith({"profile", "show", "--profile", Path("mine.json")});
  EXPECT_THAT(shown.out, HasSubstr("2x GPU, 74.5 GiB"));
  EXPECT_THAT(shown.out, HasSubstr("NCCL_ALGO=Ring"));
  EXPECT_THAT(shown.out, HasSubstr("memory read (1)"));
  EXPECT_THAT(shown.out, HasSubstr("by hand"));
}

TEST_F(LocalServiceTest, ImportTakesWhatIsKnownOfTheNode) {
  ASSERT_TRUE(
      WriteFile(Path("memory.csv"), "op,bytes,time_us\nread,1048576,1.5\n")
          .ok());
  const auto node = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "profile", "import", Path("memory.csv"), "--name", "mine", "--gpus",
        "3",       "--out",  Path("mine.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Result made = RunClientWith(arguments);
    EXPECT_EQ(made.code, kAnswered) << made.err;
    return ReadProfile("mine.json",
                       ReadFile(Path("mine.json"), 1 << 20).value())
        ->fingerprint;
  };
  const Fingerprint known = node({"--compute-capability", "90", "--peer-access",
                                  "all", "--nvlinks", "18"});
  EXPECT_EQ(known.gpus[2].compute_capability, 90);
  EXPECT_EQ(known.peer_access, std::vector(3, std::vector<bool>(3, true)));
  EXPECT_EQ(known.nvlinks, (std::vector<std::vector<int>>{
                               {0, 18, 18}, {18, 0, 18}, {18, 18, 0}}));
  const Fingerprint apart = node({"--peer-access", "none", "--nvlinks", "0"});
  EXPECT_EQ(
      apart.peer_access,
      (std::vector<std::vector<bool>>{
          {true, false, false}, {false, true, false}, {false, false, true}}));
  EXPECT_EQ(apart.nvlinks, std::vector(3, std::vector<int>(3, 0)));
  const Fingerprint unsaid = node({});
  EXPECT_TRUE(unsaid.peer_access.empty());
  EXPECT_TRUE(unsaid.nvlinks.empty());
  EXPECT_EQ(unsaid.gpus[0].compute_capability, 0);
}

TEST_F(LocalServiceTest, ImportTakesAProfileFileAsItIs) {
  Result taken = RunClientWith(
      {"profile", "import", Path("small.json"), "--out", Path("taken.json")});
  ASSERT_EQ(taken.code, kAnswered) << taken.err;
  EXPECT_EQ(ReadFile(Path("taken.json"), 1 << 20).value(),
            WriteProfile(SmallProfile()));
  std::string text = WriteProfile(SmallProfile());
  ASSERT_TRUE(WriteFile(Path("cut.json"), text.substr(0, 400)).ok());
  Result cut = RunClientWith(
      {"profile", "import", Path("cut.json"), "--out", Path("taken.json")});
  EXPECT_EQ(cut.code, kRefused);
  EXPECT_THAT(cut.err, HasSubstr("cut.json"));
}

TEST_F(LocalServiceTest, ImportRefusesOddFlagsAndFiles) {
  ASSERT_TRUE(WriteFile(Path("odd.csv"), "a,b\n1,2\n").ok());
  auto refusal = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"profile", "import", Path("odd.csv"),
                                          "--name", "x"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Result result = RunClientWith(arguments);
    EXPECT_EQ(result.code, kRefused);
    EXPECT_FALSE(std::filesystem::exists(Path("x.json")));
    return result.err;
  };
  std::string out = Path("x.json");
  EXPECT_THAT(refusal({}), HasSubstr("--out FILE or --target is required"));
  EXPECT_THAT(
      RunClientWith({"profile", "import", Path("odd.csv"), "--out", out}).err,
      HasSubstr("--name is required"));
  EXPECT_THAT(refusal({"--out", out}), HasSubstr("odd.csv"));
  EXPECT_THAT(refusal({"--out", out, "--nvlinks", "4"}),
              HasSubstr("--gpus is required"));
  EXPECT_THAT(refusal({"--out", out, "--gpus", "2", "--nvlinks", "-1"}),
              HasSubstr("--nvlinks is -1; allowed: 0 to 64"));
  EXPECT_THAT(
      refusal({"--out", out, "--gpus", "2", "--compute-capability", "9"}),
      HasSubstr("--compute-capability is 9; allowed: 10 to 999"));
  EXPECT_THAT(refusal({"--out", out, "--gpus", "2", "--peer-access", "some"}),
              HasSubstr("\"some\"; allowed: all, none"));
  EXPECT_THAT(refusal({"--out", out, "--gpus", "0"}),
              HasSubstr("--gpus is 0; allowed: 1 to 1024"));
  EXPECT_THAT(refusal({"--out", out, "--gpu-name", "GPU"}),
              HasSubstr("--gpus is required with --gpu-name"));
  EXPECT_THAT(refusal({"--out", out, "--gpus", "2", "--gpu-memory-gb", "nan"}),
              HasSubstr("--gpu-memory-gb is nan; allowed: over 0"));
  EXPECT_THAT(refusal({"--out", out, "--nccl-env", "ALGO"}),
              HasSubstr("--nccl-env is \"ALGO\"; allowed: NCCL_NAME=value"));
  EXPECT_THAT(refusal({"--out", out, "--op", "broadcast"}),
              HasSubstr("--op: "));
  EXPECT_THAT(refusal({"--out", out, "--time", "yesterday"}),
              HasSubstr("--time is \"yesterday\"; allowed: as 2026-11-29"));
  EXPECT_THAT(refusal({"--out", out, "--origin", "guessed"}),
              HasSubstr("--origin: \"guessed\"; allowed: measured, reference"));
}

TEST_F(LocalServiceTest, WhatOnlyADaemonCanDoIsRefused) {
  std::unique_ptr<Service> service =
      AnswerFrom(LoadProfile(Path("small.json")).value());
  EXPECT_EQ(service->GetStatus().status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      service->RunMeasurement({}, [](const auto&) { return true; }).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(service->Watch({}, [](const auto&) { return true; }).message(),
            "watch needs a daemon; a profile cannot do it");
  EXPECT_EQ(service->Diagnose().status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(service->ImportProfile({}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ConnectTo, RefusesWhatIsNoAddress) {
  for (const char* target :
       {"node7", ":7410", "node7:", "node7:0", "node7:65536", "node7:http",
        "http://node7:80", "unix:", "unix://"}) {
    absl::Status status = ConnectTo(target, {}, absl::Seconds(1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << target;
    EXPECT_THAT(std::string(status.message()),
                StartsWith(absl::StrCat("--target is \"", target, "\"")));
  }
  EXPECT_EQ(ConnectTo("unix:///" + std::string(200, 'x'), {}, absl::Seconds(1))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ConnectTo("[::1]:7410", {}, absl::Seconds(1)).ok());
}

TEST(ConnectTo, TlsNeedsAllThatBelongsTogether) {
  const auto refusal = [](const TlsIdentity& tls) {
    const absl::Status status =
        ConnectTo("a.example:1", tls, absl::Seconds(1)).status();
    EXPECT_EQ(ExitCodeOf(status), kRefused);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({.certificate = "/c"}),
            "--tls-cert is given without --tls-key");
  EXPECT_EQ(refusal({.ca = "/a", .key = "/k"}),
            "--tls-key is given without --tls-cert");
  EXPECT_EQ(refusal({.certificate = "/c", .key = "/k"}),
            "--tls-cert is given without --tls-ca, and without that nothing is "
            "encrypted");
  EXPECT_EQ(refusal({.server_name = "b.example"}),
            "--tls-server-name is given without --tls-ca, and without that "
            "nothing is encrypted");
  EXPECT_THAT(refusal({.ca = "/absent/ca.pem"}), HasSubstr("/absent/ca.pem"));
  // A UNIX socket speaks none, whatever the environment says.
  EXPECT_TRUE(
      ConnectTo("unix:///s", {.ca = "/absent/ca.pem"}, absl::Seconds(1)).ok());
}

TEST(ConnectTo, NoDaemonIsExitCode2NamingTheTarget) {
  std::string socket = ::testing::TempDir() + "/nobody.sock";
  Result result = RunClientWith({"status", "--target", "unix://" + socket});
  EXPECT_EQ(result.code, kUnreachable);
  EXPECT_THAT(result.err,
              StartsWith("fabricwise: cannot reach unix://" + socket));
}

}  // namespace
}  // namespace fabricwise
