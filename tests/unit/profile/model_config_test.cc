// SPDX-License-Identifier: Apache-2.0
#include "server/profile/model_config.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/profile/model_file.h"

namespace fabricwise {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Llama() {
  return {{"model_type", "llama"},     {"hidden_size", 512},
          {"num_hidden_layers", 8},    {"vocab_size", 1000},
          {"num_attention_heads", 8},  {"num_key_value_heads", 2},
          {"intermediate_size", 2048}, {"torch_dtype", "bfloat16"}};
}

json Mixtral() {
  json config = Llama();
  config.update({{"model_type", "mixtral"},
                 {"num_local_experts", 8},
                 {"num_experts_per_tok", 2}});
  return config;
}

json QwenMoe() {
  json config = Llama();
  config.update({{"model_type", "qwen3_moe"},
                 {"num_experts", 16},
                 {"num_experts_per_tok", 4},
                 {"moe_intermediate_size", 128},
                 {"decoder_sparse_step", 1},
                 {"mlp_only_layers", json::array()}});
  return config;
}

json DeepSeek() {
  json config = Llama();
  config.update({{"model_type", "deepseek_v3"},
                 {"n_routed_experts", 16},
                 {"num_experts_per_tok", 4},
                 {"moe_intermediate_size", 128},
                 {"n_shared_experts", 2},
                 {"first_k_dense_replace", 3},
                 {"q_lora_rank", 64},
                 {"kv_lora_rank", 32},
                 {"qk_nope_head_dim", 24},
                 {"qk_rope_head_dim", 8},
                 {"v_head_dim", 16}});
  return config;
}

json Llama4() {
  json text = Llama();
  text.update({{"model_type", "llama4_text"},
               {"num_local_experts", 16},
               {"num_experts_per_tok", 1},
               {"intermediate_size", 256},
               {"intermediate_size_mlp", 1024},
               {"interleave_moe_layer_step", 2}});
  return {{"model_type", "llama4"}, {"text_config", text}};
}

json QwenNext() {
  json config = QwenMoe();
  config.update({{"model_type", "qwen3_next"},
                 {"linear_num_key_heads", 4},
                 {"linear_num_value_heads", 8},
                 {"linear_key_head_dim", 16},
                 {"linear_value_head_dim", 32},
                 {"linear_conv_kernel_dim", 4},
                 {"shared_expert_intermediate_size", 96}});
  return config;
}

json With(json config, const json& changes) {
  config.update(changes);
  return config;
}

json Without(json config, const std::string& key) {
  config.erase(key);
  return config;
}

absl::StatusOr<ModelShape> Parse(const json& config) {
  return ParseHuggingFaceConfig(config.dump(), "test");
}

ModelShape Parsed(const json& config) {
  const auto shape = Parse(config);
  EXPECT_TRUE(shape.ok()) << shape.status() << " of " << config;
  return shape.value_or(ModelShape());
}

std::string Printed(const json& config) {
  return PrintModelFile(Parsed(config));
}

struct Refusal {
  json config;
  std::string message;
};

void ExpectRefusals(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    EXPECT_EQ(Parse(refusal.config).status(),
              absl::InvalidArgumentError(refusal.message))
        << refusal.config;
  }
}

// -- Sizes and attention ------------------------------------------------------

TEST(ModelConfigTest, ReadsALlama) {
  const ModelShape shape = Parsed(Llama());
  EXPECT_EQ(shape, (ModelShape{.name = "test",
                               .model_type = "llama",
                               .hidden_size = 512,
                               .num_layers = 8,
                               .vocab_size = 1000,
                               .num_attention_heads = 8,
                               .num_key_value_heads = 2,
                               .head_dim = 64,
                               .v_head_dim = 64,
                               .num_dense_layers = 8,
                               .intermediate_size = 2048}));
}

TEST(ModelConfigTest, TakesTheModelTypeWhereThereIsNoName) {
  EXPECT_EQ(ParseHuggingFaceConfig(Llama().dump(), "")->name, "llama");
}

TEST(ModelConfigTest, KeyValueHeadsMayBeManyOrOne) {
  EXPECT_EQ(Parsed(Without(Llama(), "num_key_value_heads")).num_key_value_heads,
            8);
  EXPECT_EQ(
      Parsed(With(Llama(), {{"num_key_value_heads", 1}})).num_key_value_heads,
      1);
}

TEST(ModelConfigTest, HeadDimMayBeStated) {
  EXPECT_EQ(Parsed(With(Llama(), {{"head_dim", 128}})).head_dim, 128);
  EXPECT_EQ(Parsed(With(Llama(), {{"head_dim", nullptr}})).head_dim, 64);
}

TEST(ModelConfigTest, EmbeddingsAreTiedWhereSaidOrTheFamilyDoes) {
  EXPECT_FALSE(Parsed(Llama()).tie_word_embeddings);
  EXPECT_TRUE(Parsed(With(Llama(), {{"tie_word_embeddings", true}}))
                  .tie_word_embeddings);
  EXPECT_TRUE(Parsed({{"model_type", "outer"},
                      {"tie_word_embeddings", true},
                      {"text_config", Llama()}})
                  .tie_word_embeddings);
}

TEST(ModelConfigTest, SizesThatAreMissingOrOddAreRefusedByKey) {
  ExpectRefusals({
      {Without(Llama(), "model_type"),
       "model_type is missing; allowed: a text"},
      {With(Llama(), {{"model_type", 7}}), "model_type is 7; allowed: a text"},
      {With(Llama(), {{"text_config", 7}}),
       "text_config is 7; allowed: an object"},
      {Without(Llama(), "hidden_size"),
       "hidden_size is missing; needed by model_type 'llama': an integer, 1 "
       "to 16777216"},
      {With(Llama(), {{"hidden_size", nullptr}}),
       "hidden_size is missing; needed by model_type 'llama': an integer, 1 "
       "to 16777216"},
      {With(Llama(), {{"hidden_size", "512"}}),
       "hidden_size is \"512\"; allowed: an integer, 1 to 16777216"},
      {With(Llama(), {{"hidden_size", 512.5}}),
       "hidden_size is 512.5; allowed: an integer, 1 to 16777216"},
      {With(Llama(), {{"hidden_size", -1}}),
       "hidden_size is -1; allowed: an integer, 1 to 16777216"},
      {With(Llama(), {{"hidden_size", uint64_t{1} << 63}}),
       "hidden_size is 9223372036854775808; allowed: an integer, 1 to "
       "16777216"},
      {With(Llama(), {{"num_hidden_layers", 100000}}),
       "num_hidden_layers is 100000; allowed: an integer, 1 to 4096"},
      {With(Llama(), {{"vocab_size", 0}}),
       "vocab_size is 0; allowed: an integer, 1 to 16777216"},
      {With(Llama(), {{"tie_word_embeddings", "yes"}}),
       "tie_word_embeddings is \"yes\"; allowed: true, false"},
      {Without(Llama(), "num_attention_heads"),
       "num_attention_heads is missing; needed by model_type 'llama': an "
       "integer, 1 to 16777216"},
      {With(Llama(), {{"num_key_value_heads", 3}}),
       "num_key_value_heads is 3; allowed: a divisor of num_attention_heads, "
       "8"},
      {With(Llama(), {{"num_attention_heads", 10}}),
       "head_dim is missing; needed by model_type 'llama': an integer, as "
       "hidden_size 512 is no multiple of num_attention_heads 10"},
      {With(Llama(), {{"head_dim", 0}}),
       "head_dim is 0; allowed: an integer, 1 to 16777216"},
      {Without(Llama(), "intermediate_size"),
       "intermediate_size is missing; needed by model_type 'llama': an "
       "integer, 1 to 16777216"},
      {With(Llama(), {{"torch_dtype", "float8_e4m3fn"}}),
       "torch_dtype is \"float8_e4m3fn\"; allowed: bfloat16, float16, "
       "float32"},
      {With(Llama(), {{"num_attention_heads", 1 << 24},
                      {"num_key_value_heads", 1},
                      {"head_dim", 128}}),
       "model.num_attention_heads x v_head_dim is 2147483648; allowed: at "
       "most 16777216"},
  });
  EXPECT_EQ(ParseHuggingFaceConfig("not json", "x").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ModelConfigTest, LatentAttentionLeavesKeyValueHeadsAside) {
  const ModelShape shape = Parsed(
      With(DeepSeek(),
           {{"index_topk", 20}, {"index_n_heads", 4}, {"index_head_dim", 16}}));
  EXPECT_EQ(shape.attention_kind, AttentionKind::kMla);
  EXPECT_EQ(shape.num_key_value_heads, 0);
  EXPECT_EQ(shape.head_dim, 0);
  EXPECT_EQ(shape.q_lora_rank, 64);
  EXPECT_EQ(shape.kv_lora_rank, 32);
  EXPECT_EQ(shape.qk_nope_head_dim, 24);
  EXPECT_EQ(shape.qk_rope_head_dim, 8);
  EXPECT_EQ(shape.v_head_dim, 16);
  EXPECT_EQ(shape.index_topk, 20);
  EXPECT_EQ(shape.index_heads, 4);
  EXPECT_EQ(shape.index_head_dim, 16);
  EXPECT_EQ(Parsed(With(DeepSeek(), {{"q_lora_rank", nullptr}})).q_lora_rank,
            0);
  ExpectRefusals({
      {Without(DeepSeek(), "qk_rope_head_dim"),
       "qk_rope_head_dim is missing; needed by model_type 'deepseek_v3': an "
       "integer, 1 to 16777216"},
      {With(DeepSeek(), {{"index_topk", 20}}),
       "index_n_heads is missing; needed by model_type 'deepseek_v3': an "
       "integer, 1 to 16777216"},
  });
}

TEST(ModelConfigTest, LatentAttentionThatIsHalfSaidIsRefusedByKey) {
  ExpectRefusals({
      {Without(DeepSeek(), "kv_lora_rank"),
       "kv_lora_rank is missing; needed by model_type 'deepseek_v3': an "
       "integer, 1 to 16777216"},
      {With(DeepSeek(), {{"index_n_heads", 64}, {"index_head_dim", 128}}),
       "index_topk is missing; needed by model_type 'deepseek_v3': an "
       "integer, 1 to 16777216"},
  });
}

TEST(ModelConfigTest, DeepSeekV4SharesOneEntryForKeysAndValues) {
  json config = DeepSeek();
  for (const char* key : {"kv_lora_rank", "qk_nope_head_dim", "v_head_dim",
                          "first_k_dense_replace", "intermediate_size"}) {
    config.erase(key);
  }
  config.update(
      {{"model_type", "deepseek_v4"},
       {"num_key_value_heads", 1},
       {"head_dim", 48},
       {"sliding_window", 128},
       {"expert_dtype", "fp4"},
       {"quantization_config",
        {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}}});
  const ModelShape shape = Parsed(config);
  EXPECT_EQ(shape.attention_kind, AttentionKind::kMla);
  EXPECT_EQ(shape.kv_lora_rank + shape.qk_rope_head_dim, 48);
  EXPECT_EQ(shape.v_head_dim, 48);
  EXPECT_EQ(shape.num_moe_layers, 8);
  EXPECT_EQ(shape.num_sliding_layers, 0);
  EXPECT_EQ(shape.expert_weights.number, NumberFormat::kMxfp4);
  EXPECT_EQ(shape.shared_expert_weights.number, NumberFormat::kFp8Block);
  ExpectRefusals({
      {With(config, {{"num_key_value_heads", 2}}),
       "num_key_value_heads is 2; allowed: an integer, 1 to 1"},
      {With(config, {{"qk_rope_head_dim", 48}}),
       "qk_rope_head_dim is 48; allowed: an integer, 1 to 47"},
      {With(config, {{"expert_dtype", "fp6"}}),
       "expert_dtype is \"fp6\"; allowed: fp4, fp8"},
  });
  EXPECT_EQ(
      Parsed(With(config, {{"expert_dtype", "fp8"}})).expert_weights.number,
      NumberFormat::kFp8Block);
  EXPECT_EQ(
      Parsed(Without(config, "quantization_config")).expert_weights.number,
      NumberFormat::kMxfp4);
  // Quantized anew, under this family's own names of modules.
  const json fp8 = {{"num_bits", 8},
                    {"type", "float"},
                    {"strategy", "block"},
                    {"block_structure", {128, 128}}};
  const json nvfp4 = {{"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"config_groups",
       {{"a",
         {{"targets", {"re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$"}},
          {"weights", fp8}}},
        {"b",
         {{"targets", {"re:.*ffn.*(gate|up|down)_proj$"}},
          {"weights", nvfp4}}}}}};
  const ModelShape anew = Parsed(config);
  EXPECT_EQ(anew.attention_weights.number, NumberFormat::kFp8Block);
  EXPECT_EQ(anew.expert_weights.number, NumberFormat::kNvfp4);
  EXPECT_EQ(anew.shared_expert_weights.number, NumberFormat::kNvfp4);
}

// -- Windows ------------------------------------------------------------------

int64_t Sliding(const json& config) {
  return Parsed(config).num_sliding_layers;
}

TEST(ModelConfigTest, SlidingLayersFollowTheFamilysRule) {
  const json window = {{"sliding_window", 256}};
  EXPECT_EQ(Sliding(With(With(Llama(), window), {{"model_type", "mistral"}})),
            8);
  EXPECT_EQ(Sliding(With(Llama(), {{"model_type", "mistral"},
                                   {"sliding_window", nullptr}})),
            0);
  const json qwen = With(With(Llama(), window), {{"model_type", "qwen2"}});
  EXPECT_EQ(Sliding(qwen), 0);
  EXPECT_EQ(Sliding(With(qwen, {{"use_sliding_window", false}})), 0);
  EXPECT_EQ(Sliding(With(qwen, {{"use_sliding_window", true}})), 0);
  EXPECT_EQ(Sliding(With(qwen, {{"use_sliding_window", true},
                                {"max_window_layers", 5}})),
            3);
  const json gemma =
      With(With(Llama(), window), {{"model_type", "gemma3_text"}});
  EXPECT_EQ(Sliding(gemma), 7);
  EXPECT_EQ(Sliding(With(gemma, {{"sliding_window_pattern", 3}})), 6);
  EXPECT_EQ(Sliding(With(gemma, {{"model_type", "gemma2"}})), 4);
  EXPECT_EQ(Sliding(With(gemma, {{"sliding_window", nullptr}})), 0);
  const json oss = With(Mixtral(), {{"model_type", "gpt_oss"}});
  EXPECT_EQ(Sliding(oss), 4);
  EXPECT_EQ(Parsed(oss).sliding_window, 128);
  ExpectRefusals({
      {With(qwen, {{"use_sliding_window", 1}}),
       "use_sliding_window is 1; allowed: true, false"},
      {With(gemma, {{"sliding_window_pattern", 0}}),
       "sliding_window_pattern is 0; allowed: an integer, 1 to 4096"},
      {With(Llama(), {{"model_type", "mistral"}, {"sliding_window", 0}}),
       "sliding_window is 0; allowed: an integer, 1 to 16777216"},
  });
}

TEST(ModelConfigTest, GemmaMayLeaveOutWhatItsClassSays) {
  const ModelShape shape = Parsed({{"model_type", "gemma3"},
                                   {"text_config",
                                    {{"model_type", "gemma3_text"},
                                     {"hidden_size", 2560},
                                     {"intermediate_size", 10240},
                                     {"num_hidden_layers", 34},
                                     {"sliding_window", 1024}}}});
  EXPECT_EQ(shape.vocab_size, 262208);
  EXPECT_EQ(shape.num_attention_heads, 8);
  EXPECT_EQ(shape.num_key_value_heads, 4);
  EXPECT_EQ(shape.head_dim, 256);
  EXPECT_EQ(shape.num_sliding_layers, 29);
  EXPECT_EQ(shape.sliding_window, 1024);
  EXPECT_TRUE(shape.tie_word_embeddings);
}

TEST(ModelConfigTest, LayerTypesGoBeforeAnyRule) {
  const json types = {"sliding_attention", "full_attention",
                      "sliding_attention", "full_attention",
                      "sliding_attention", "full_attention",
                      "full_attention",    "full_attention"};
  const json config =
      With(Llama(), {{"layer_types", types}, {"sliding_window", 64}});
  EXPECT_EQ(Sliding(config), 3);
  EXPECT_EQ(Parsed(config).sliding_window, 64);
  json odd = types, mixed = types;
  odd[0] = "mamba";
  mixed[1] = "chunked_attention";
  ExpectRefusals({
      {With(config, {{"layer_types", odd}}),
       "layer_types is \"mamba\"; allowed: full_attention, "
       "sliding_attention, chunked_attention, linear_attention"},
      {With(config, {{"layer_types", {"full_attention"}}}),
       "layer_types is [\"full_attention\"]; allowed: a list of "
       "num_hidden_layers, 8, names"},
      {Without(config, "sliding_window"),
       "sliding_window is missing; needed by model_type 'llama': an integer, "
       "1 to 16777216"},
  });
  EXPECT_THAT(Parse(With(config, {{"layer_types", mixed}})).status().message(),
              HasSubstr("allowed: sliding_attention or chunked_attention, not "
                        "both"));
}

TEST(ModelConfigTest, Llama4ReadsInChunksWhereItHasRotaryPositions) {
  EXPECT_EQ(Parsed(Llama4()).num_sliding_layers, 6);
  EXPECT_EQ(Parsed(Llama4()).sliding_window, 8192);
  json config = Llama4();
  config["text_config"]["no_rope_layers"] = json::array();
  config["text_config"]["no_rope_layer_interval"] = 2;
  config["text_config"]["attention_chunk_size"] = 512;
  EXPECT_EQ(Parsed(config).num_sliding_layers, 4);
  EXPECT_EQ(Parsed(config).sliding_window, 512);
  config["text_config"]["no_rope_layers"] = {1, 1, 1, 1, 1, 1, 1, 0};
  EXPECT_EQ(Parsed(config).num_sliding_layers, 7);
  config["text_config"]["no_rope_layers"] = {1, 1, 1, 1, 1, 1, 1, 2};
  ExpectRefusals({{config, "no_rope_layers is 2; allowed: 0, 1"}});
  config["text_config"]["no_rope_layers"] = {1};
  ExpectRefusals({{config,
                   "no_rope_layers is [1]; allowed: a list of "
                   "num_hidden_layers, 8, zeros and ones"}});
  config["text_config"]["attention_chunk_size"] = nullptr;
  EXPECT_EQ(Parsed(config).num_sliding_layers, 0);
}

TEST(ModelConfigTest, LinearAttentionStandsBetweenFullLayers) {
  const ModelShape shape = Parsed(QwenNext());
  EXPECT_EQ(shape.num_linear_layers, 6);
  EXPECT_EQ(shape.num_full_layers(), 2);
  EXPECT_EQ(shape.linear_key_heads, 4);
  EXPECT_EQ(shape.linear_value_heads, 8);
  EXPECT_EQ(shape.linear_key_head_dim, 16);
  EXPECT_EQ(shape.linear_value_head_dim, 32);
  EXPECT_EQ(shape.linear_conv_kernel, 4);
  EXPECT_EQ(shape.shared_intermediate_size, 96);
  EXPECT_EQ(Parsed(With(QwenNext(), {{"full_attention_interval", 2}}))
                .num_linear_layers,
            4);
  ExpectRefusals({
      {Without(QwenNext(), "linear_value_head_dim"),
       "linear_value_head_dim is missing; needed by model_type 'qwen3_next': "
       "an integer, 1 to 16777216"},
  });
}

TEST(ModelConfigTest, MiniMaxMustBeAllSoftmax) {
  const json config = With(Mixtral(), {{"model_type", "minimax_m2"},
                                       {"shared_intermediate_size", 0}});
  EXPECT_EQ(Parsed(With(config, {{"attn_type_list", {1, 1, 1, 1, 1, 1, 1, 1}}}))
                .num_moe_layers,
            8);
  ExpectRefusals({{With(config, {{"attn_type_list", {1, 0}}}),
                   "attn_type_list is [1,0]; allowed: a list of ones"}});
}

// -- Experts ------------------------------------------------------------------

TEST(ModelConfigTest, MixtralsExpertsAreIntermediateSizeWide) {
  const ModelShape shape = Parsed(Mixtral());
  EXPECT_EQ(shape.num_moe_layers, 8);
  EXPECT_EQ(shape.num_experts, 8);
  EXPECT_EQ(shape.experts_per_token, 2);
  EXPECT_EQ(shape.moe_intermediate_size, 2048);
  EXPECT_EQ(shape.intermediate_size, 0);
  EXPECT_EQ(shape.shared_intermediate_size, 0);
}

TEST(ModelConfigTest, DeepSeeksFirstLayersAreDense) {
  const ModelShape shape = Parsed(DeepSeek());
  EXPECT_EQ(shape.num_dense_layers, 3);
  EXPECT_EQ(shape.num_moe_layers, 5);
  EXPECT_EQ(shape.intermediate_size, 2048);
  EXPECT_EQ(shape.moe_intermediate_size, 128);
  EXPECT_EQ(shape.shared_intermediate_size, 256);
  EXPECT_EQ(Parsed(With(DeepSeek(), {{"moe_layer_freq", 2}})).num_moe_layers,
            2);
  EXPECT_EQ(
      Parsed(With(DeepSeek(), {{"moe_layer_freq", {0, 1, 1, 1, 1, 1, 1, 0}}}))
          .num_moe_layers,
      4);
  EXPECT_EQ(
      Parsed(With(DeepSeek(), {{"first_k_dense_replace", 100}})).num_moe_layers,
      0);
  const json types = {"dense",  "sparse", "sparse", "sparse",
                      "sparse", "sparse", "sparse", "dense"};
  EXPECT_EQ(Parsed(With(Without(DeepSeek(), "first_k_dense_replace"),
                        {{"mlp_layer_types", types}}))
                .num_moe_layers,
            6);
}

TEST(ModelConfigTest, QwensDenseLayersAreListedOrByStep) {
  EXPECT_EQ(Parsed(QwenMoe()).num_moe_layers, 8);
  EXPECT_EQ(
      Parsed(With(QwenMoe(), {{"decoder_sparse_step", 2}})).num_moe_layers, 4);
  EXPECT_EQ(
      Parsed(With(QwenMoe(), {{"mlp_only_layers", {0, 7}}})).num_dense_layers,
      2);
  const ModelShape dense = Parsed(With(QwenMoe(), {{"num_experts", 0}}));
  EXPECT_EQ(dense.num_dense_layers, 8);
  EXPECT_EQ(dense.num_experts, 0);
}

TEST(ModelConfigTest, Llama4HasASharedExpertAndWiderDenseLayers) {
  const ModelShape shape = Parsed(Llama4());
  EXPECT_EQ(shape.num_moe_layers, 4);
  EXPECT_EQ(shape.intermediate_size, 1024);
  EXPECT_EQ(shape.moe_intermediate_size, 256);
  EXPECT_EQ(shape.shared_intermediate_size, 256);
  json config = Llama4();
  config["text_config"]["moe_layers"] = {1, 2, 3};
  EXPECT_EQ(Parsed(config).num_moe_layers, 3);
}

TEST(ModelConfigTest, ExtraPredictionLayersAreCounted) {
  EXPECT_EQ(Parsed(With(DeepSeek(), {{"num_nextn_predict_layers", 1}}))
                .num_nextn_predict_layers,
            1);
  EXPECT_EQ(Parsed(With(QwenNext(), {{"mtp_num_hidden_layers", 1}}))
                .num_nextn_predict_layers,
            1);
  const json modules =
      With(Mixtral(), {{"model_type", "minimax_m2"}, {"num_mtp_modules", 3}});
  EXPECT_EQ(Parsed(modules).num_nextn_predict_layers, 3);
  EXPECT_EQ(
      Parsed(With(modules, {{"use_mtp", false}})).num_nextn_predict_layers, 0);
}

TEST(ModelConfigTest, ExpertsThatAreMissingOrOddAreRefusedByKey) {
  ExpectRefusals({
      {Without(Mixtral(), "num_local_experts"),
       "num_local_experts is missing; needed by model_type 'mixtral': an "
       "integer, 1 to 4096"},
      {Without(DeepSeek(), "n_routed_experts"),
       "n_routed_experts is missing; needed by model_type 'deepseek_v3': an "
       "integer, 1 to 4096"},
      {Without(QwenMoe(), "num_experts"),
       "num_experts is missing; needed by model_type 'qwen3_moe': an integer, "
       "0 to 4096"},
      {With(Mixtral(), {{"num_experts", 9}}),
       "num_local_experts is 8; allowed: one value for num_experts, "
       "num_local_experts, n_routed_experts; another is 9"},
      {Without(Mixtral(), "num_experts_per_tok"),
       "num_experts_per_tok is missing; needed by model_type 'mixtral': an "
       "integer, 1 to 8, the number of experts"},
      {With(Mixtral(), {{"num_experts_per_tok", 9}}),
       "num_experts_per_tok is 9; allowed: an integer, 1 to 8, the number of "
       "experts"},
      {With(Without(Mixtral(), "num_experts_per_tok"),
            {{"experts_per_token", 0}}),
       "experts_per_token is 0; allowed: an integer, 1 to 8, the number of "
       "experts"},
      {Without(DeepSeek(), "first_k_dense_replace"),
       "first_k_dense_replace is missing; needed by model_type 'deepseek_v3': "
       "an integer, 0 to 16777216"},
      {Without(DeepSeek(), "moe_intermediate_size"),
       "moe_intermediate_size is missing; needed by model_type "
       "'deepseek_v3': an integer, 1 to 16777216"},
      {With(DeepSeek(), {{"n_shared_experts", 1 << 20}}),
       "n_shared_experts is 1048576; allowed: at most 131072 of width 128"},
      {With(DeepSeek(), {{"moe_layer_freq", 0}}),
       "moe_layer_freq is 0; allowed: an integer, 1 to 4096"},
      {With(DeepSeek(), {{"moe_layer_freq", {1, 0}}}),
       "moe_layer_freq is [1,0]; allowed: a list of num_hidden_layers, 8, "
       "entries"},
      {With(DeepSeek(), {{"moe_layer_freq", {1, 1, 1, 1, 1, 1, 1, 2}}}),
       "moe_layer_freq is 2; allowed: 1, 0"},
      {With(QwenMoe(), {{"mlp_only_layers", {8}}}),
       "mlp_only_layers is 8; allowed: a list of layers, 0 to 7"},
      {With(QwenMoe(), {{"mlp_only_layers", 3}}),
       "mlp_only_layers is 3; allowed: a list of layers, 0 to 7"},
      {With(QwenMoe(), {{"num_nextn_predict_layers", -1}}),
       "num_nextn_predict_layers is -1; allowed: an integer, 0 to 4096"},
  });
}

// -- Unknown families ---------------------------------------------------------

// What an unknown type must say besides.
json Foo(json config) {
  config.update({{"model_type", "foo"},
                 {"architectures", {"FooForCausalLM"}},
                 {"tie_word_embeddings", false}});
  return config;
}

TEST(ModelConfigTest, UnknownFamiliesAreTakenPlainly) {
  // As the known one but for the type.
  const auto as_foo = [](const json& config) {
    ModelShape shape = Parsed(config);
    shape.model_type = "foo";
    return PrintModelFile(shape);
  };
  for (const json& plain : {Llama(), Mixtral(), QwenMoe(), DeepSeek()}) {
    EXPECT_EQ(Printed(Foo(plain)), as_foo(plain));
  }
  EXPECT_EQ(Printed(With(Foo(Llama()), {{"_name_or_path", "x"},
                                        {"ssm_state_size", nullptr}})),
            as_foo(Llama()));
  // Beside a vision tower.
  EXPECT_EQ(Printed({{"model_type", "outer"},
                     {"architectures", {"OuterForConditionalGeneration"}},
                     {"tie_word_embeddings", false},
                     {"text_config", With(Llama(), {{"model_type", "foo"}})}}),
            as_foo(Llama()));
}

TEST(ModelConfigTest, UnknownFamiliesWithKeysOfTheirOwnAreRefused) {
  ExpectRefusals({
      {With(Foo(Llama()), {{"clip_qkv", 8}}),
       "model_type 'foo' is not known, and its key 'clip_qkv' is not "
       "understood; allowed: a known model_type, or keys of a plain Llama, "
       "Mixtral or DeepSeek decoder"},
      {With(Foo(Llama()), {{"sliding_window", 128}}),
       "sliding_window is 128; allowed: null, or with layer_types, for the "
       "unknown model_type 'foo'"},
      {Without(Foo(DeepSeek()), "first_k_dense_replace"),
       "first_k_dense_replace is missing; needed by model_type 'foo': an "
       "integer, 0 to 16777216"},
      {With(Foo(Llama()), {{"num_experts_per_tok", 2}}),
       "num_local_experts is missing; needed by model_type 'foo': an integer, "
       "1 to 4096"},
      {Without(Foo(Llama()), "architectures"),
       "architectures is missing; needed by model_type 'foo': a name that ends "
       "in ForCausalLM or ForConditionalGeneration, of a model that writes "
       "text"},
      {Without(Foo(Llama()), "tie_word_embeddings"),
       "tie_word_embeddings is missing; needed by model_type 'foo': true, "
       "false"},
      // Arcee's feed-forward has two matrices.
      {With(Foo(Llama()), {{"hidden_act", "relu2"}}),
       "hidden_act is \"relu2\"; allowed: silu, swish, gelu, "
       "gelu_pytorch_tanh: of an unknown model_type, a gated feed-forward is "
       "understood"},
  });
}

// -- Other architectures ------------------------------------------------------

// The message of a config.json's refusal; of one that passes, its shape.
std::string RefusalOf(const json& config) {
  const auto shape = Parse(config);
  if (!shape.ok()) return std::string(shape.status().message());
  return "passes: " + PrintModelFile(*shape);
}

TEST(ModelConfigTest, LayersThatKeepAStateAreRefusedByKey) {
  const json sizes = {
      {"hidden_size", 4096},         {"intermediate_size", 8192},
      {"num_hidden_layers", 32},     {"num_attention_heads", 32},
      {"num_key_value_heads", 8},    {"vocab_size", 65024},
      {"tie_word_embeddings", false}};
  struct Case {
    const char *model_type, *architecture, *key;
    json value;
  };
  for (const Case& odd : std::vector<Case>{
           {"falcon_mamba", "FalconMambaForCausalLM", "state_size", 16},
           {"mamba", "MambaForCausalLM", "conv_kernel", 4},
           {"mamba", "MambaForCausalLM", "time_step_rank", 160},
           {"jamba", "JambaForCausalLM", "mamba_d_state", 16},
           {"bamba", "BambaForCausalLM", "mamba_n_heads", 128},
           {"granitemoehybrid", "GraniteMoeHybridForCausalLM", "mamba_d_state",
            256},
           {"falcon_h1", "FalconH1ForCausalLM", "mamba_d_state", 256},
           {"nemotron_h", "NemotronHForCausalLM", "hybrid_override_pattern",
            "M-M*"},
           {"recurrent_gemma", "RecurrentGemmaForCausalLM", "lru_width", 2560},
           {"lfm2", "Lfm2ForCausalLM", "conv_L_cache", 3},
           {"kimi_linear", "KimiLinearForCausalLM", "linear_attn_config",
            json::object()},
           // A known type does not excuse it.
           {"llama", "LlamaForCausalLM", "ssm_state_size", 128}}) {
    const json config = With(sizes, {{"model_type", odd.model_type},
                                     {"architectures", {odd.architecture}},
                                     {odd.key, odd.value}});
    EXPECT_EQ(RefusalOf(config),
              odd.key + (" is " + odd.value.dump()) +
                  "; allowed: no such key: of layers that keep a state, "
                  "linear_attention as Qwen3-Next has it is understood, "
                  "state-space and convolution layers are not");
    EXPECT_THAT(RefusalOf({{"model_type", "outer"}, {"text_config", config}}),
                HasSubstr(odd.key));
  }
}

TEST(ModelConfigTest, WhatIsNoDecoderAloneIsRefusedByKey) {
  const json t5 = {{"model_type", "t5"},
                   {"architectures", {"T5ForConditionalGeneration"}},
                   {"is_encoder_decoder", true},
                   {"d_model", 1024},
                   {"num_layers", 24},
                   {"vocab_size", 32128}};
  const json whisper = {{"model_type", "whisper"},
                        {"architectures", {"WhisperForConditionalGeneration"}},
                        {"is_encoder_decoder", true},
                        {"d_model", 1280},
                        {"num_hidden_layers", 32},
                        {"vocab_size", 51866}};
  for (const json& config : {t5, whisper, With(Llama(), t5)}) {
    EXPECT_EQ(RefusalOf(config),
              "is_encoder_decoder is true; allowed: false: a decoder alone is "
              "understood");
  }
  EXPECT_EQ(RefusalOf({{"model_type", "outer"},
                       {"is_encoder_decoder", true},
                       {"text_config", Llama()}}),
            "is_encoder_decoder is true; allowed: false: a decoder alone is "
            "understood");
  EXPECT_EQ(RefusalOf(With(Llama(), {{"add_cross_attention", true}})),
            "add_cross_attention is true; allowed: false: a decoder alone is "
            "understood");
  EXPECT_EQ(RefusalOf(With(Llama(), {{"use_bidirectional_attention", true}})),
            "use_bidirectional_attention is true; allowed: false: a decoder "
            "is understood");
  EXPECT_EQ(RefusalOf(With(Llama(), {{"is_causal", false}})),
            "is_causal is false; allowed: true: a decoder is understood");
  // As many a config.json of a decoder says it.
  EXPECT_EQ(Printed(With(Llama(), {{"is_encoder_decoder", false},
                                   {"add_cross_attention", false}})),
            Printed(Llama()));
}

TEST(ModelConfigTest, WhatWritesNoTextIsRefusedByArchitecture) {
  const auto refusal = [](const std::string& shown) {
    return "architectures is " + shown +
           "; allowed: a name that ends in ForCausalLM or "
           "ForConditionalGeneration, of a model that writes text";
  };
  const auto as = [](json config, const char* type, const char* architecture) {
    return With(std::move(config),
                {{"model_type", type}, {"architectures", {architecture}}});
  };
  EXPECT_EQ(RefusalOf(as(Llama(), "bert", "BertForMaskedLM")),
            refusal("[\"BertForMaskedLM\"]"));
  EXPECT_EQ(RefusalOf(as(Llama(), "qwen3", "Qwen3ForSequenceClassification")),
            refusal("[\"Qwen3ForSequenceClassification\"]"));
  EXPECT_EQ(RefusalOf(as(Llama(), "llama", "LlamaForCausalLMEagle3")),
            refusal("[\"LlamaForCausalLMEagle3\"]"));
  EXPECT_EQ(RefusalOf(as({{"hidden_size", 768},
                          {"image_size", 224},
                          {"intermediate_size", 3072},
                          {"num_attention_heads", 12},
                          {"num_hidden_layers", 12},
                          {"patch_size", 16}},
                         "vit", "ViTForImageClassification")),
            refusal("[\"ViTForImageClassification\"]"));
  // The text part of these says nothing odd.
  EXPECT_EQ(RefusalOf({{"model_type", "siglip"},
                       {"architectures", {"SiglipModel"}},
                       {"text_config",
                        With(Llama(), {{"model_type", "siglip_text_model"}})},
                       {"vision_config", json::object()}}),
            refusal("[\"SiglipModel\"]"));
  EXPECT_EQ(RefusalOf(With(Llama(), {{"architectures", "LlamaForCausalLM"}})),
            refusal("\"LlamaForCausalLM\""));
  EXPECT_EQ(RefusalOf(With(Llama(), {{"architectures", {7}}})), refusal("[7]"));
}

// -- Formats ------------------------------------------------------------------

json Quantized(json config, const json& quantization) {
  return With(std::move(config), {{"quantization_config", quantization}});
}

struct Formats {
  WeightFormat attention, dense, expert, shared;

  friend bool operator==(const Formats&, const Formats&) = default;
};

Formats FormatsOf(const json& config) {
  const ModelShape shape = Parsed(config);
  return {shape.attention_weights, shape.dense_weights, shape.expert_weights,
          shape.shared_expert_weights};
}

constexpr WeightFormat kBf16 = {};
constexpr WeightFormat kBlock = {NumberFormat::kFp8Block};
constexpr WeightFormat kFp8 = {NumberFormat::kFp8};
constexpr WeightFormat kInt4 = {NumberFormat::kInt4Group, 32};
constexpr WeightFormat kMxfp4 = {NumberFormat::kMxfp4};
constexpr WeightFormat kNvfp4 = {NumberFormat::kNvfp4};

const json kFp8Block = {{"quant_method", "fp8"},
                        {"weight_block_size", {128, 128}}};

json Compressed(const json& weights, const json& ignore = json::array()) {
  return {{"quant_method", "compressed-tensors"},
          {"ignore", ignore},
          {"config_groups",
           {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

const json kInt4Weights = {{"num_bits", 4},
                           {"type", "int"},
                           {"strategy", "group"},
                           {"group_size", 32}};

TEST(ModelConfigTest, Fp8IsByBlockOrNot) {
  EXPECT_EQ(FormatsOf(Quantized(DeepSeek(), kFp8Block)),
            (Formats{kBlock, kBlock, kBlock, kBlock}));
  EXPECT_EQ(FormatsOf(Quantized(Llama(), {{"quant_method", "fp8"}})),
            (Formats{kFp8, kFp8, kBf16, kBf16}));
  EXPECT_EQ(FormatsOf(Quantized(Llama(), {{"quant_method", "fbgemm_fp8"}})),
            (Formats{kFp8, kFp8, kBf16, kBf16}));
}

TEST(ModelConfigTest, ListsOfModulesMatchWholeParts) {
  const auto with = [](const json& list) {
    return FormatsOf(Quantized(
        DeepSeek(), With(kFp8Block, {{"modules_to_not_convert", list}})));
  };
  EXPECT_EQ(with({"gate", "lm_head", "model.layers.0.mlp.gat"}),
            (Formats{kBlock, kBlock, kBlock, kBlock}));
  EXPECT_EQ(with({"self_attn"}), (Formats{kBf16, kBlock, kBlock, kBlock}));
  EXPECT_EQ(with({"model.layers.*.self_attn", "mlp.shared_experts"}),
            (Formats{kBf16, kBlock, kBlock, kBf16}));
  EXPECT_EQ(with({"mlp.experts"}), (Formats{kBlock, kBlock, kBf16, kBlock}));
  EXPECT_EQ(with({"model"}), (Formats{}));
  // Layers 0 and 1 of three dense ones: most of the class.
  EXPECT_EQ(with({"model.layers.0.", "model.layers.1."}),
            (Formats{kBlock, kBf16, kBlock, kBlock}));
  EXPECT_EQ(with({"model.layers.0."}),
            (Formats{kBlock, kBlock, kBlock, kBlock}));
}

TEST(ModelConfigTest, CompressedTensorsSpareWhatTheirPatternsSay) {
  const json ignore = {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                       "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"};
  EXPECT_EQ(FormatsOf(Quantized(DeepSeek(), Compressed(kInt4Weights, ignore))),
            (Formats{kBf16, kBf16, kInt4, kBf16}));
  // As in Kimi-K2.5: within the text part, names under a wrapper.
  json nested = {
      {"model_type", "wrapper"},
      {"text_config", Quantized(DeepSeek(), Compressed(kInt4Weights, ignore))}};
  EXPECT_EQ(FormatsOf(nested), (Formats{kBf16, kBf16, kInt4, kBf16}));
  nested["text_config"]["quantization_config"]["ignore"] = {
      "re:^language_model\\.model\\.layers\\.\\d+\\.self_attn",
      "model.language_model.layers.*.mlp.shared_experts"};
  EXPECT_EQ(FormatsOf(nested), (Formats{kBf16, kInt4, kInt4, kBf16}));
  // And outside of it.
  nested["quantization_config"] = nested["text_config"]["quantization_config"];
  nested["text_config"].erase("quantization_config");
  EXPECT_EQ(FormatsOf(nested), (Formats{kBf16, kInt4, kInt4, kBf16}));
  // Under its older name.
  json older = Llama();
  older["compression_config"] = Compressed(kInt4Weights);
  EXPECT_EQ(FormatsOf(older), (Formats{kInt4, kInt4, kBf16, kBf16}));
}

TEST(ModelConfigTest, CompressedTensorsKnowSeveralFormats) {
  const auto format = [](const json& weights) {
    return Parsed(Quantized(Llama(), Compressed(weights))).dense_weights;
  };
  EXPECT_EQ(
      format({{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}}),
      kFp8);
  EXPECT_EQ(
      format({{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}),
      kFp8);
  EXPECT_EQ(format({{"num_bits", 8},
                    {"type", "float"},
                    {"strategy", "block"},
                    {"block_structure", {128, 128}}}),
            kBlock);
  EXPECT_EQ(format({{"num_bits", 4}, {"type", "float"}, {"group_size", 16}}),
            kNvfp4);
  EXPECT_EQ(format({{"num_bits", 4}, {"type", "float"}, {"group_size", 32}}),
            kMxfp4);
}

TEST(ModelConfigTest, ModulesNamedOutrightGoBeforeTheirClass) {
  json config =
      Compressed({{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}});
  config["config_groups"]["group_1"] = {{"targets", {"re:.*experts\\.\\d+.*"}},
                                        {"weights", kInt4Weights}};
  EXPECT_EQ(FormatsOf(Quantized(DeepSeek(), config)),
            (Formats{kFp8, kFp8, kInt4, kFp8}));
}

TEST(ModelConfigTest, AwqAndGptqGroupFourBits) {
  EXPECT_EQ(FormatsOf(Quantized(Llama(),
                                {{"quant_method", "awq"},
                                 {"bits", 4},
                                 {"group_size", 32},
                                 {"modules_to_not_convert", {"self_attn"}}})),
            (Formats{kBf16, kInt4, kBf16, kBf16}));
  EXPECT_EQ(FormatsOf(Quantized(
                Llama(),
                {{"quant_method", "awq"}, {"w_bit", 4}, {"q_group_size", 32}})),
            (Formats{kInt4, kInt4, kBf16, kBf16}));
  const json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
  EXPECT_EQ(
      FormatsOf(Quantized(
          Mixtral(),
          With(gptq, {{"dynamic", {{"-:.*self_attn.*", json::object()}}}}))),
      (Formats{kBf16, kBf16, kInt4, kBf16}));
  EXPECT_EQ(
      FormatsOf(Quantized(
          QwenMoe(), With(gptq, {{"modules_in_block_to_quantize",
                                  {{"self_attn.q_proj", "self_attn.o_proj"},
                                   {"self_attn.k_proj"}}}}))),
      (Formats{kInt4, kBf16, kBf16, kBf16}));
}

TEST(ModelConfigTest, Mxfp4IsForExpertsOnly) {
  EXPECT_EQ(FormatsOf(Quantized(With(Mixtral(), {{"model_type", "gpt_oss"}}),
                                {{"quant_method", "mxfp4"}})),
            (Formats{kBf16, kBf16, kMxfp4, kBf16}));
}

TEST(ModelConfigTest, ModelOptSaysItsAlgorithm) {
  EXPECT_EQ(FormatsOf(Quantized(DeepSeek(),
                                {{"quant_method", "modelopt"},
                                 {"quant_algo", "NVFP4"},
                                 {"exclude_modules",
                                  {"model.layers.*.self_attn*", "lm_head"}}})),
            (Formats{kBf16, kNvfp4, kNvfp4, kNvfp4}));
  EXPECT_EQ(FormatsOf(Quantized(Llama(), {{"quant_method", "modelopt"},
                                          {"quant_algo", "FP8"}})),
            (Formats{kFp8, kFp8, kBf16, kBf16}));
}

TEST(ModelConfigTest, LinearLayersAreAskedByTheirOwnNames) {
  const auto with = [](const json& list) {
    return Parsed(
               Quantized(QwenNext(),
                         With(kFp8Block, {{"modules_to_not_convert", list}})))
        .attention_weights;
  };
  EXPECT_EQ(with({"linear_attn"}), kBf16);  // 6 layers of 8
  EXPECT_EQ(with({"self_attn"}), kBlock);
}

TEST(ModelConfigTest, KeyValueCacheMayBeQuantized) {
  const auto format = [](const json& changes) {
    return Parsed(Quantized(Llama(), With(kFp8Block, changes))).kv_cache_format;
  };
  EXPECT_EQ(format(json::object()), NumberFormat::kBf16);
  EXPECT_EQ(format({{"kv_cache_scheme", nullptr}}), NumberFormat::kBf16);
  EXPECT_EQ(format({{"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}}}}),
            NumberFormat::kFp8);
  EXPECT_EQ(format({{"kv_cache_scheme", {{"num_bits", 4}, {"type", "float"}}}}),
            NumberFormat::kNvfp4);
  EXPECT_EQ(format({{"kv_cache_quant_algo", "FP8"}}), NumberFormat::kFp8);
  EXPECT_EQ(format({{"kv_cache_quant_algo", "NVFP4"}}), NumberFormat::kNvfp4);
}

TEST(ModelConfigTest, QuantizationsThatAreOddAreRefusedByKey) {
  const auto llama = [](const json& quantization) {
    return Quantized(Llama(), quantization);
  };
  const json gptq = {
      {"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}};
  const auto group = [](const json& changes) {
    json config = Compressed(kInt4Weights);
    config["config_groups"]["group_0"].update(changes);
    return config;
  };
  ExpectRefusals({
      {llama("fp8"), "quantization_config is \"fp8\"; allowed: an object"},
      {llama(json::object()),
       "quantization_config.quant_method is missing; allowed: fp8, "
       "fbgemm_fp8, compressed-tensors, awq, gptq, mxfp4, modelopt"},
      {llama({{"quant_method", "bitsandbytes"}}),
       "quantization_config.quant_method is \"bitsandbytes\"; allowed: fp8, "
       "fbgemm_fp8, compressed-tensors, awq, gptq, mxfp4, modelopt"},
      {llama({{"quant_method", 8}}),
       "quantization_config.quant_method is 8; allowed: a text"},
      {llama(With(kFp8Block, {{"weight_block_size", {64, 64}}})),
       "quantization_config.weight_block_size is [64,64]; allowed: "
       "[128,128]"},
      {llama(With(kFp8Block, {{"ignored_layers", "lm_head"}})),
       "quantization_config.ignored_layers is \"lm_head\"; allowed: a list "
       "of names"},
      {llama(With(kFp8Block, {{"ignored_layers", {1}}})),
       "quantization_config.ignored_layers is 1; allowed: a list of names"},
      {llama(With(kFp8Block, {{"ignore", {"re:(?!x)"}}})),
       "quantization_config.ignore: pattern '(?!x)' has an unknown kind of "
       "group at byte 2; allowed: literals . \\. \\d \\w [] () (?:) | * + ? ^ "
       "$"},
      {llama(With(kFp8Block, {{"ignore", {std::string(1025, '*')}}})),
       "quantization_config.ignore: pattern '" + std::string(64, '*') +
           "...' is 1025 bytes long; allowed: at most 1024"},
      {llama(With(kFp8Block,
                  {{"kv_cache_scheme", {{"num_bits", 8}, {"type", "int"}}}})),
       "quantization_config.kv_cache_scheme is "
       "{\"num_bits\":8,\"type\":\"int\"}; allowed: num_bits 8 or 4 of type "
       "float"},
      {llama(With(kFp8Block, {{"kv_cache_quant_algo", "INT8"}})),
       "quantization_config.kv_cache_quant_algo is \"INT8\"; allowed: FP8, "
       "NVFP4"},
      {llama(With(gptq, {{"bits", 8}})),
       "quantization_config.bits is 8; allowed: 4"},
      {llama(With(gptq, {{"group_size", -1}})),
       "quantization_config.group_size is -1; allowed: 16 to 1024"},
      {llama(With(gptq, {{"group_size", nullptr}})),
       "quantization_config.group_size is missing; allowed: 16 to 1024"},
      {llama(With(gptq, {{"dynamic", 1}})),
       "quantization_config.dynamic is 1; allowed: an object"},
      {llama(With(gptq, {{"dynamic", {{"+:.*", {{"bits", 8}}}}}})),
       "quantization_config.dynamic is '+:.*'; allowed: only patterns that "
       "begin with -:"},
      {llama(With(gptq, {{"dynamic", {{"-:*", json::object()}}}})),
       "quantization_config.dynamic: pattern '*' has nothing to repeat at "
       "byte 0; allowed: literals . \\. \\d \\w [] () (?:) | * + ? ^ $"},
      {llama(With(gptq, {{"modules_in_block_to_quantize", 1}})),
       "quantization_config.modules_in_block_to_quantize is 1; allowed: a "
       "list of lists of names"},
      {llama({{"quant_method", "modelopt"}, {"quant_algo", "W4A8_AWQ"}}),
       "quantization_config.quant_algo is \"W4A8_AWQ\"; allowed: FP8, NVFP4"},
      {llama({{"quant_method", "compressed-tensors"}}),
       "quantization_config.config_groups is missing; allowed: an object "
       "with one group or more"},
      {llama({{"quant_method", "compressed-tensors"},
              {"config_groups", {{"a", 1}}}}),
       "quantization_config.config_groups.a is 1; allowed: an object"},
      {llama(group({{"weights", nullptr}})),
       "quantization_config.config_groups.group_0.weights is missing; "
       "allowed: an object"},
      {llama(group({{"targets", nullptr}})),
       "quantization_config.config_groups.group_0.targets is missing; "
       "allowed: a list"},
      {llama(group({{"weights", {{"num_bits", 8}, {"type", "int"}}}})),
       "quantization_config.config_groups.group_0.weights is "
       "{\"num_bits\":8,\"type\":\"int\"}; allowed: num_bits 4 of type int or "
       "float, or 8 of type float"},
      {llama(group({{"weights", {{"num_bits", 8}, {"type", "float"}}}})),
       "quantization_config.config_groups.group_0.weights.strategy is "
       "missing; allowed: tensor, channel, block"},
      {llama(group(
           {{"weights",
             {{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}}}})),
       "quantization_config.config_groups.group_0.weights.block_structure is "
       "missing; allowed: [128,128]"},
      {llama(
           group({{"weights",
                   {{"num_bits", 4}, {"type", "float"}, {"group_size", 8}}}})),
       "quantization_config.config_groups.group_0.weights.group_size is 8; "
       "allowed: 16, 32"},
  });
}

TEST(ModelConfigTest, HostileListsAreRefusedAndNotWorkedThrough) {
  std::string pattern = ".*";
  while (pattern.size() < 1000) pattern += "(a|.)*";
  json ignore = json::array();
  for (int i = 0; i < 1000; ++i) ignore.push_back("re:" + pattern + "z");
  const auto shape =
      Parse(Quantized(With(Llama(), {{"num_hidden_layers", 4096}}),
                      With(kFp8Block, {{"ignore", ignore}})));
  EXPECT_EQ(shape.status(),
            absl::InvalidArgumentError(
                "quantization_config has patterns that take over 50000000 "
                "steps to match; allowed: fewer or simpler patterns"));
}

TEST(ModelConfigTest, KeepsTheModelType) {
  EXPECT_EQ(Parsed(Mixtral()).model_type, "mixtral");
}

}  // namespace
}  // namespace fabricwise
