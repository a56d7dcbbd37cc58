// SPDX-License-Identifier: Apache-2.0
//
// Every case on whatever GPUs are here: right on fresh random inputs, at sizes
// that are no powers of two as well, in graphs replayed many times.
#include "gtest/gtest.h"
#include "kernels/timed_loop.h"

namespace fabricwise {
namespace {

class CasesTest : public testing::TestWithParam<const char*> {};

TEST_P(CasesTest, IsRightBeforeAndAfterManyReplays) {
  auto node = Node::Create({});
  if (!node.ok()) GTEST_SKIP() << node.status().message();
  const auto key = ParseMeasurementKey(GetParam());
  ASSERT_TRUE(key.ok()) << key.status();
  const auto benchmark = MakeCase(*key, **node);
  if (absl::IsFailedPrecondition(benchmark.status())) {
    GTEST_SKIP() << benchmark.status().message();
  }
  ASSERT_TRUE(benchmark.ok()) << benchmark.status();
  const auto statistics =
      TimeCase(**benchmark, **node,
               {.launch = std::holds_alternative<CollectiveKey>(*key)
                              ? std::get<CollectiveKey>(*key).launch
                              : Launch::kGraph});
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_GT(statistics->median_seconds, 0);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const absl::Status right = (*benchmark)->Verify(seed);
    EXPECT_TRUE(right.ok()) << right;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Keys, CasesTest,
    testing::Values(
        "all_reduce/n2/nccl/graph/16384B", "all_reduce/n2/nccl/graph/16400B",
        "all_gather/n2/nccl/graph/65536B",
        "reduce_scatter/n2/nccl/graph/65536B",
        "all_to_all/n2/nccl/graph/65536B", "send_recv/n2/nccl/graph/65536B",
        "all_reduce/n2/nccl/graph+gemm/16384B",
        "all_reduce/n2/one_shot/graph+gemm/16384B",
        "all_to_all/n2/nccl/graph/a1/1000000B",
        "all_reduce/n2/one_shot/graph/16384B",
        "all_reduce/n2/one_shot/graph/1000000B",
        "all_reduce/n2/two_shot/graph/16384B",
        "all_reduce/n2/two_shot/graph/1000000B",
        "all_to_all/n2/one_shot/graph/16384B",
        "all_to_all/n2/one_shot/graph/1000000B", "memory/read/1048576B",
        "memory/read/1000000B", "memory/copy/67108864B", "gemm/bf16/m1n512k512",
        "gemm/bf16/m37n1000k264", "gemm/fp8/m16n1024k1024",
        "experts/bf16/h256i192e16k4/tp1ep1/t1",
        "experts/bf16/h264i96e16k4/tp2ep2/t37",
        "experts/bf16/h512i768e8k2/tp1ep1/a1/t300",
        "experts/bf16/h1024i1536e4k2/tp1ep1/t1000",
        "experts/fp8_block/h256i128e16k4/tp1ep1/t1",
        "experts/fp8_block/h384i512e16k4/tp2ep2/t37",
        "experts/fp8_block/h512i768e8k2/tp1ep1/a1/t300",
        "experts/fp8_block/h1024i1536e4k2/tp1ep1/t1000",
        "attention/gqa/bf16/b1q1c1/h8kv1d64",
        "attention/gqa/bf16/b3q1c777/h14kv2d64",
        "attention/gqa/bf16/b2q1c5000/h32kv8d128",
        "attention/gqa/bf16/b5q1c130/h20kv1d128",
        "attention/gqa/bf16/b2q1c1000/h4kv4d256",
        "attention/mla/bf16/b3q1c2000/h16kv1d576",
        "attention/mla/bf16/b2q1c1111/h40kv1d576",
        "attention/mla/bf16/b1q1c3000/h128kv1d576",
        "attention/gqa/bf16/b1q2c2/h8kv1d64",
        "attention/gqa/bf16/b3q100c777/h14kv2d64",
        "attention/gqa/bf16/b2q1000c1000/h32kv8d128",
        "attention/gqa/bf16/b1q130c5000/h4kv1d128",
        "attention/gqa/bf16/b2q333c1000/h4kv4d256",
        "attention/mla/bf16/b2q700c1111/h16kv1d576", "launch/graph_node"));

}  // namespace
}  // namespace fabricwise
