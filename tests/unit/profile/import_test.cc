// SPDX-License-Identifier: Apache-2.0
#include "server/profile/import.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/profile_file.h"
#include "tests/support/read_file.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::string Sample(const std::string& name) {
  return ReadWholeFile("tests/data/fuzz/import/" + name);
}

absl::StatusOr<ProfileData> Import(const std::string& sample,
                                   ImportOptions options = {}) {
  options.name = "test";
  return AssembleProfile(options, {{"folder/" + sample, Sample(sample)}});
}

std::map<std::string, double> Points(const absl::StatusOr<ProfileData>& data) {
  EXPECT_TRUE(data.ok()) << data.status();
  std::map<std::string, double> points;
  if (!data.ok()) return points;
  for (const Measurement& m : data->measurements) {
    points[ToString(m.key)] = m.statistics.median_seconds;
  }
  return points;
}

void ExpectRefused(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

// Cells of the rows of a Markdown table that follow the line with `head`, marks
// of code dropped.
std::vector<std::vector<std::string>> TableOf(const std::string& text,
                                              const std::string& head) {
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "|")) {
      inside = false;
    } else if (absl::StartsWith(line, head)) {
      inside = true;
    } else if (inside && !absl::StartsWith(line, "|---")) {
      std::vector<std::string>& row = rows.emplace_back();
      for (absl::string_view cell : absl::StrSplit(line, '|')) {
        row.push_back(
            absl::StrReplaceAll(absl::StripAsciiWhitespace(cell), {{"`", ""}}));
      }
    }
  }
  return rows;
}

TEST(ImportCsv, KindsAreThoseOfTheDocument) {
  const std::string text = ReadWholeFile("docs/importing.md");
  std::vector<std::string> documented, known;
  for (const auto& row : TableOf(text, "| table | columns |")) {
    documented.push_back(absl::StrCat(row.at(1), ": ", row.at(2)));
  }
  for (const CsvKind& kind : CsvKinds()) {
    known.push_back(
        absl::StrCat(kind.name, ": ", absl::StrJoin(kind.columns, ",")));
  }
  EXPECT_EQ(documented, known);
}

// Each example of the document is a file that is taken.
TEST(ImportCsv, TakesTheExamplesOfTheDocument) {
  const std::string text = ReadWholeFile("docs/importing.md");
  const std::vector<std::string> parts = absl::StrSplit(text, "```csv\n");
  std::vector<ImportFile> files;
  for (size_t i = 1; i < parts.size(); ++i) {
    files.push_back({absl::StrCat("example", i, ".csv"),
                     parts[i].substr(0, parts[i].find("```"))});
  }
  ASSERT_THAT(files, SizeIs(4));
  const auto data =
      AssembleProfile({.name = "x", .origin = Origin::kMeasured}, files);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(
      Points(data),
      AllOf(Contains(Pair("all_reduce/n8/nccl/graph/14336B", 78e-6)),
            Contains(Pair("gemm/bf16/m16n4096k4096", 9.1e-6)),
            Contains(Pair("experts/bf16/h2048i768e128k8/tp1ep2/t4", 58.3e-6)),
            Contains(Pair("launch/graph_node", 1.03e-6))));
}

TEST(ImportCsv, ReadsASweepByItsComments) {
  const auto data = Import("sweep.csv");
  EXPECT_THAT(Points(data),
              ElementsAre(Pair("all_to_all/n8/nccl/eager/1024B", 9.08e-6),
                          Pair("all_to_all/n8/nccl/eager/512B", 8.98e-6)));
  EXPECT_EQ(data->measurements[0].origin, Origin::kReference);
  EXPECT_EQ(data->measurements[0].source, "sweep.csv, NCCL 2.27.3");
  EXPECT_THAT(data->notes, Contains("sweep.csv: caution: made up"));
  EXPECT_THAT(data->notes, Contains(HasSubstr("hardware: 8x TEST GPU")));
  // Another node's facts are not this node's.
  EXPECT_THAT(data->fingerprint.gpus, IsEmpty());
}

TEST(ImportCsv, ReadsTheEnginesAllReduce) {
  EXPECT_THAT(Points(Import("custom_all_reduce.csv", {.system = "a"})),
              UnorderedElementsAre(
                  Pair("all_reduce/n2/vllm_custom/eager/256B", 44.379e-6),
                  Pair("all_reduce/n2/vllm_custom/graph/256B", 4.379e-6)));
  EXPECT_THAT(Points(Import("custom_all_reduce.csv", {.system = "b"})),
              UnorderedElementsAre(
                  Pair("all_reduce/n4/trtllm/graph/256B", 5.5e-6),
                  Pair("all_reduce/n8/sglang_custom/graph/256B", 6.5e-6)));
}

TEST(ImportCsv, OfSeveralSystemsNeedsToBeToldWhich) {
  ExpectRefused(Import("custom_all_reduce.csv").status(),
                "the system to read is ''; allowed: a, b");
  ExpectRefused(Import("custom_all_reduce.csv", {.system = "c"}).status(),
                "the system to read is 'c'; allowed: a, b");
}

TEST(ImportCsv, ReadsProducts) {
  const auto data = Import("products.csv");
  EXPECT_THAT(Points(data),
              UnorderedElementsAre(Pair("gemm/bf16/m1n512k512", 3.196e-6),
                                   Pair("gemm/fp8/m16n512k512", 3.016e-6)));
  EXPECT_EQ(data->measurements[0].origin, Origin::kMeasured);
  EXPECT_EQ(data->measurements[0].statistics.iqr_seconds, 0.068e-6);
  EXPECT_LT(data->measurements[1].statistics.iqr_seconds, 0);

  const auto other = Import("products_by_system.csv");
  EXPECT_THAT(Points(other), UnorderedElementsAre(
                                 Pair("gemm/bf16/m16n4096k2048", 10.5e-6),
                                 Pair("gemm/fp8_block/m16n4096k2048", 8.5e-6)));
  EXPECT_EQ(other->measurements[0].origin, Origin::kReference);
  EXPECT_EQ(other->measurements[0].source, "products_by_system.csv, torch");
}

TEST(ImportCsv, ReadsExperts) {
  const auto data = Import("experts.csv");
  EXPECT_THAT(
      Points(data),
      ElementsAre(Pair("experts/bf16/h2048i768e128k8/tp1ep2/t4", 58.288e-6)));
  EXPECT_EQ(data->measurements[0].experts.rows_local, 16);
  EXPECT_EQ(data->measurements[0].experts.experts_hit, 15);

  EXPECT_THAT(Points(Import("experts_by_system.csv", {.int4_group_size = 32})),
              UnorderedElementsAre(
                  Pair("experts/int4_group:32/h7168i2048e384k8/tp1ep8/a1.2/t64",
                       120.5e-6),
                  Pair("experts/mxfp4/h7168i2048e384k8/tp8ep1/t64", 121.5e-6)));
}

TEST(ImportCsv, LeavesInt4WithoutAGroupSizeOutAndSaysSo) {
  const auto data = Import("experts_by_system.csv");
  EXPECT_THAT(Points(data), SizeIs(1));
  EXPECT_THAT(
      data->notes,
      Contains("experts_by_system.csv: 1 rows left out: int4 without a stated "
               "group size"));
}

TEST(ImportCsv, ReadsMemoryAndTheCostOfAGraphNode) {
  EXPECT_THAT(Points(Import("memory.csv")),
              UnorderedElementsAre(Pair("memory/copy/1048576B", 1.887e-6),
                                   Pair("memory/read/1048576B", 7.162e-6),
                                   Pair("launch/graph_node", 1.0266e-6)));
}

TEST(ImportCsv, ReadsExchanges) {
  EXPECT_THAT(
      Points(Import("deepep_low_latency.csv")),
      UnorderedElementsAre(
          Pair("exchange/deepep_low_latency/dispatch/n8/h7168e256k8/t128",
               77.5e-6),
          Pair("exchange/deepep_low_latency/combine/n8/h7168e256k8/t128",
               114.25e-6)));
  const auto normal = Import("deepep_normal.csv");
  EXPECT_THAT(
      Points(normal),
      UnorderedElementsAre(
          Pair("exchange/deepep_high_throughput/dispatch/n8/h7168e256k8/t128",
               26.75e-6),
          Pair("exchange/deepep_high_throughput/combine/n8/h7168e256k8/t128",
               30.5e-6)));
  EXPECT_THAT(normal->notes,
              Contains(HasSubstr("1 rows left out: dispatch with 24 SMs")));
  const auto published = Import("deepep_published.csv");
  EXPECT_THAT(
      Points(published),
      UnorderedElementsAre(
          Pair("exchange/deepep_low_latency/dispatch/n16/h7168e256k8/t128",
               118e-6),
          Pair("exchange/deepep_low_latency/combine/n16/h7168e256k8/t128",
               195e-6)));
  ExpectRefused(Import("pplx_published.csv").status(),
                "pplx_published.csv:2: the table says neither hidden size");
}

TEST(ImportCsv, ThatIsOffIsRefusedByLineColumnAndValue) {
  const std::vector<std::vector<std::string>> cases = {
      {"sweep.csv", "op: alltoall", "op: gather", "sweep.csv:4: 'op: ' in the"},
      {"sweep.csv", "ngpus: 8", "gpus: 8", "'ngpus: ' in the comments is ''"},
      {"sweep.csv", "ngpus: 8", "ngpus: 1", "sweep.csv:4: all_to_all/n1"},
      {"sweep.csv", "\n512,", "\n0,", "sweep.csv:4: size_bytes is '0'"},
      {"sweep.csv", "8.980", "0", "sweep.csv:4: time_us is '0'; allowed: a po"},
      {"sweep.csv", "size_bytes", "bytes", "sweep.csv: the set of columns is"},
      {"custom_all_reduce.csv", "a,vllm,", "a,llm,", "framework is 'llm'"},
      {"custom_all_reduce.csv", "vllm_graph", "vllm", "backend is 'vllm'"},
      {"custom_all_reduce.csv", "vllm_graph,2", "vllm_graph,1",
       "custom_all_reduce.csv:3: num_gpus is '1'; allowed: a whole number from "
       "2 to"},
      {"products.csv", "fp8", "fp9", "products.csv:3: dtype is 'fp9'"},
      {"products.csv", "0.068", "-1", "products.csv:2: iqr_us is '-1'"},
      {"experts.csv", ",15,", ",129,", "experts_hit is '129'"},
      {"experts_by_system.csv", "balanced", "zipf", "distribution is 'zipf'"},
      {"experts_by_system.csv", "power_law_1.2", "power_law_x",
       "experts_by_system.csv:2: distribution is 'power_law_x'"},
      {"experts_by_system.csv", "7168,2048,8,384,w4", "7168,2048,385,384,w4",
       "experts_per_token is 385; allowed: 1 to 384"},
      {"memory.csv", "read", "write", "memory.csv:3: op is 'write'"},
      {"deepep_low_latency.csv", "a,1,", "a,0,", "node_num is '0'"},
      {"deepep_published.csv", "hidden 7168, top-8 of 256", "hidden",
       "no comment says 'V1 low-latency: "},
  };
  for (const std::vector<std::string>& c : cases) {
    SCOPED_TRACE(c[0] + ": " + c[2]);
    const std::string content =
        absl::StrReplaceAll(Sample(c[0]), {{c[1], c[2]}});
    ASSERT_NE(content, Sample(c[0]));
    ExpectRefused(
        AssembleProfile({.name = "x", .system = "a", .int4_group_size = 32},
                        {{c[0], content}})
            .status(),
        c[3]);
  }
}

TEST(AssembleProfile, TakesTheNodesFactsFromFilesMeasuredOnIt) {
  const auto data = AssembleProfile(
      {.name = "node"}, {{"a/nccl_tests.json", Sample("nccl_tests.json")},
                         {"b/text.txt", Sample("nccl_tests_2_19_graph.txt")},
                         {"products.csv", Sample("products.csv")}});
  ASSERT_TRUE(data.ok()) << data.status();
  ASSERT_THAT(data->fingerprint.gpus, SizeIs(2));
  EXPECT_EQ(data->fingerprint.gpus[1].name, "NVIDIA H200");
  EXPECT_EQ(data->fingerprint.nccl_version, "2.28.3");
  EXPECT_THAT(data->fingerprint.nccl_environment,
              ElementsAre("NCCL_NVLS_ENABLE=0", "NCCL_P2P_DISABLE=1"));
  EXPECT_EQ(absl::FormatTime(data->as_of, absl::UTCTimeZone()),
            "2026-11-29T16:58:23+00:00");
  ASSERT_THAT(data->measurements, SizeIs(7));
  for (const Measurement& m : data->measurements) {
    EXPECT_EQ(m.fingerprint_id, FingerprintId(data->fingerprint));
  }
  // In order of curves and of sizes in each.
  EXPECT_EQ(ToString(data->measurements[0].key),
            "all_gather/n2/nccl_symmetric/graph/512B");
  EXPECT_EQ(ToString(data->measurements[1].key),
            "all_gather/n2/nccl_symmetric/graph/1024B");
  EXPECT_EQ(ToString(data->measurements[6].key), "gemm/fp8/m16n512k512");
}

TEST(AssembleProfile, RefusesFactsThatContradict) {
  const ImportFile json{"a.json", Sample("nccl_tests.json")};
  const auto assemble = [&](Fingerprint fingerprint) {
    return AssembleProfile({.name = "x", .fingerprint = fingerprint}, {json})
        .status();
  };
  ExpectRefused(assemble({.gpus = {{"NVIDIA B200"}, {"NVIDIA B200"}}}),
                "a.json: the GPU is 'NVIDIA H200'; allowed: 'NVIDIA B200', "
                "that of the profile");
  ExpectRefused(assemble({.nccl_version = "2.27.1"}),
                "a.json: NCCL's version is '2.28.3'");
  ExpectRefused(assemble({.nccl_environment = {"NCCL_SHM_DISABLE=1"}}),
                "a.json: NCCL's environment is 'NCCL_NVLS_ENABLE=0 "
                "NCCL_P2P_DISABLE=1'; allowed: 'NCCL_SHM_DISABLE=1'");
  ExpectRefused(assemble({.gpus = {{"NVIDIA H200"}}}), "the group is 2");
  // Two fabrics of one box do not mix unseen.
  ImportFile other{"b.json", absl::StrReplaceAll(
                                 json.content, {{"P2P_DISABLE", "X_DISABLE"}})};
  ExpectRefused(AssembleProfile({.name = "x"}, {json, other}).status(),
                "b.json: NCCL's environment is");
  // What another node ran is no fact of this one.
  EXPECT_TRUE(AssembleProfile({.name = "x",
                               .fingerprint = {.nccl_version = "2.27.1"},
                               .origin = Origin::kReference},
                              {json})
                  .ok());
}

TEST(AssembleProfile, StampsWhatHasNoTimeAndMarksTheOrigin) {
  const absl::Time time = absl::FromUnixSeconds(1'790'000'000);
  const auto data =
      AssembleProfile({.name = "x", .origin = Origin::kMeasured, .time = time},
                      {{"sweep.csv", Sample("sweep.csv")}});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->measurements[0].start_time, time);
  EXPECT_EQ(data->measurements[0].origin, Origin::kMeasured);
  EXPECT_EQ(data->as_of, time);
}

TEST(AssembleProfile, TakesTheMeasurementsOfAnotherProfile) {
  const auto first = Import("memory.csv");
  ASSERT_TRUE(first.ok());
  const auto second = AssembleProfile(
      {.name = "x"},
      {{"p.json", WriteProfile(*first)}, {"sweep.csv", Sample("sweep.csv")}});
  EXPECT_THAT(Points(second), SizeIs(5));
}

TEST(AssembleProfile, TakesTheNodeOfAnotherProfile) {
  auto node = Import("memory.csv");
  ASSERT_TRUE(node.ok());
  node->fingerprint = {.gpus = {{"NVIDIA H200", "", 1}, {"NVIDIA H200"}},
                       .driver_version = "580.1",
                       .nccl_version = "2.28.3",
                       .nccl_environment = {"NCCL_NVLS_ENABLE=0"},
                       .fabric = "nvlink",
                       .peer_access = {{false, true}, {true, false}},
                       .nvlinks = {{0, 18}, {18, 0}},
                       .facts = {"acs=off"}};
  for (Measurement& m : node->measurements) m.origin = Origin::kMeasured;
  const ImportFile file{"p.json", WriteProfile(*node)};
  const ImportFile products{"products.csv", Sample("products.csv")};
  const auto both = AssembleProfile({.name = "x"}, {file, products});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->fingerprint, node->fingerprint);

  const auto refused = [&](const Fingerprint& stated) {
    return AssembleProfile({.name = "x", .fingerprint = stated}, {file})
        .status();
  };
  ExpectRefused(refused({.fabric = "shm"}),
                "p.json: the fabric is 'nvlink'; allowed: 'shm', that of the "
                "profile");
  ExpectRefused(refused({.nvlinks = {{0, 0}, {0, 0}}}),
                "p.json: the count of NVLinks is '0 18; 18 0'; allowed: "
                "'0 0; 0 0'");
  ExpectRefused(refused({.gpus = {{"NVIDIA B200"}, {"NVIDIA B200"}}}),
                "p.json: the GPU is 'NVIDIA H200'");
}

TEST(AssembleProfile, TakesNoOtherNumberOfGpusThanAProfilesNodeHas) {
  auto node = Import("memory.csv");
  ASSERT_TRUE(node.ok());
  node->fingerprint = {.gpus = {{"NVIDIA H200", "u", 1, 90},
                                {"NVIDIA H200", "v", 1, 90},
                                {"NVIDIA H200", "w", 1, 90}}};
  for (Measurement& m : node->measurements) m.origin = Origin::kMeasured;
  const ImportFile three{"three.json", WriteProfile(*node)};
  const auto assemble = [&](size_t stated,
                            const std::vector<ImportFile>& files) {
    return AssembleProfile(
        {.name = "x", .fingerprint = {.gpus = std::vector<Gpu>(stated)}},
        files);
  };
  for (const size_t stated : {size_t{2}, size_t{8}}) {
    ExpectRefused(
        assemble(stated, {three}).status(),
        absl::StrCat("gpus is ", stated, "; allowed: 3, those of three.json"));
  }
  // What was stated of them, and what the file knows beside it.
  const auto same = assemble(3, {three});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->fingerprint.gpus, node->fingerprint.gpus);

  node->fingerprint.gpus.pop_back();
  const ImportFile two{"two.json", WriteProfile(*node)};
  ExpectRefused(assemble(0, {three, two}).status(),
                "two.json: the number of GPUs is 2; allowed: 3, that of the "
                "profile");
  // A run of nccl-tests may be of some of the node's.
  const ImportFile group{"group.json", Sample("nccl_tests.json")};
  for (const auto& files :
       {std::vector{group, three}, std::vector{three, group}}) {
    const auto both = assemble(0, files);
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_THAT(both->fingerprint.gpus, SizeIs(3));
  }
}

TEST(AssembleProfile, TakesFilesThatBeginWithAByteOrderMark) {
  const std::string mark = "\xEF\xBB\xBF";
  const auto table = AssembleProfile(
      {.name = "x"},
      {{"m.csv", mark + "op,bytes,time_us\nread,1048576,1.5\n"}});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->measurements, SizeIs(1));
  const auto profile =
      AssembleProfile({.name = "x"}, {{"p.json", mark + WriteProfile(*table)}});
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_THAT(profile->measurements, SizeIs(1));
  ExpectRefused(AssembleProfile({.name = "x"}, {{"e.csv", mark}}).status(),
                "e.csv: is empty");
}

TEST(AssembleProfile, RefusesWhatIsNoMeasuredFile) {
  const auto assemble = [](const std::string& content) {
    return AssembleProfile({.name = "x"}, {{"a/b.txt", content}}).status();
  };
  ExpectRefused(assemble(""), "b.txt: is empty");
  ExpectRefused(assemble(" \n\t"), "b.txt: is empty");
  ExpectRefused(assemble("hello\n"), "b.txt:1: has no rows");
  ExpectRefused(assemble("a,b\n1,2\n"), "the set of columns is 'a,b'; allowed");
  ExpectRefused(assemble("{}"), "b.txt: is neither a profile nor JSON of nccl");
  ExpectRefused(assemble("[1]"), "b.txt:1: the last line does not end");
  ExpectRefused(assemble(std::string(kMaxImportBytes + 1, 'x')),
                "b.txt: its length is 67108865 bytes");
  ExpectRefused(AssembleProfile({.name = "x"}, {}).status(), "files is empty");
  ExpectRefused(AssembleProfile({}, {{"a", "b"}}).status(), "name is ''");
}

}  // namespace
}  // namespace fabricwise
