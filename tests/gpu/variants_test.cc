// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of those that a case chooses among, also the ones that are never
// the fastest on this GPU. The first tokens of a prompt, the last tile of a
// context, odd rows: each has its own path.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cases/check.h"
#include "kernels/cases/trial.h"
#include "kernels/device/data.h"
#include "kernels/load/routing.h"
#include "kernels/node.h"

namespace fabricwise {
namespace {

constexpr float kTolerance = 0.02f;  // bf16's, as of the cases
constexpr uint64_t kSeed = 7;

class VariantsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto node = Node::Create({});
    if (!node.ok()) GTEST_SKIP() << node.status().message();
    node_ = *std::move(node);
    device_ = node_->devices().front();
    stream_ = node_->stream(device_);
    const auto shared = SharedBytesOfABlock(device_);
    ASSERT_TRUE(shared.ok()) << shared.status();
    shared_bytes_ = *shared;
  }

  template <typename T>
  T* Make(int64_t count) {
    auto buffer =
        DeviceBuffer::Create(device_, static_cast<size_t>(count) * sizeof(T));
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().as<T>();
  }
  __nv_bfloat16* Filled(int64_t count) {
    auto* data = Make<__nv_bfloat16>(count);
    EXPECT_EQ(LaunchFill(data, count, kSeed, static_cast<int>(buffers_.size()),
                         0, stream_),
              cudaSuccess);
    return data;
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* data = Make<T>(std::ssize(values));
    EXPECT_EQ(cudaMemcpy(data, values.data(), values.size() * sizeof(T),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    return data;
  }
  void Poison(void* data, int64_t bytes) {
    EXPECT_EQ(
        cudaMemsetAsync(data, kPoison, static_cast<size_t>(bytes), stream_),
        cudaSuccess);
  }
  // OK where neither `out` has poison left nor `check` finds a fault.
  template <typename Check>
  absl::Status Verdict(const __nv_bfloat16* out, int64_t count,
                       const Check& check) {
    WrongCount wrong;
    RETURN_IF_ERROR(wrong.Check(
        device_, stream_, [&](unsigned long long* faults, cudaStream_t on) {
          if (const cudaError_t error =
                  LaunchCheckWritten(out, count, faults, on);
              error != cudaSuccess) {
            return error;
          }
          return check(faults, on);
        }));
    return wrong.Verdict("output");
  }

  std::unique_ptr<Node> node_;
  int device_ = 0;
  cudaStream_t stream_ = nullptr;
  size_t shared_bytes_ = 0;
  std::vector<DeviceBuffer> buffers_;
};

TEST_F(VariantsTest, EveryKernelOfPromptsIsRight) {
  const PromptShape shapes[] = {
      {1, 1, 1, 2, 1, 64, 64},       {2, 200, 333, 6, 2, 64, 64},
      {1, 129, 129, 4, 4, 128, 128}, {2, 127, 1000, 8, 1, 128, 128},
      {2, 300, 300, 3, 3, 192, 128}, {1, 65, 511, 4, 2, 256, 256}};
  for (const PromptShape& shape : shapes) {
    const int64_t queries =
        int64_t{shape.batch} * shape.query_tokens * shape.q_heads;
    const int64_t rows =
        int64_t{shape.batch} * shape.context_tokens * shape.kv_heads;
    const PromptAttention attention{
        .shape = shape,
        .scale = 0.3f,
        .q = Filled(queries * shape.qk_dim),
        .k = Filled(rows * shape.qk_dim),
        .v = Filled(rows * shape.v_dim),
        .out = Make<__nv_bfloat16>(queries * shape.v_dim)};
    for (int variant = 0; variant < kPromptVariants; ++variant) {
      ASSERT_GT(PromptSharedBytes(shape, variant), 0u);
      if (PromptSharedBytes(shape, variant) > shared_bytes_) continue;
      Poison(attention.out, queries * shape.v_dim * 2);
      ASSERT_EQ(LaunchPromptAttention(attention, variant, stream_),
                cudaSuccess);
      const absl::Status right =
          Verdict(attention.out, queries * shape.v_dim,
                  [&](unsigned long long* faults, cudaStream_t on) {
                    return LaunchCheckPromptAttention(attention, 200, kSeed,
                                                      kTolerance, faults, on);
                  });
      EXPECT_TRUE(right.ok())
          << right << " variant " << variant << " width " << shape.qk_dim;
    }
  }
}

TEST_F(VariantsTest, EveryKernelOfDecodeIsRight) {
  const AttentionShape shapes[] = {
      {2, 77, 6, 2, 64, false},    {2, 1000, 20, 1, 128, false},
      {1, 333, 4, 4, 256, false},  {2, 500, 16, 1, 576, true},
      {1, 1500, 40, 1, 576, true},
  };
  for (const AttentionShape& shape : shapes) {
    const int64_t heads = int64_t{shape.batch} * shape.q_heads;
    const int64_t cache = int64_t{shape.batch} * shape.context_tokens *
                          shape.kv_heads * shape.qk_dim;
    const int64_t outputs = heads * ValueDim(shape);
    DecodeAttention attention{.shape = shape,
                              .scale = 0.3f,
                              .q = Filled(heads * shape.qk_dim),
                              .k = Filled(cache),
                              .v = Filled(cache),
                              .out = Make<__nv_bfloat16>(outputs)};
    for (int variant = 0; variant < kDecodeVariants; ++variant) {
      if (DecodeSharedBytes(shape, variant) > shared_bytes_) continue;
      for (const int splits : {1, 3}) {
        attention.splits = splits;
        attention.partial = Make<float>(
            static_cast<int64_t>(PartialBytes(shape, splits) / sizeof(float)));
        Poison(attention.out, outputs * 2);
        ASSERT_EQ(LaunchDecodeAttention(attention, variant, stream_),
                  cudaSuccess);
        const absl::Status right =
            Verdict(attention.out, outputs,
                    [&](unsigned long long* faults, cudaStream_t on) {
                      return LaunchCheckAttention(attention, 200, kSeed,
                                                  kTolerance, faults, on);
                    });
        EXPECT_TRUE(right.ok()) << right << " variant " << variant << " width "
                                << shape.qk_dim << " splits " << splits;
      }
    }
  }
}

TEST_F(VariantsTest, TheSecondKernelsFitEveryGpu) {
  constexpr size_t kLeastOfAnyGpu = size_t{99} << 10;
  for (const int width : {64, 128, 256}) {
    EXPECT_LE(DecodeSharedBytes({1, 1, 1, 1, width, false}, 1), kLeastOfAnyGpu);
    EXPECT_LE(PromptSharedBytes({1, 1, 1, 1, 1, width, width}, 1),
              kLeastOfAnyGpu);
  }
  EXPECT_LE(DecodeSharedBytes({1, 1, 128, 1, 576, true}, 1), kLeastOfAnyGpu);
  EXPECT_LE(PromptSharedBytes({1, 1, 1, 1, 1, 192, 128}, 1), kLeastOfAnyGpu);
}

TEST_F(VariantsTest, EveryKernelOfExpertsIsRight) {
  // Experts of one row, of some and of more than the largest tile.
  const std::vector<int64_t> rows_of = {1, 7, 33, 150, 64};
  std::vector<int32_t> expert_of;
  for (size_t expert = 0; expert < rows_of.size(); ++expert) {
    expert_of.insert(expert_of.end(), static_cast<size_t>(rows_of[expert]),
                     static_cast<int32_t>(expert));
  }
  const int32_t* const experts = Upload(expert_of);
  const auto rows = static_cast<int64_t>(expert_of.size());
  const auto hit = static_cast<int64_t>(rows_of.size());
  int major = 0, minor = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                   device_),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                                   device_),
            cudaSuccess);
  for (const bool fp8 : {false, true}) {
    if (fp8 && major * 10 + minor < 89) GTEST_SKIP() << "no products in fp8";
    for (const bool gated : {false, true}) {
      GroupedProduct product{.fp8_block = fp8,
                             .rows = rows,
                             .columns = 384,
                             .k = 640,
                             .gated = gated};
      const int64_t weights = hit * (gated ? 2 : 1) * product.columns;
      product.out = Make<__nv_bfloat16>(rows * product.columns);
      product.in = Filled(rows * product.k);
      if (fp8) {
        const auto* in = static_cast<const __nv_bfloat16*>(product.in);
        auto* quantised = Make<uint8_t>(rows * product.k);
        auto* in_scales = Make<float>(rows * product.k / kFp8BlockSide);
        auto* values = Make<uint8_t>(weights * product.k);
        const int64_t blocks =
            weights * product.k / (kFp8BlockSide * kFp8BlockSide);
        auto* scales = Make<float>(blocks);
        ASSERT_EQ(
            LaunchQuantise(in, quantised, in_scales, rows, product.k, stream_),
            cudaSuccess);
        ASSERT_EQ(LaunchFillFp8(values, weights * product.k, kSeed, 1, stream_),
                  cudaSuccess);
        ASSERT_EQ(LaunchFillScales(scales, blocks, kSeed, 1, stream_),
                  cudaSuccess);
        product.in = quantised;
        product.in_scales = in_scales;
        product.weights = values;
        product.weight_scales = scales;
      } else {
        product.weights = Filled(weights * product.k);
      }
      for (int variant = 0; variant < GroupedVariants(fp8); ++variant) {
        const TileShape shape = GroupedTile(product, variant);
        const std::vector<ExpertTile> tiles =
            CutIntoTiles(rows_of, product.columns, shape.rows, shape.columns);
        product.tiles = Upload(tiles);
        product.tile_count = std::ssize(tiles);
        Poison(product.out, rows * product.columns * 2);
        const cudaError_t error =
            LaunchGroupedProduct(product, variant, stream_);
        ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
        const absl::Status right =
            Verdict(product.out, rows * product.columns,
                    [&](unsigned long long* faults, cudaStream_t on) {
                      return LaunchCheckGrouped(product, experts, 8192, kSeed,
                                                kTolerance, faults, on);
                    });
        EXPECT_TRUE(right.ok()) << right << " variant " << variant << " fp8 "
                                << fp8 << " gated " << gated;
      }
    }
  }
}

}  // namespace
}  // namespace fabricwise
