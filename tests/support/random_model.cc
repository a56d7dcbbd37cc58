// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_model.h"

#include <array>

namespace fabricwise {
namespace {

bool OneIn(std::mt19937& random, int64_t count) {
  return RandomBetween(random, 1, count) == 1;
}

WeightFormat RandomFormat(std::mt19937& random) {
  constexpr std::array kFormats = {WeightFormat{NumberFormat::kBf16},
                                   WeightFormat{NumberFormat::kFp8Block},
                                   WeightFormat{NumberFormat::kFp8},
                                   WeightFormat{NumberFormat::kInt4Group, 32},
                                   WeightFormat{NumberFormat::kInt4Group, 128},
                                   WeightFormat{NumberFormat::kMxfp4},
                                   WeightFormat{NumberFormat::kNvfp4}};
  return kFormats[static_cast<size_t>(
      RandomBetween(random, 0, static_cast<int64_t>(kFormats.size()) - 1))];
}

void AddAttention(std::mt19937& random, ModelShape& model) {
  model.num_attention_heads = 8 * RandomBetween(random, 1, 16);
  model.v_head_dim = 64 * RandomBetween(random, 1, 2);
  model.attention_weights = RandomFormat(random);
  if (OneIn(random, 3)) {
    model.attention_kind = AttentionKind::kMla;
    model.q_lora_rank = OneIn(random, 2) ? 1536 : 0;
    model.kv_lora_rank = 512;
    model.qk_nope_head_dim = 128;
    model.qk_rope_head_dim = 64;
    if (OneIn(random, 2)) {
      model.index_heads = 64;
      model.index_head_dim = 128;
      model.index_topk = 2048;
    }
    return;
  }
  model.head_dim = model.v_head_dim;
  model.num_key_value_heads = int64_t{1} << RandomBetween(random, 0, 3);
  if (OneIn(random, 3)) {
    model.num_sliding_layers = RandomBetween(random, 1, model.num_layers);
    model.sliding_window = 128 << RandomBetween(random, 0, 5);
  } else if (OneIn(random, 3)) {
    model.num_linear_layers = RandomBetween(random, 1, model.num_layers);
    model.linear_key_heads = 16;
    model.linear_value_heads = 32;
    model.linear_key_head_dim = 128;
    model.linear_value_head_dim = 128;
    model.linear_conv_kernel = 4;
  }
}

void AddExperts(std::mt19937& random, ModelShape& model) {
  model.num_experts = 8 * RandomBetween(random, 1, 48);
  model.experts_per_token = RandomBetween(random, 1, 8);
  model.moe_intermediate_size = 64 * RandomBetween(random, 4, 48);
  model.expert_weights = RandomFormat(random);
  if (OneIn(random, 2)) {
    model.shared_intermediate_size = model.moe_intermediate_size;
    model.shared_expert_weights = RandomFormat(random);
  }
}

}  // namespace

int64_t RandomBetween(std::mt19937& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random()) % (high - low + 1);
}

ModelShape RandomModel(std::mt19937& random) {
  ModelShape model{.name = "random"};
  model.hidden_size = 128 * RandomBetween(random, 4, 64);
  model.num_layers = RandomBetween(random, 1, 64);
  model.vocab_size = 1000 * RandomBetween(random, 8, 250);
  model.tie_word_embeddings = OneIn(random, 2);
  AddAttention(random, model);
  model.num_moe_layers =
      OneIn(random, 3) ? 0 : RandomBetween(random, 1, model.num_layers);
  model.num_dense_layers = model.num_layers - model.num_moe_layers;
  if (model.num_dense_layers > 0) {
    model.intermediate_size = 128 * RandomBetween(random, 8, 160);
    model.dense_weights = RandomFormat(random);
  }
  if (model.is_moe()) AddExperts(random, model);
  return model;
}

}  // namespace fabricwise
