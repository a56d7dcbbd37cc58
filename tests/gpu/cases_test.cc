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
  const auto statistics = TimeCase(**benchmark, **node, {});
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
        "all_reduce/n2/one_shot/graph/16384B",
        "all_reduce/n2/one_shot/graph/1000000B",
        "all_reduce/n2/two_shot/graph/16384B",
        "all_reduce/n2/two_shot/graph/1000000B",
        "all_to_all/n2/one_shot/graph/16384B",
        "all_to_all/n2/one_shot/graph/1000000B", "memory/read/1048576B",
        "memory/read/1000000B", "memory/copy/67108864B", "gemm/bf16/m1n512k512",
        "gemm/bf16/m37n1000k264", "gemm/fp8/m16n1024k1024",
        "launch/graph_node"));

}  // namespace
}  // namespace fabricwise
