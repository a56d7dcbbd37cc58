// SPDX-License-Identifier: Apache-2.0
#include "server/domain/measurement.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

void ExpectInvalid(const absl::Status& status, const std::string& part) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

std::vector<std::pair<MeasurementKey, std::string>> KeysAndTexts() {
  return {
      {CollectiveKey{.group = {.size = 2}, .size_bytes = 16384},
       "all_reduce/n2/nccl/graph/16384B"},
      {CollectiveKey{.op = CollectiveOp::kAllToAll,
                     .group = {.size = 4, .members = "a:0,1;b:0,1"},
                     .implementation = CollectiveImpl::kNcclSymmetric,
                     .launch = Launch::kEager,
                     .concurrent_groups = 2,
                     .skew_alpha = 0.8,
                     .size_bytes = kMaxKeySize},
       "all_to_all/n4[a:0,1;b:0,1]/nccl_symmetric/eager/x2/a0.8/"
       "9007199254740992B"},
      {CollectiveKey{.group = {.size = 2},
                     .implementation = CollectiveImpl::kOneShot,
                     .launch = Launch::kGraphInterleaved,
                     .size_bytes = 4096},
       "all_reduce/n2/one_shot/graph+gemm/4096B"},
      {GemmKey{.format = NumberFormat::kFp8, .m = 16, .n = 4096, .k = 2048},
       "gemm/fp8/m16n4096k2048"},
      {ExpertsKey{.format = {NumberFormat::kInt4Group, 32},
                  .hidden_size = 7168,
                  .intermediate_size = 2048,
                  .num_experts = 384,
                  .experts_per_token = 8,
                  .expert_parallel = 8,
                  .skew_alpha = 1.2,
                  .tokens = 64},
       "experts/int4_group:32/h7168i2048e384k8/tp1ep8/a1.2/t64"},
      {AttentionKey{.latent = true,
                    .batch = 8,
                    .context_tokens = 2048,
                    .q_heads = 128,
                    .kv_heads = 1,
                    .head_dim = 576},
       "attention/mla/bf16/b8q1c2048/h128kv1d576"},
      {AttentionKey{.batch = 1,
                    .query_tokens = 512,
                    .context_tokens = 512,
                    .q_heads = 32,
                    .kv_heads = 8,
                    .head_dim = 128},
       "attention/gqa/bf16/b1q512c512/h32kv8d128"},
      {MemoryKey{.op = MemoryOp::kCopy, .size_bytes = 1048576},
       "memory/copy/1048576B"},
      {LaunchKey{}, "launch/graph_node"},
      {ExchangeKey{.implementation = ExchangeImpl::kPplx,
                   .stage = ExchangeStage::kCombine,
                   .group = {.size = 8},
                   .hidden_size = 7168,
                   .num_experts = 256,
                   .experts_per_token = 8,
                   .tokens_per_rank = 128},
       "exchange/pplx/combine/n8/h7168e256k8/t128"},
  };
}

TEST(MeasurementKeyText, IsCanonicalAndReadsBackExactly) {
  for (const auto& [key, text] : KeysAndTexts()) {
    EXPECT_EQ(ToString(key), text);
    const auto parsed = ParseMeasurementKey(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, key) << text;
    EXPECT_TRUE(Validate(key).ok()) << text;
  }
}

TEST(MeasurementKeyText, NamesEveryEnumValue) {
  for (const absl::string_view op :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
        "send_recv"}) {
    EXPECT_EQ(ToString(ParseCollectiveOp(op).value()), op);
  }
  for (const absl::string_view impl :
       {"nccl", "nccl_symmetric", "one_shot", "two_shot", "vllm_custom",
        "sglang_custom", "trtllm"}) {
    EXPECT_EQ(ToString(ParseCollectiveImpl(impl).value()), impl);
  }
  for (const absl::string_view launch : {"graph", "eager"}) {
    EXPECT_EQ(ToString(ParseLaunch(launch).value()), launch);
  }
  for (const absl::string_view origin : {"measured", "reference"}) {
    EXPECT_EQ(ToString(ParseOrigin(origin).value()), origin);
  }
  for (const absl::string_view reason :
       {"unknown", "good", "settled_noisy", "out_of_budget"}) {
    EXPECT_EQ(ToString(ParseStopReason(reason).value()), reason);
  }
  EXPECT_EQ(ToString(MemoryOp::kRead), "read");
  EXPECT_EQ(ToString(ExchangeImpl::kDeepEpHighThroughput),
            "deepep_high_throughput");
  EXPECT_EQ(ToString(ExchangeStage::kDispatch), "dispatch");
  ExpectInvalid(ParseOrigin("guessed").status(),
                "origin is 'guessed'; allowed: measured, reference");
  ExpectInvalid(ParseStopReason("").status(), "stop reason is ''");
}

TEST(MeasurementKeyText, OfASkewReadsBackTheSameDouble) {
  for (const double alpha : {0.1, 1.0 / 3, 1e-9, 99.5}) {
    const CollectiveKey key{
        .group = {.size = 2}, .skew_alpha = alpha, .size_bytes = 1};
    const auto parsed = ParseMeasurementKey(ToString(MeasurementKey(key)));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(std::get<CollectiveKey>(*parsed).skew_alpha, alpha);
  }
}

TEST(MeasurementKeyText, ThatIsOffIsRefusedByItsPart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "family is ''; allowed: a collective's name, gemm"},
      {"all_reduced/n2/nccl/graph/1B", "family is 'all_reduced'"},
      {"all_reduce", "group is ''"},
      {"all_reduce/2/nccl/graph/1B", "group is '2'; allowed: as 'n2'"},
      {"all_reduce/n2[0,1/nccl/graph/1B", "group is 'n2[0,1'"},
      {"all_reduce/nx/nccl/graph/1B", "group size is 'x'"},
      {"all_reduce/n1/nccl/graph/1B", "group.size is 1; allowed: 2 to 65536"},
      {"all_reduce/n2[0,1,2]/nccl/graph/1B", "names 3 GPUs"},
      {"all_reduce/n2[0, 1]/nccl/graph/1B", "allowed: letters, digits"},
      {"all_reduce/n2/mpi/graph/1B", "implementation is 'mpi'"},
      {"all_reduce/n2/nccl/graf/1B", "launch is 'graf'; allowed: graph, eager"},
      {"all_reduce/n2/nccl/graph/1", "size is '1'"},
      {"all_reduce/n2/nccl/graph/0B", "size_bytes is 0; allowed: 1 to"},
      {"all_reduce/n2/nccl/graph/-1B", "size_bytes is -1"},
      {"all_reduce/n2/nccl/graph/9223372036854775807B", "size_bytes is 9223"},
      {"all_reduce/n2/nccl/graph/9223372036854775808B", "size is"},
      {"all_reduce/n2/nccl/graph/1B/1B", "'1B' follows its end"},
      {"all_reduce/n2/nccl/graph/x0/1B", "concurrent_groups is 0"},
      {"all_reduce/n2/nccl/graph/x99999999999/1B", "concurrent groups is"},
      {"all_reduce/n2/nccl/graph/x1/1B", "is not canonical; allowed: all_re"},
      {"all_reduce/n2/nccl/graph/a0.50/1B", "is not canonical"},
      {"all_reduce/n2/nccl/graph/a1e3/1B", "skew_alpha is 1000"},
      {"all_reduce/n2/nccl/graph/a1x/1B", "skew is '1x'"},
      {"all_reduce/n2/nccl/graph/01B", "is not canonical"},
      {"gemm/f64/m1n1k1", "f64"},
      {"gemm/bf16/m1n1", "'m1n1' lacks a 64-bit number after 'k'"},
      {"gemm/bf16/m1n1k1z", "'z' behind its numbers"},
      {"gemm/bf16/m0n1k1", "m is 0"},
      {"gemm/bf16/m99999999999999999999n1k1", "after 'm'"},
      {"experts/bf16:x/h1i1e1k1/tp1ep1/t1", "format group is 'x'"},
      {"experts/bf16:8/h1i1e1k1/tp1ep1/t1", "group_size is 8; allowed: 0 to 0"},
      {"experts/int4_group/h1i1e1k1/tp1ep1/t1", "group_size is 0"},
      {"experts/bf16/h1i1e1k2/tp1ep1/t1", "experts_per_token is 2"},
      {"experts/bf16/h1i1e8k2/tp1ep9/t1", "expert_parallel is 9"},
      {"experts/bf16/h1i1e8k2/tp1ep1/a101/t1", "skew_alpha is 101"},
      {"attention/mqa/bf16/b1q1c1/h1kv1d1", "attention is 'mqa'"},
      {"attention/gqa/bf16/b1q1c1/h1kv0d1", "kv_heads is 0"},
      {"attention/gqa/bf16/b1q8c7/h1kv1d1", "query_tokens is 8"},
      {"memory/write/1B", "memory operation is 'write'"},
      {"memory/read/0B", "size_bytes is 0"},
      {"launch/kernel", "launch is 'kernel'; allowed: graph_node"},
      {"exchange/nixl/dispatch/n8/h1e1k1/t1", "exchange is 'nixl'"},
      {"exchange/pplx/scatter/n8/h1e1k1/t1", "exchange stage is 'scatter'"},
      {"exchange/pplx/combine/n8/h1e1k1/t0", "tokens_per_rank is 0"},
      {"exchange/pplx/combine/n8/h1e1k2/t1", "experts_per_token is 2"},
  };
  for (const auto& [text, part] : cases) {
    SCOPED_TRACE(text);
    const absl::Status status = ParseMeasurementKey(text).status();
    ExpectInvalid(status, part);
    ExpectInvalid(status, "measurement key '" + text + "': ");
  }
}

TEST(MeasurementKey, WithASkewThatIsNoNumberIsInvalid) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectInvalid(Validate(CollectiveKey{
                    .group = {.size = 2}, .skew_alpha = nan, .size_bytes = 1}),
                "skew_alpha is nan; allowed: 0 to 100");
}

Measurement Good() {
  return {.key = LaunchKey{}, .statistics = {.median_seconds = 1e-6}};
}

TEST(Measurement, IsValidWithoutSpread) { EXPECT_TRUE(Validate(Good()).ok()); }

TEST(Measurement, WithAnImpossibleStatisticIsRefusedByKeyAndField) {
  const double inf = std::numeric_limits<double>::infinity();
  Measurement m = Good();
  m.statistics.median_seconds = 0;
  ExpectInvalid(Validate(m), "launch/graph_node: median_seconds is 0");
  m.statistics.median_seconds = inf;
  ExpectInvalid(Validate(m), "median_seconds is inf");
  m = Good();
  m.statistics.iqr_seconds = inf;
  ExpectInvalid(Validate(m), "iqr_seconds is inf");
  m.statistics = {.median_seconds = 1e-300, .iqr_seconds = 1e300};
  ExpectInvalid(Validate(m), "iqr_seconds over median_seconds is inf");
  m = Good();
  m.statistics.p99_seconds = -inf;
  ExpectInvalid(Validate(m), "p99_seconds is -inf");
  m = Good();
  m.statistics.sm_clock_hertz = std::nan("");
  ExpectInvalid(Validate(m), "sm_clock_hertz is nan");
  m = Good();
  m.statistics.samples = -1;
  ExpectInvalid(Validate(m), "samples is -1; allowed: 0 to");
  m = Good();
  m.statistics.discarded = kMaxKeySize + 1;
  ExpectInvalid(Validate(m), "discarded is 9007199254740993");
  m = Good();
  m.key = GemmKey{};
  ExpectInvalid(Validate(m), "gemm/bf16/m0n0k0: m is 0");
}

TEST(RelativeSigma, ComesFromTheInterquartileRange) {
  // A normal distribution of mean 10 us and sigma 1 us.
  EXPECT_NEAR(RelativeSigma({.median_seconds = 10e-6, .iqr_seconds = 1.349e-6}),
              0.1, 1e-5);
  EXPECT_EQ(RelativeSigma({.median_seconds = 10e-6, .iqr_seconds = 0}), 0);
}

TEST(RelativeSigma, OfAPointWithoutSpreadIsTheStatedOne) {
  EXPECT_EQ(RelativeSigma({.median_seconds = 10e-6}), kUnrecordedSigma);
}

}  // namespace
}  // namespace fabricwise
