// SPDX-License-Identifier: Apache-2.0
#include "server/profile/profile_file.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

// Something of everything that a profile can hold.
ProfileData Full() {
  ProfileData data;
  data.name = "node \"7\"";
  data.as_of = absl::FromUnixNanos(1'790'000'000'123'456'789);
  data.fingerprint = {
      .gpus = {{"GPU", "GPU-1", 150'000'000'000, 90}, {.name = "GPU"}},
      .driver_version = "580.1",
      .cuda_version = "13.0",
      .nccl_version = "2.28.3",
      .nccl_environment = {"NCCL_P2P_DISABLE=1"},
      .fabric = "shm",
      .peer_access = {{true, false}, {false, true}},
      .nvlinks = {{0, 18}, {18, 0}},
      .facts = {"ecc=on"}};
  data.notes = {"a note\nof two lines", "\xc3\xa9"};
  const CollectiveKey key{.group = {.size = 2}};
  for (const int64_t size : {512, 1024}) {
    CollectiveKey sized = key;
    sized.size_bytes = size;
    data.measurements.push_back(
        {.key = sized,
         .statistics = {.median_seconds = 1e-6 / 3 * static_cast<double>(size),
                        .samples = 100'000},
         .source = "a",
         .start_time = absl::FromUnixMillis(1'790'000'000'001)});
  }
  data.measurements[1].statistics.iqr_seconds = 0;
  data.measurements[1].start_time += absl::Nanoseconds(20'000'001);
  data.measurements.push_back({.key = LaunchKey{},
                               .statistics = {.median_seconds = 1e-6,
                                              .iqr_seconds = 1e-9,
                                              .p99_seconds = 2e-6,
                                              .samples = 5,
                                              .discarded = 2,
                                              .discard_reason = "throttled",
                                              .stop_reason = StopReason::kGood,
                                              .verified = true,
                                              .sm_clock_hertz = 1.98e9},
                               .origin = Origin::kReference,
                               .source = "b",
                               .fingerprint_id = "0123456789abcdef"});
  data.measurements.push_back(
      {.key = ExpertsKey{.format = {NumberFormat::kInt4Group, 32},
                         .hidden_size = 7168,
                         .intermediate_size = 2048,
                         .num_experts = 384,
                         .experts_per_token = 8,
                         .skew_alpha = 1.2,
                         .tokens = 64},
       .statistics = {.median_seconds = 1e-4},
       .experts = {.rows_local = 10'000'000, .experts_hit = 0}});
  data.measurements.push_back({.key = AttentionKey{.batch = 8,
                                                   .context_tokens = 2048,
                                                   .q_heads = 32,
                                                   .kv_heads = 8,
                                                   .head_dim = 128},
                               .statistics = {.median_seconds = 1e-4}});
  data.measurements.push_back({.key = GemmKey{.m = 16, .n = 512, .k = 1024},
                               .statistics = {.median_seconds = 4.9e-324}});
  data.measurements.push_back(
      {.key = MemoryKey{.size_bytes = kMaxKeySize},
       .statistics = {.median_seconds = std::numeric_limits<double>::max()}});
  data.measurements.push_back({.key = ExchangeKey{.group = {.size = 8},
                                                  .hidden_size = 7168,
                                                  .num_experts = 256,
                                                  .experts_per_token = 8,
                                                  .tokens_per_rank = 128},
                               .statistics = {.median_seconds = 1e-4}});
  return data;
}

TEST(ProfileFile, ReadsBackExactly) {
  const ProfileData data = Full();
  const auto back = ReadProfile("p.json", WriteProfile(data));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->name, data.name);
  EXPECT_EQ(back->as_of, data.as_of);
  EXPECT_EQ(back->fingerprint, data.fingerprint);
  EXPECT_EQ(back->notes, data.notes);
  EXPECT_EQ(back->measurements, data.measurements);
  EXPECT_EQ(WriteProfile(*back), WriteProfile(data));
}

TEST(ProfileFile, OfNothingReadsBack) {
  const ProfileData data{.name = "empty"};
  const auto back = ReadProfile("p.json", WriteProfile(data));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->measurements.empty());
}

TEST(ProfileFile, PutsOnePointALine) {
  EXPECT_THAT(
      WriteProfile(Full()),
      HasSubstr("{\"key\": \"all_reduce/n2/nccl/graph/*B\", \"source\": \"a\", "
                "\"start_time\": \"2026-09-21T14:13:20.001+00:00\", "
                "\"columns\": [\"*\", \"median_seconds\", \"iqr_seconds\", "
                "\"samples\", \"start_after_nanoseconds\"], \"points\": [\n"
                "  [512, 0.00017066666666666665, null, 100000, null],\n"
                "  [1024, 0.0003413333333333333, 0, 100000, 20000001]]},\n"));
}

TEST(ProfileFile, TimesThatAreNoWholeNanosecondsApartReadBack) {
  ProfileData data = Full();
  data.measurements[1].start_time =
      data.measurements[0].start_time - absl::Nanoseconds(1) / 4;
  const auto back = ReadProfile("p.json", WriteProfile(data));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->measurements, data.measurements);
}

TEST(ProfileFile, APointMayBeginBeforeTheOnesAboveIt) {
  ProfileData data = Full();
  data.measurements[1].start_time =
      data.measurements[0].start_time - absl::Seconds(7);
  const auto back = ReadProfile("p.json", WriteProfile(data));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->measurements, data.measurements);
}

TEST(ProfileFile, PutsTheCurvesTogetherOfATableMeasuredRowByRow) {
  ProfileData data{.name = "table"};
  for (const int64_t m : {1, 16, 64}) {
    for (const int64_t n : {512, 1024}) {
      data.measurements.push_back({.key = GemmKey{.m = m, .n = n, .k = 256},
                                   .statistics = {.median_seconds = 1e-6}});
    }
  }
  const std::string text = WriteProfile(data);
  EXPECT_THAT(text, HasSubstr("[1, 1e-06],\n  [16, 1e-06],\n  [64, 1e-06]]"));
  const auto back = ReadProfile("p.json", text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(back->measurements,
              testing::UnorderedElementsAreArray(data.measurements));
  EXPECT_EQ(WriteProfile(*back), text);
}

TEST(ProfileFile, OfTheFirstVersionIsRead) {
  ProfileData data = Full();
  data.measurements[1].start_time = data.measurements[0].start_time;
  const auto back = ReadProfile(
      "p.json", absl::StrReplaceAll(WriteProfile(data),
                                    {{"\"version\": 2", "\"version\": 1"}}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->measurements, data.measurements);
}

TEST(ProfileFile, OfANewerVersionIsRefusedWithAClearWord) {
  const std::string text = absl::StrReplaceAll(
      WriteProfile(Full()), {{"\"version\": 2", "\"version\": 3"}});
  const absl::Status status = ReadProfile("p.json", text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "p.json: version: the file is of version 3; this program reads up "
            "to 2: update it, or export the profile with an older one");
}

TEST(ProfileFile, ThatIsOffIsRefusedByItsPlace) {
  const std::vector<std::vector<std::string>> cases = {
      {"fabricwise.profile", "other",
       "format is \"other\"; allowed: fabricwise"},
      {"\"format\"", "\"kind\"", "the file lacks 'format'"},
      {"\"version\": 2", "\"version\": 0", "version is 0"},
      {"\"version\": 2", "\"version\": \"1\"", "version is \"1\""},
      {"\"version\": 2", "\"version\": 99999999999999999999",
       "version is 1e+20"},
      {"\"version\": 2", "\"version\": 18446744073709551615",
       "version is 18446744073709551615"},
      {"\"notes\"", "\"note\"", "the file has the unknown field 'note'"},
      {"\"uuid\"", "\"id\"", "fingerprint.gpus[0] has the unknown field 'id'"},
      {"\"uuid\": \"GPU-1\"", "\"uuid\": 1",
       "gpus[0].uuid is 1; allowed: a st"},
      {"\"driver_version\"", "\"driver\"", "fingerprint has the unknown field"},
      {"\"memory_bytes\": 150", "\"memory_bytes\": -150",
       "memory_bytes is -15"},
      {"\"compute_capability\": 90", "\"compute_capability\": 1e1",
       "compute_capability is 10.0; allowed: a whole number"},
      {"[[1, 0], [0, 1]]", "[[1, 0], [0]]",
       "peer_access[1] is [0]; allowed: 2"},
      {"[[1, 0], [0, 1]]", "[[1, 0], [0, 2]]", "peer_access[1][1] is 2"},
      {"[[1, 0], [0, 1]]", "7", "peer_access is 7; allowed: an array"},
      {"2026-09-21T14:13:20.001", "9999-12-31T23:59:59.999",
       "allowed: a time before the year 10000"},
      {"2026-09-21T14:13:20.001", "yesterday", "start_time is \"yesterday"},
      {"2026-09-21T14:13:20.001", "1969-09-21T14:13:20", "from 1970 to 9999"},
      {"\"origin\": \"reference\"", "\"origin\": \"guess\"",
       "measurements[1].origin: origin is 'guess'; allowed: measured, refer"},
      {"\"stop_reason\": \"good\"", "\"stop_reason\": \"bad\"",
       "measurements[1].stop_reason: stop reason is 'bad'"},
      {"\"verified\": true", "\"verified\": 1",
       "measurements[1].verified is 1; allowed: true or false"},
      {"graph/*B", "graph/B", "measurements[0].points[0][0] is 512"},
      {"graph/*B", "*/*B", "measurements[0].key is"},
      {"graph/*B", "grap/*B", "measurements[0].points[0]: measurement key"},
      {"[\"*\", \"median_seconds\", \"iqr_seconds\", \"samples\", ",
       "[\"*\", \"samples\", ", "measurements[0].columns is"},
      {"[\"*\", \"median_seconds\", \"iqr_seconds\", \"samples\", ",
       "[\"*\", \"median_seconds\", \"samples\", \"samples\", ",
       "each at most"},
      {"[\"*\", \"median_seconds\", \"iqr_seconds\", \"samples\", ",
       "[\"*\", \"median_seconds\", \"mood\", \"samples\", ", "columns is"},
      {"[512, ", "[", "measurements[0].points[0] is"},
      {"[512, ", "[-512, ", "points[0][0] is -512"},
      {"[512, ", "[0, ", "size_bytes is 0"},
      {"[512, ", "[512.5, ", "points[0][0] is 512.5"},
      {"0.00017066666666666665", "-1",
       "points[0][1] is -1; allowed: 0 or more"},
      {"0.00017066666666666665", "0", "median_seconds is 0; allowed: positive"},
      {"0.00017066666666666665", "null", "points[0][1] is null"},
      {"0.00017066666666666665", "1e999", "a number out of range"},
      {"0.00017066666666666665", "NaN", "is not JSON: error at byte"},
      {"null, 100000", "null, -1", "points[0][3] is -1; allowed: a whole"},
      {"\"name\": \"node", "\"name\": \"x\", \"name\": \"node",
       "the key 'name' twice"},
  };
  for (const std::vector<std::string>& c : cases) {
    SCOPED_TRACE(c[1]);
    const std::string text =
        absl::StrReplaceAll(WriteProfile(Full()), {{c[0], c[1]}});
    ASSERT_NE(text, WriteProfile(Full()));
    const absl::Status status = ReadProfile("p.json", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c[2]));
    EXPECT_THAT(std::string(status.message()), HasSubstr("p.json"));
  }
}

TEST(ProfileFile, CutOffAnywhereIsRefused) {
  const std::string text = WriteProfile(Full());
  for (size_t size = 0; size + 2 < text.size(); ++size) {
    const absl::Status status =
        ReadProfile("p.json", text.substr(0, size)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

TEST(ProfileFile, NestedDeeplyOrTooLongIsRefused) {
  const absl::Status deep =
      ReadProfile("p.json", std::string(1'000'000, '[')).status();
  EXPECT_EQ(deep.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(deep.message()), HasSubstr("nested 1000000 deep"));
  const absl::Status large =
      ReadProfile("p.json", std::string(kMaxProfileBytes + 1, ' ')).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(large.message()), HasSubstr("16777217 bytes long"));
}

}  // namespace
}  // namespace fabricwise
