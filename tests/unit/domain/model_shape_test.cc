// SPDX-License-Identifier: Apache-2.0
#include "server/domain/model_shape.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

ModelShape Dense() {
  return {.name = "dense",
          .hidden_size = 4096,
          .num_layers = 32,
          .vocab_size = 128256,
          .num_attention_heads = 32,
          .num_key_value_heads = 8,
          .head_dim = 128,
          .v_head_dim = 128,
          .num_dense_layers = 32,
          .intermediate_size = 14336};
}

// Everything that a shape can have but grouped-query attention.
ModelShape Latent() {
  return {.name = "latent",
          .hidden_size = 7168,
          .num_layers = 61,
          .vocab_size = 129280,
          .attention_kind = AttentionKind::kMla,
          .num_attention_heads = 128,
          .v_head_dim = 128,
          .num_sliding_layers = 10,
          .sliding_window = 128,
          .q_lora_rank = 1536,
          .kv_lora_rank = 512,
          .qk_nope_head_dim = 128,
          .qk_rope_head_dim = 64,
          .index_heads = 64,
          .index_head_dim = 128,
          .index_topk = 2048,
          .num_linear_layers = 20,
          .linear_key_heads = 16,
          .linear_value_heads = 32,
          .linear_key_head_dim = 128,
          .linear_value_head_dim = 128,
          .linear_conv_kernel = 4,
          .num_dense_layers = 3,
          .intermediate_size = 18432,
          .num_moe_layers = 58,
          .num_experts = 256,
          .experts_per_token = 8,
          .moe_intermediate_size = 2048,
          .shared_intermediate_size = 2048,
          .num_nextn_predict_layers = 1,
          .expert_weights = {NumberFormat::kInt4Group, 32},
          .kv_cache_format = NumberFormat::kFp8};
}

struct Case {
  std::function<void(ModelShape&)> change;
  std::string message;
};

void ExpectRefusals(const ModelShape& valid, const std::vector<Case>& cases) {
  ASSERT_TRUE(Validate(valid).ok()) << Validate(valid);
  for (const Case& c : cases) {
    ModelShape shape = valid;
    c.change(shape);
    const absl::Status status = Validate(shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_EQ(status.message(), c.message);
  }
}

TEST(ValidateModelShapeTest, SizesOutOfRangeAreRefused) {
  ExpectRefusals(
      Dense(),
      {{[](ModelShape& s) { s.name = std::string(257, 'x'); },
        "model.name is 257 bytes long; allowed: at most 256"},
       {[](ModelShape& s) { s.hidden_size = -1; },
        "model.hidden_size is -1; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.hidden_size = int64_t{1} << 31; },
        "model.hidden_size is 2147483648; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.hidden_size = kHuge; },
        "model.hidden_size is 9223372036854775807; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.num_layers = 4097; },
        "model.num_layers is 4097; allowed: 1 to 4096"},
       {[](ModelShape& s) { s.vocab_size = 0; },
        "model.vocab_size is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.num_nextn_predict_layers = kHuge; },
        "model.num_nextn_predict_layers is 9223372036854775807; allowed: 0 to "
        "4096"}});
}

TEST(ValidateModelShapeTest, LongTypesAreRefused) {
  ModelShape shape;
  shape.model_type.assign(257, 'x');
  EXPECT_EQ(Validate(shape),
            absl::InvalidArgumentError(
                "model.model_type is 257 bytes long; allowed: at most 256"));
}

TEST(ValidateModelShapeTest, OddAttentionIsRefused) {
  ExpectRefusals(
      Dense(),
      {{[](ModelShape& s) { s.num_attention_heads = 0; },
        "model.num_attention_heads is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.num_key_value_heads = 0; },
        "model.num_key_value_heads is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.num_key_value_heads = 5; },
        "model.num_key_value_heads is 5; allowed: a divisor of "
        "num_attention_heads, 32"},
       {[](ModelShape& s) { s.num_key_value_heads = 64; },
        "model.num_key_value_heads is 64; allowed: a divisor of "
        "num_attention_heads, 32"},
       {[](ModelShape& s) { s.head_dim = 0; },
        "model.head_dim is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.v_head_dim = 0; },
        "model.v_head_dim is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.head_dim = 1 << 20; },
        "model.num_attention_heads x head_dim is 33554432; allowed: at most "
        "16777216"},
       {[](ModelShape& s) { s.v_head_dim = 1 << 20; },
        "model.num_attention_heads x v_head_dim is 33554432; allowed: at most "
        "16777216"},
       {[](ModelShape& s) { s.kv_lora_rank = 512; },
        "model.kv_lora_rank is 512; allowed: 0 without latent attention"},
       {[](ModelShape& s) { s.q_lora_rank = 512; },
        "model.q_lora_rank is 512; allowed: 0 without latent attention"},
       {[](ModelShape& s) { s.num_sliding_layers = 33; },
        "model.num_sliding_layers is 33; allowed: 0 to 32"},
       {[](ModelShape& s) { s.num_sliding_layers = 16; },
        "model.sliding_window is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.sliding_window = 128; },
        "model.sliding_window is 128; allowed: 0 without sliding layers"}});
  ExpectRefusals(
      Latent(),
      {{[](ModelShape& s) { s.head_dim = 128; },
        "model.head_dim is 128; allowed: 0 without grouped-query attention"},
       {[](ModelShape& s) { s.num_key_value_heads = 128; },
        "model.num_key_value_heads is 128; allowed: 0 without grouped-query "
        "attention"},
       {[](ModelShape& s) { s.kv_lora_rank = 0; },
        "model.kv_lora_rank is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.q_lora_rank = -1; },
        "model.q_lora_rank is -1; allowed: 0 to 16777216"},
       {[](ModelShape& s) { s.qk_nope_head_dim = 1 << 20; },
        "model.num_attention_heads x qk_nope_head_dim is 134217728; allowed: "
        "at most 16777216"},
       {[](ModelShape& s) { s.qk_rope_head_dim = 1 << 20; },
        "model.num_attention_heads x qk_rope_head_dim is 134217728; allowed: "
        "at most 16777216"},
       {[](ModelShape& s) { s.index_topk = 0; },
        "model.index_heads is 64; allowed: 0 without index_topk"},
       {[](ModelShape& s) { s.index_heads = 0; },
        "model.index_heads is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.num_linear_layers = 52; },
        "model.num_linear_layers is 52; allowed: 0 to 51"},
       {[](ModelShape& s) { s.num_linear_layers = 0; },
        "model.linear_key_heads is 16; allowed: 0 without linear layers"},
       {[](ModelShape& s) { s.linear_conv_kernel = 0; },
        "model.linear_conv_kernel is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.linear_key_heads = 1 << 20; },
        "model.linear_key_heads x linear_key_head_dim is 134217728; allowed: "
        "at most 16777216"}});
}

TEST(ValidateModelShapeTest, OddFeedForwardIsRefused) {
  ExpectRefusals(
      Dense(),
      {{[](ModelShape& s) { s.num_dense_layers = 31; },
        "model.num_dense_layers + num_moe_layers is 31; allowed: num_layers, "
        "32"},
       {[](ModelShape& s) { s.num_dense_layers = -1; },
        "model.num_dense_layers is -1; allowed: 0 to 32"},
       {[](ModelShape& s) { s.intermediate_size = 0; },
        "model.intermediate_size is 0; allowed: 1 to 16777216"},
       {[](ModelShape& s) { s.num_experts = 8; },
        "model.num_experts is 8; allowed: 0 without MoE layers"},
       {[](ModelShape& s) { s.shared_intermediate_size = 8; },
        "model.shared_intermediate_size is 8; allowed: 0 without MoE "
        "layers"}});
  ExpectRefusals(
      Latent(),
      {{[](ModelShape& s) { s.num_experts = 0; },
        "model.num_experts is 0; allowed: 1 to 4096"},
       {[](ModelShape& s) { s.num_experts = 4097; },
        "model.num_experts is 4097; allowed: 1 to 4096"},
       {[](ModelShape& s) { s.experts_per_token = 257; },
        "model.experts_per_token is 257; allowed: 1 to 256"},
       {[](ModelShape& s) { s.shared_intermediate_size = -1; },
        "model.shared_intermediate_size is -1; allowed: 0 to 16777216"},
       {[](ModelShape& s) { s.moe_intermediate_size = 1 << 20; },
        "model.num_experts x moe_intermediate_size is 268435456; allowed: at "
        "most 16777216"},
       {[](ModelShape& s) {
          s.num_dense_layers = 0;
          s.num_moe_layers = 61;
        },
        "model.intermediate_size is 18432; allowed: 0 without dense "
        "layers"}});
}

TEST(ValidateModelShapeTest, OddFormatsAreRefused) {
  ExpectRefusals(
      Latent(),
      {{[](ModelShape& s) { s.expert_weights.group_size = 0; },
        "model.expert_weights.group_size is 0; allowed: 16 to 1024"},
       {[](ModelShape& s) { s.attention_weights.group_size = 128; },
        "model.attention_weights.group_size is 128; allowed: 0 for bf16"},
       {[](ModelShape& s) {
          s.dense_weights = {NumberFormat::kFp8Block, 1};
        },
        "model.dense_weights.group_size is 1; allowed: 0 for fp8_block"},
       {[](ModelShape& s) { s.shared_expert_weights.group_size = -1; },
        "model.shared_expert_weights.group_size is -1; allowed: 0 for bf16"},
       {[](ModelShape& s) { s.kv_cache_format = NumberFormat::kInt4Group; },
        "model.kv_cache_format is int4_group; allowed: bf16, fp8, nvfp4"}});
}

TEST(ValidateModelShapeTest, ShapesBeyondAnyModelAreRefusedAsAWhole) {
  ModelShape shape = Dense();
  shape.hidden_size = kMaxDimension;
  shape.intermediate_size = kMaxDimension;
  EXPECT_EQ(Validate(shape),
            absl::InvalidArgumentError(
                "model is 2.70314e+16 parameters in all; allowed: at most "
                "1e+15"));
}

TEST(CountParametersTest, AgreesWithSumsByHand) {
  // Llama-3.1-8B without its norms: 8,030,261,248 - 65 x 4096.
  EXPECT_DOUBLE_EQ(CountParameters(Dense()), 8'029'995'008.0);
  ModelShape tied = Dense();
  tied.tie_word_embeddings = true;
  EXPECT_DOUBLE_EQ(CountParameters(Dense()) - CountParameters(tied),
                   128256.0 * 4096);
}

TEST(CountParametersTest, QueryMayBeProjectedDirectly) {
  ModelShape direct = Latent();
  direct.q_lora_rank = 0;
  const double query = 128 * (128 + 64), index = 64 * 128;
  // 41 layers with softmax attention.
  EXPECT_DOUBLE_EQ(
      CountParameters(direct) - CountParameters(Latent()),
      41 * ((7168 * query + 7168 * index) - (7168 + query + index) * 1536));
}

TEST(AttentionKindTest, EveryNameParsesToItsKind) {
  for (const AttentionKind kind : {AttentionKind::kGqa, AttentionKind::kMla}) {
    EXPECT_EQ(ParseAttentionKind(ToString(kind)).value(), kind);
  }
  EXPECT_EQ(
      ParseAttentionKind("mha").status(),
      absl::InvalidArgumentError("attention_kind is 'mha'; allowed: gqa, mla"));
}

}  // namespace
}  // namespace fabricwise
