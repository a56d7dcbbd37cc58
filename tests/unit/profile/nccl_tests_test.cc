// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/imported.h"
#include "tests/support/read_file.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Sample(const std::string& name) {
  return ReadWholeFile("tests/data/fuzz/import/" + name);
}

std::vector<std::string> Keys(const Imported& imported) {
  std::vector<std::string> keys;
  for (const Measurement& m : imported.measurements) {
    keys.push_back(ToString(m.key));
  }
  return keys;
}

std::vector<double> Seconds(const Imported& imported) {
  std::vector<double> seconds;
  for (const Measurement& m : imported.measurements) {
    seconds.push_back(m.statistics.median_seconds);
  }
  return seconds;
}

void ExpectRefused(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

TEST(NcclTestsText, OfTheCurrentVersionIsRead) {
  const auto imported =
      ImportNcclTestsText("a.txt", Sample("nccl_tests_2_19_graph.txt"), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(Keys(*imported), ElementsAre("all_reduce/n2/nccl/graph/512B",
                                           "all_reduce/n2/nccl/graph/1024B",
                                           "all_reduce/n2/nccl/graph/2048B"));
  EXPECT_THAT(Seconds(*imported), ElementsAre(6.78e-6, 6.49e-6, 12e-6));
  const Measurement& first = imported->measurements[0];
  EXPECT_EQ(first.statistics.samples, 20);
  EXPECT_TRUE(first.statistics.verified);
  EXPECT_LT(first.statistics.iqr_seconds, 0);
  EXPECT_EQ(first.origin, Origin::kMeasured);
  EXPECT_EQ(first.source, "nccl-tests 2.19.6, NCCL 2.28.3, a.txt");
  EXPECT_EQ(imported->gpu_name, "NVIDIA H200");
  EXPECT_EQ(imported->gpu_count, 2);
  EXPECT_EQ(imported->nccl_version, "2.28.3");
}

TEST(NcclTestsText, OfTheOldestVersionsIsReadByItsCommandLine) {
  const auto imported =
      ImportNcclTestsText("a.txt", Sample("nccl_tests_2_8_all_reduce.txt"), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(Keys(*imported), ElementsAre("all_reduce/n8/nccl/eager/8B",
                                           "all_reduce/n8/nccl/eager/16B"));
  EXPECT_THAT(Seconds(*imported), ElementsAre(32.11e-6, 32.57e-6));
  EXPECT_EQ(imported->gpu_name, "Tesla V100-SXM2-32GB");
  EXPECT_EQ(imported->nccl_version, "");
}

TEST(NcclTestsText, WithoutItsOperationNeedsToBeToldIt) {
  const std::string content = Sample("nccl_tests_2_10_alltoall.txt");
  ExpectRefused(ImportNcclTestsText("a.txt", content, {}).status(),
                "a.txt:7: the output does not name its operation; state which "
                "of all_reduce_perf");
  const auto imported =
      ImportNcclTestsText("a.txt", content, {.op = CollectiveOp::kAllToAll});
  ASSERT_TRUE(imported.ok()) << imported.status();
  // Four threads of one GPU; the reduction's column is blank.
  EXPECT_THAT(Keys(*imported), ElementsAre("all_to_all/n4/nccl/eager/1024B",
                                           "all_to_all/n4/nccl/eager/2048B"));
  EXPECT_THAT(Seconds(*imported), ElementsAre(14.11e-6, 14.57e-6));
  EXPECT_FALSE(imported->measurements[0].statistics.verified);
}

TEST(NcclTestsText, WithMoreColumnsAndSplitGroupsIsRead) {
  const auto imported =
      ImportNcclTestsText("a.txt", Sample("nccl_tests_2_20_split.txt"), {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(Keys(*imported), ElementsAre("send_recv/n2/nccl/eager/x2/8B",
                                           "send_recv/n2/nccl/eager/x2/16B"));
  EXPECT_THAT(Seconds(*imported), ElementsAre(9.5e-6, 9.75e-6));
  EXPECT_EQ(imported->measurements[0].statistics.samples, 30);
  EXPECT_EQ(imported->gpu_count, 4);
}

TEST(NcclTestsText, MayHoldSeveralRuns) {
  const auto imported = ImportNcclTestsText(
      "a.txt",
      Sample("nccl_tests_2_19_graph.txt") + Sample("nccl_tests_2_20_split.txt"),
      {});
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->measurements, SizeIs(5));
  // The second does not inherit the first's name.
  ExpectRefused(ImportNcclTestsText("a.txt",
                                    Sample("nccl_tests_2_8_all_reduce.txt") +
                                        Sample("nccl_tests_2_10_alltoall.txt"),
                                    {})
                    .status(),
                "does not name its operation");
}

TEST(NcclTestsText, ThatIsOffIsRefusedByItsLine) {
  const std::vector<std::vector<std::string>> cases = {
      // What to replace, by what, and the refusal.
      {"    6.49 ", "    abc ", "a.txt:16: time is 'abc'; allowed: a finite"},
      {"    6.49 ", "   -6.49 ", "a.txt:16: time is '-6.49'"},
      {"    6.49 ", "    0.00 ", "a.txt:16: time is '0.00'; allowed: more"},
      {"    6.49 ", " ",
       "a.txt:16: the number of fields is 12; allowed: 13 to 13"},
      {"        1024           512", "99999999999999999999    512",
       "a.txt:16: size is '99999999999999999999'"},
      {"6.78    0.08    0.08       0", "6.78    0.08    0.08       3",
       "a.txt:14: #wrong is '3'; allowed: 0"},
      {"# Avg bus", "# Average", "the file was cut off"},
      {"all_reduce_perf", "broadcast_perf",
       "a.txt:3: the program is 'broadcast_perf'; allowed: all_reduce_perf"},
      {"#  Rank  1 Group", "#  Rank  0 Group",
       "a.txt:8: rank 0 is there twice"},
      {"#  Rank  1 Group", "#  Rank  x Group", "a.txt:8: the rank has no num"},
      {"Rank  1 Group  0", "Rank  1 Group  x", "a.txt:8: the rank's group"},
      {"  time ", "  cputime ", "a.txt:11: no column 'time'"},
      {"time   algbw   busbw  #wrong     time   algbw   busbw  #wrong", "time",
       "a.txt:11: allowed columns: size, ... time"},
      {"Rank  1 Group  0", "Rank  1 Group  1",
       "a.txt:11: the number of ranks is 1; allowed: 2 to 65536"},
  };
  for (const std::vector<std::string>& c : cases) {
    SCOPED_TRACE(c[1]);
    const std::string content = absl::StrReplaceAll(
        Sample("nccl_tests_2_19_graph.txt"), {{c[0], c[1]}});
    ASSERT_NE(content, Sample("nccl_tests_2_19_graph.txt"));
    ExpectRefused(ImportNcclTestsText("a.txt", content, {}).status(), c[2]);
  }
}

TEST(NcclTestsText, CutOffAnywhereIsRefused) {
  const std::string content = Sample("nccl_tests_2_19_graph.txt");
  for (size_t size = 0; size < content.find("# Avg"); size += 7) {
    ExpectRefused(
        ImportNcclTestsText("a.txt", content.substr(0, size), {}).status(),
        "a.txt:");
  }
}

TEST(NcclTestsText, WithGroupsOfUnequalSizeIsRefused) {
  const std::string content =
      absl::StrReplaceAll(Sample("nccl_tests_2_20_split.txt"),
                          {{"#  Rank  3 Group  1 Pid     13 on     node-a "
                            "device  3 [0000:04:00] NVIDIA H100\n",
                            ""}});
  ExpectRefused(ImportNcclTestsText("a.txt", content, {}).status(),
                "3 ranks in 2 groups; allowed: groups of one size");
}

TEST(NcclTestsText, OfAbsurdlyManyThreadsIsRefused) {
  const std::string content = absl::StrReplaceAll(
      Sample("nccl_tests_2_10_alltoall.txt"),
      {{"nThread 4 nGpus 1", "nThread 9223372036854775807 nGpus 99999999"}});
  ExpectRefused(
      ImportNcclTestsText("a.txt", content, {.op = CollectiveOp::kAllToAll})
          .status(),
      "the number of ranks is 4294967296");
}

TEST(NcclTestsJson, IsRead) {
  const auto imported =
      ImportNcclTestsJson("a.json", Sample("nccl_tests.json"));
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(Keys(*imported),
              ElementsAre("all_gather/n2/nccl_symmetric/graph/512B",
                          "all_gather/n2/nccl_symmetric/graph/1024B"));
  EXPECT_THAT(Seconds(*imported), ElementsAre(6.77591e-6, 6.488e-6));
  EXPECT_TRUE(imported->measurements[0].statistics.verified);
  EXPECT_FALSE(imported->measurements[1].statistics.verified);
  EXPECT_EQ(imported->measurements[0].statistics.samples, 20);
  EXPECT_EQ(absl::FormatTime(imported->measurements[0].start_time,
                             absl::UTCTimeZone()),
            "2026-11-29T16:58:21+00:00");
  EXPECT_EQ(*imported->end_time - imported->measurements[0].start_time,
            absl::Seconds(2));
  EXPECT_EQ(imported->gpu_name, "NVIDIA H200");
  EXPECT_EQ(imported->gpu_count, 2);
  EXPECT_EQ(imported->nccl_version, "2.28.3");
  EXPECT_THAT(*imported->nccl_environment,
              ElementsAre("NCCL_NVLS_ENABLE=0", "NCCL_P2P_DISABLE=1"));
}

TEST(NcclTestsJson, ThatIsOffIsRefusedByItsPlace) {
  const std::vector<std::vector<std::string>> cases = {
      {"6.488", "\"x\"", "results[1].out_of_place.time is \"x\"; allowed: a"},
      {"6.488", "0", "results[1].out_of_place.time is 0; allowed: more than 0"},
      {"6.488", "-1", "results[1].out_of_place.time is -1"},
      {"6.488", "1e999", "has a number out of range"},
      {"6.488", "NaN", "is not JSON"},
      {"\"size\": 512", "\"size\": -1", "results[0].size is -1; allowed: a wh"},
      {"\"size\": 512", "\"size\": 1e3", "results[0].size is 1000.0"},
      {"\"nwrong\": 0.000000", "\"nwrong\": 2",
       "results[0].out_of_place.nwrong is 2; allowed: 0"},
      {"\"ngpus\": 2", "\"ngpus\": 0", "config.ngpus is 0"},
      {"\"ngpus\": 2", "\"ngpus\": 1", "config: nthreads x ngpus is 1"},
      {"\"ngpus\": 2", "\"gpus\": 2", "config lacks 'ngpus'"},
      {"\"graph\": 5", "\"graph\": true", "config.graph is true"},
      {"./all_gather_perf", "./gather_perf", "args is"},
      {"2026-11-29 16:58:23", "yesterday", "end_time is \"yesterday\""},
      {"\"args\"", "\"arguments\"", "neither a profile nor JSON of nccl-tests"},
      {"\"rank\": 0", "\"rank\": null", "config.devices[0] lacks 'rank'"},
      {"[\"NCCL_P2P_DISABLE=1\",", "[1,", "env[0] is 1; allowed: a string"},
      {"\"out_of_place\": {\"time\": 6.488", "\"x\": {\"time\": 6.488",
       "results[1] lacks 'out_of_place'"},
  };
  for (const std::vector<std::string>& c : cases) {
    SCOPED_TRACE(c[1]);
    const std::string content =
        absl::StrReplaceAll(Sample("nccl_tests.json"), {{c[0], c[1]}});
    ASSERT_NE(content, Sample("nccl_tests.json"));
    const absl::Status status = ImportNcclTestsJson("a.json", content).status();
    ExpectRefused(status, c[2]);
    ExpectRefused(status, "a.json");
  }
}

TEST(NcclTestsJson, CutOffAnywhereIsRefused) {
  const std::string content = Sample("nccl_tests.json");
  for (size_t size = 0; size + 2 < content.size(); size += 13) {
    ExpectRefused(
        ImportNcclTestsJson("a.json", content.substr(0, size)).status(),
        "a.json is not JSON");
  }
}

TEST(NcclTestsJson, WithNoResultIsRefused) {
  std::string content = Sample("nccl_tests.json");
  const size_t begin = content.find("\"results\": [") + 12;
  content.replace(begin, content.find("],\n\"errors\"") - begin, "");
  ExpectRefused(ImportNcclTestsJson("a.json", content).status(),
                "results is []; allowed: at least one result");
}

TEST(NcclVersionText, ReadsBothNumberings) {
  EXPECT_EQ(NcclVersionText(22803), "2.28.3");
  EXPECT_EQ(NcclVersionText(21005), "2.10.5");
  EXPECT_EQ(NcclVersionText(2804), "2.8.4");
}

}  // namespace
}  // namespace fabricwise
