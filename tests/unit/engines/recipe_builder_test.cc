// SPDX-License-Identifier: Apache-2.0
#include "server/engines/recipe_builder.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/domain/model_shape.h"
#include "server/engines/divisibility.h"
#include "tests/support/random_model.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;
using enum CollectiveOp;

constexpr EngineId kVllm = EngineId::kVllm;
constexpr EngineId kReference = EngineId::kReference;
constexpr double kGB = 1e9;

TEST(KimiInVllm, AllReducesTwiceALayerAndAfterTheEmbedding) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  for (const char* mode : {"TP8", "TP8+EP8"}) {
    const Recipe recipe = RecipeOf(kVllm, kimi, mode);
    EXPECT_EQ(CollectiveOf(recipe, "all_reduce attention").count, 61);
    EXPECT_EQ(CollectiveOf(recipe, "all_reduce experts").count, 60);
    EXPECT_EQ(CollectiveOf(recipe, "all_reduce dense layers").count, 1);
    EXPECT_EQ(CollectiveOf(recipe, "all_reduce embedding").count, 1);
    EXPECT_EQ(CountOf(recipe, kAllReduce), 2 * 61 + 1);
    EXPECT_EQ(CollectiveOf(recipe, "all_gather logits").count, 1);
    EXPECT_EQ(CountOf(recipe, kAllGather), 1);
    EXPECT_THAT(recipe.exchanges, IsEmpty());
  }
}

TEST(KimiInVllm, SendsTokensTimesHiddenTimesTwoBytes) {
  const Recipe recipe = RecipeOf(kVllm, Preset("Kimi-K2.5"), "TP8");
  for (const char* name : {"all_reduce attention", "all_reduce experts",
                           "all_reduce dense layers", "all_reduce embedding"}) {
    const CollectiveUse& use = CollectiveOf(recipe, name);
    ASSERT_THAT(use.steps, SizeIs(1)) << name;
    EXPECT_EQ(use.steps[0].bytes_per_token, 14'336) << name;
    EXPECT_EQ(use.steps[0].tokens, TokenBasis::kRank) << name;
    EXPECT_EQ(use.group_size, 8) << name;
  }
  const CollectiveStep logits =
      CollectiveOf(recipe, "all_gather logits").steps[0];
  EXPECT_EQ(logits.bytes_per_token, 2 * 163'840);
  EXPECT_EQ(logits.tokens, TokenBasis::kOutput);
}

TEST(KimiInVllm, WithAttentionDataParallelismOnlyMovesExpertTokens) {
  const Recipe recipe = RecipeOf(kVllm, Preset("Kimi-K2.5"), "DP8+EP8");
  ASSERT_THAT(recipe.collectives, SizeIs(2));
  const CollectiveUse& gather =
      CollectiveOf(recipe, "all_gather expert tokens");
  const CollectiveUse& scatter =
      CollectiveOf(recipe, "reduce_scatter expert outputs");
  for (const CollectiveUse* use : {&gather, &scatter}) {
    EXPECT_EQ(use->count, 60);
    EXPECT_EQ(use->group_size, 8);
    EXPECT_EQ(use->steps[0].tokens, TokenBasis::kStage);
  }
  // With eight experts' weights and ids.
  EXPECT_EQ(gather.steps[0].bytes_per_token, 14'336 + 8 * 8);
  EXPECT_EQ(scatter.steps[0].bytes_per_token, 14'336);
}

TEST(KimiInVllm, WithBothKindsOfAttentionParallelismScattersItsSums) {
  const Recipe recipe = RecipeOf(kVllm, Preset("Kimi-K2.5"), "DP2xTP4+EP8");
  // The dense layer stays whole; so does the embedding.
  EXPECT_EQ(CollectiveOf(recipe, "all_reduce attention").count, 1);
  EXPECT_EQ(CollectiveOf(recipe, "all_reduce dense layers").count, 1);
  EXPECT_EQ(CollectiveOf(recipe, "all_reduce embedding").count, 1);
  const CollectiveUse& attention =
      CollectiveOf(recipe, "reduce_scatter + all_gather attention");
  EXPECT_EQ(attention.count, 60);
  EXPECT_EQ(attention.group_size, 4);
  ASSERT_THAT(attention.steps, SizeIs(2));
  EXPECT_EQ(attention.steps[0].op, kReduceScatter);
  EXPECT_EQ(attention.steps[1].op, kAllGather);
  ASSERT_TRUE(attention.stand_in.has_value());
  EXPECT_EQ(attention.stand_in->step.op, kAllReduce);
  EXPECT_EQ(CollectiveOf(recipe, "all_gather expert tokens").group_size, 8);
  // Each tensor-parallel rank routes its slice of the rank's tokens, and runs
  // the shared expert whole on it.
  const GemmUse& shared =
      GemmOf(recipe, "shared expert gate and up projection");
  EXPECT_EQ(shared.rows, TokenBasis::kRankSlice);
  EXPECT_EQ(shared.n, 2 * 2048);
  EXPECT_EQ(GemmOf(recipe, "router").rows, TokenBasis::kRankSlice);
}

TEST(Kimi, KeepsItsLatentAttentionWholeOnEveryRank) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  for (const char* mode : {"TP1", "TP8"}) {
    const Recipe recipe = RecipeOf(kReference, kimi, mode);
    const int64_t heads = 64 / recipe.plan.attention_tp;
    EXPECT_EQ(GemmOf(recipe, "latent down projection").n, 1536 + 512 + 64);
    EXPECT_EQ(GemmOf(recipe, "query up projection").n, heads * (128 + 64));
    EXPECT_EQ(GemmOf(recipe, "output projection").k, heads * 128);
    ASSERT_THAT(recipe.attention, SizeIs(1));
    EXPECT_TRUE(recipe.attention[0].latent);
    EXPECT_EQ(recipe.attention[0].q_heads, heads);
    EXPECT_EQ(recipe.attention[0].kv_bytes_per_token, 1152);
    EXPECT_EQ(recipe.memory.kv_bytes_per_token, 70'272);
  }
}

// Bytes of one GPU's routed experts, from what the recipe runs.
double RoutedBytes(const Recipe& recipe) {
  const ExpertsUse& use = recipe.experts[0];
  return use.count * 3 * static_cast<double>(use.num_experts) *
         static_cast<double>(use.hidden_size) *
         static_cast<double>(use.intermediate_size) / use.moe_tp /
         use.expert_parallel * BytesPerWeight(use.format);
}

TEST(Kimi, TakesTheMemoryThatWasWorkedOutByHand) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  for (const char* mode : {"TP8", "TP8+EP8", "DP8+EP8"}) {
    EXPECT_NEAR(RoutedBytes(RecipeOf(kVllm, kimi, mode)), 71.3 * kGB, 0.1 * kGB)
        << mode;
  }
  // 12.3 of attention, 4.7 of embedding and head, 5.3 of shared experts, 0.8 of
  // the dense layer; the routers, bf16 as well, are 0.3.
  const Recipe split = RecipeOf(kVllm, kimi, "DP8+EP8");
  EXPECT_NEAR(split.memory.weights_bytes - RoutedBytes(split),
              (12.3 + 4.7 + 5.3 + 0.8 + 0.33) * kGB, 0.1 * kGB);
  // Sharded eight ways but for the latent projections and the routers.
  const Recipe whole = RecipeOf(kVllm, kimi, "TP8");
  EXPECT_NEAR(whole.memory.weights_bytes - RoutedBytes(whole),
              (4.7 + 5.3 + 0.8) / 8 * kGB + 0.33 * kGB +
                  61 * 2 * (7168. * 2112 + 79.8e6 / 8 + 5.9e6 / 8),
              0.35 * kGB);
}

TEST(TokenBytes, AreThoseOfDeepEp) {
  EXPECT_EQ(Fp8TokenBytes(7168), 7392);
  EXPECT_EQ(Bf16DispatchRatio(7168), 14352. / 7408);
  // Of 256 experts and tokens: two buffers of received and of combined tokens,
  // and what the experts are given.
  EXPECT_EQ(LowLatencyBytes(7168, 256, 256, /*fp8=*/false),
            256. * 256 * (2 * 14352 + 2 * 14336 + 14336));
  EXPECT_EQ(LowLatencyBytes(7168, 256, 256, /*fp8=*/true),
            256. * 256 * (2 * 14352 + 2 * 14336 + 7168));
}

TEST(Weights, AreWhatTheModelHas) {
  for (const char* name : {"Llama-3.1-70B", "Qwen3-235B-A22B", "Kimi-K2.5",
                           "gpt-oss-120b", "Qwen3-Next-80B-A3B"}) {
    ModelShape model = Preset(name);
    model.attention_weights = model.dense_weights = model.expert_weights =
        model.shared_expert_weights = WeightFormat{};
    const Recipe recipe = RecipeOf(kVllm, model, "TP1");
    EXPECT_NEAR(recipe.memory.weights_bytes / (2 * CountParameters(model)), 1,
                0.01)
        << name;
  }
}

TEST(Weights, HaveOneTableWhereItIsTiedOrOnAnotherStage) {
  ModelShape model = Preset("Llama-3.1-8B");
  const double table = 2.0 * 128'256 * 4096;
  const double two = RecipeOf(kVllm, model, "TP1").memory.weights_bytes;
  model.tie_word_embeddings = true;
  EXPECT_EQ(RecipeOf(kVllm, model, "TP1").memory.weights_bytes, two - table);
  EXPECT_EQ(RecipeOf(kVllm, model, "PP2").memory.weights_bytes,
            (two - 2 * table) / 2 + table);
}

TEST(GroupedAttention, RepeatsKvHeadsBeyondTheirNumber) {
  const ModelShape& qwen = Preset("Qwen3-235B-A22B");  // 64 q heads, 4 of KV
  for (const auto& [mode, q, kv] :
       {std::tuple{"TP1", 64, 4}, {"TP4", 16, 1}, {"TP8", 8, 1}}) {
    const Recipe recipe = RecipeOf(kReference, qwen, mode);
    EXPECT_EQ(recipe.attention[0].q_heads, q) << mode;
    EXPECT_EQ(recipe.attention[0].kv_heads, kv) << mode;
    EXPECT_EQ(recipe.attention[0].kv_bytes_per_token, kv * 2 * 128 * 2) << mode;
    EXPECT_EQ(recipe.memory.kv_bytes_per_token, 94 * kv * 2 * 128 * 2) << mode;
    EXPECT_EQ(GemmOf(recipe, "qkv projection").n, (q + 2 * kv) * 128) << mode;
  }
}

TEST(SlidingLayers, ReadAndKeepTheirWindowOnly) {
  const ModelShape& model = Preset("gpt-oss-120b");
  ASSERT_GT(model.num_sliding_layers, 0);
  const Recipe recipe = RecipeOf(kReference, model, "TP1");
  ASSERT_THAT(recipe.attention, SizeIs(2));
  const AttentionUse &whole = recipe.attention[0],
                     &window = recipe.attention[1];
  EXPECT_EQ(whole.count, static_cast<double>(model.num_full_layers()));
  EXPECT_EQ(whole.window, 0);
  EXPECT_EQ(window.count, static_cast<double>(model.num_sliding_layers));
  EXPECT_EQ(window.window, model.sliding_window);
  EXPECT_EQ(recipe.memory.window_tokens, model.sliding_window);
  EXPECT_EQ(recipe.memory.kv_bytes_per_token,
            whole.count * whole.kv_bytes_per_token);
  EXPECT_EQ(recipe.memory.window_kv_bytes_per_token,
            window.count * window.kv_bytes_per_token);
}

TEST(SparseAttention, ReadsChosenTokensAndEveryIndexKey) {
  const ModelShape& model = Preset("DeepSeek-V3.2");
  ASSERT_GT(model.index_topk, 0);
  const Recipe recipe = RecipeOf(kReference, model, "TP8");
  EXPECT_EQ(recipe.attention[0].window, model.index_topk);
  EXPECT_EQ(recipe.attention[0].index_bytes_per_token, model.index_head_dim);
  EXPECT_EQ(GemmOf(recipe, "index projection").n,
            model.index_heads * model.index_head_dim);
  EXPECT_EQ(recipe.memory.kv_bytes_per_token,
            static_cast<double>(model.num_layers) *
                (recipe.attention[0].kv_bytes_per_token +
                 static_cast<double>(model.index_head_dim)));
}

TEST(LinearAttention, KeepsAStateOfFixedSize) {
  const ModelShape& model = Preset("Qwen3-Next-80B-A3B");
  ASSERT_GT(model.num_linear_layers, 0);
  const double state = 4.0 * static_cast<double>(model.linear_value_heads *
                                                 model.linear_value_head_dim *
                                                 model.linear_key_head_dim);
  const Recipe whole = RecipeOf(kReference, model, "TP1");
  ASSERT_THAT(whole.states, SizeIs(1));
  EXPECT_EQ(whole.states[0].bytes_per_sequence, 2 * state);  // read, written
  EXPECT_EQ(whole.states[0].count,
            static_cast<double>(model.num_linear_layers));
  EXPECT_EQ(whole.memory.state_bytes_per_sequence,
            static_cast<double>(model.num_linear_layers) * state);
  EXPECT_EQ(whole.attention[0].count,
            static_cast<double>(model.num_full_layers()));
  const Recipe half = RecipeOf(kReference, model, "TP2");
  EXPECT_EQ(half.states[0].bytes_per_sequence, state);
}

TEST(SharedExperts, AreSplitWhereTokensAreReplicated) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const char* const name = "shared expert gate and up projection";
  EXPECT_EQ(GemmOf(RecipeOf(kVllm, kimi, "TP8"), name).n, 2 * 2048 / 8);
  EXPECT_EQ(GemmOf(RecipeOf(kVllm, kimi, "TP8+EP8"), name).n, 2 * 2048 / 8);
  EXPECT_EQ(GemmOf(RecipeOf(kVllm, kimi, "DP8+EP8"), name).n, 2 * 2048);
  const Recipe unsplit =
      BuildRecipe(kimi, PlanOf(kimi, "TP8"), {.shard_shared_experts = false});
  EXPECT_EQ(GemmOf(unsplit, name).n, 2 * 2048);
  EXPECT_GT(unsplit.memory.weights_bytes,
            RecipeOf(kVllm, kimi, "TP8").memory.weights_bytes);
}

TEST(Pipeline, CrossesBoundariesInPartsAndGathersThem) {
  const ModelShape& llama = Preset("Llama-3.1-70B");  // hidden 8192
  const Recipe recipe = RecipeOf(kVllm, llama, "PP2xTP4");
  const CollectiveUse& send = CollectiveOf(recipe, "send_recv stage boundary");
  EXPECT_EQ(send.section, Section::kBoundary);
  EXPECT_EQ(send.group_size, 2);
  // Hidden states and residual, a quarter from each rank.
  EXPECT_EQ(send.steps[0].bytes_per_token, 2 * 8192 * 2 / 4);
  // Half of an all-to-all's buffer goes to the other rank.
  ASSERT_TRUE(send.stand_in.has_value());
  EXPECT_EQ(send.stand_in->step.op, CollectiveOp::kAllToAll);
  EXPECT_EQ(send.stand_in->step.bytes_per_token,
            2 * send.steps[0].bytes_per_token);
  EXPECT_TRUE(send.stand_in->upper_bound);
  const CollectiveUse& gather =
      CollectiveOf(recipe, "all_gather stage boundary");
  EXPECT_EQ(gather.group_size, 4);
  EXPECT_EQ(gather.steps[0].bytes_per_token, 2 * 8192 * 2);

  const Recipe bare = RecipeOf(kReference, llama, "PP8");
  ASSERT_THAT(bare.collectives, SizeIs(1));
  EXPECT_EQ(bare.collectives[0].steps[0].bytes_per_token, 8192 * 2);
}

TEST(Pipeline, KeepsTheFullestStageInMemory) {
  const ModelShape& kimi = Preset("Kimi-K2.5");  // 61 layers: 16 in a quarter
  const Recipe whole = RecipeOf(kReference, kimi, "TP1");
  const Recipe quarter = RecipeOf(kReference, kimi, "PP4");
  const double table = 2.0 * 163'840 * 7168;
  EXPECT_NEAR(quarter.memory.weights_bytes,
              (whole.memory.weights_bytes - 2 * table) * 16 / 61 + table, 1);
  EXPECT_NEAR(quarter.memory.kv_bytes_per_token, 16 * 1152, 1e-6);
}

TEST(Communicators, TakeMemoryWhereThereAreAny) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(RecipeOf(kReference, kimi, "TP1").memory.communicator_bytes, 0);
  const double one =
      RecipeOf(kReference, kimi, "TP8").memory.communicator_bytes;
  EXPECT_GT(one, 0);
  EXPECT_EQ(
      RecipeOf(kReference, kimi, "PP2xDP2xTP2+EP4").memory.communicator_bytes,
      3 * one);
}

TEST(AllToAll, SendsEveryTokenOfARankToEveryRank) {
  const Recipe recipe =
      RecipeOf(kReference, Preset("Kimi-K2.5"), "DP8+EP8:a2a");
  for (const char* name : {"all_to_all dispatch", "all_to_all combine"}) {
    const CollectiveUse& use = CollectiveOf(recipe, name);
    EXPECT_EQ(use.count, 60);
    EXPECT_EQ(use.steps[0].op, kAllToAll);
    EXPECT_EQ(use.steps[0].bytes_per_token, 14'336 * 8);
    EXPECT_EQ(use.steps[0].tokens, TokenBasis::kRankSlice);
  }
}

TEST(DeepEp, ExchangesThroughTheLibrary) {
  for (const auto& [transport, implementation] :
       {std::pair{ExpertTransport::kDeepEpLowLatency,
                  ExchangeImpl::kDeepEpLowLatency},
        {ExpertTransport::kDeepEpHighThroughput,
         ExchangeImpl::kDeepEpHighThroughput}}) {
    const ModelShape& kimi = Preset("Kimi-K2.5");
    Plan plan = PlanOf(kimi, "DP8+EP8");
    plan.transport = transport;
    const Recipe recipe = BuildRecipe(kimi, plan, {});
    EXPECT_THAT(recipe.collectives, IsEmpty());
    ASSERT_THAT(recipe.exchanges, SizeIs(1));
    const ExchangeUse& use = recipe.exchanges[0];
    EXPECT_EQ(use.implementation, implementation);
    EXPECT_EQ(use.count, 60);
    EXPECT_EQ(use.group_size, 8);
    EXPECT_EQ(use.hidden_size, 7168);
    EXPECT_EQ(use.num_experts, 384);
    EXPECT_EQ(use.experts_per_token, 8);
  }
}

TEST(CommonRefusal, NamesTheDimensionThatDoesNotDivide) {
  const ModelShape& llama = Preset("Llama-3.1-70B");
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(RefusalOf(kReference, llama, "TP8"), "");
  EXPECT_EQ(RefusalOf(kReference, llama, "TP6"),
            "num_attention_heads 64 is not a multiple of TP 6");
  EXPECT_EQ(RefusalOf(kReference, kimi, "TP3"),
            "num_attention_heads 64 is not a multiple of TP 3");
  EXPECT_EQ(RefusalOf(kReference, kimi, "DP3"),
            "moe_intermediate_size 2048 is not a multiple of MoE TP 3");
  EXPECT_EQ(RefusalOf(kReference, llama, "PP81"),
            "PP 81 exceeds num_layers 80");
  EXPECT_EQ(RefusalOf(kReference, Preset("Mixtral-8x7B"), "DP16+EP16"),
            "EP 16 exceeds num_experts 8");

  ModelShape odd = llama;
  odd.num_attention_heads = 48;
  odd.num_key_value_heads = 6;
  EXPECT_EQ(RefusalOf(kReference, odd, "TP4"),
            "num_key_value_heads 6 and TP 4 do not divide one another");
  EXPECT_EQ(RefusalOf(kReference, odd, "TP3"),
            "intermediate_size 28672 is not "
            "a multiple of TP 3");
  EXPECT_EQ(RefusalOf(kReference, odd, "TP12"),
            "intermediate_size 28672 is "
            "not a multiple of TP 12");
  ModelShape linear = Preset("Qwen3-Next-80B-A3B");
  linear.linear_key_heads = 2;
  EXPECT_EQ(RefusalOf(kReference, linear, "TP4"),
            "linear_key_heads 2 is not a multiple of TP 4");
}

// Whatever the model, one GPU's share of a plan that is not refused adds up:
// experts, attention heads and weights of all ranks are the whole at least.
TEST(AnyRecipe, SharesTheWholeModelOut) {
  std::mt19937 random(3);
  int checked = 0;
  for (int i = 0; i < 400; ++i) {
    const ModelShape model = RandomModel(random);
    ASSERT_TRUE(Validate(model).ok()) << Validate(model);
    const int t = 1 << RandomBetween(random, 0, 3);
    const int d = model.is_moe() ? 1 << RandomBetween(random, 0, 1) : 1;
    const Plan plan{.pipeline = 1 << RandomBetween(random, 0, 1),
                    .attention_dp = d,
                    .attention_tp = t,
                    .expert_parallel = model.is_moe() ? t * d : 1,
                    .transport = d > 1
                                     ? ExpertTransport::kAllGatherReduceScatter
                                     : ExpertTransport::kNone};
    if (CommonRefusal(model, plan)) continue;
    ++checked;
    const Recipe recipe = BuildRecipe(model, plan, {});
    const double gpus = plan.gpus();
    EXPECT_GE(recipe.memory.weights_bytes * gpus * 1.001,
              0.5 * CountParameters(model));
    EXPECT_LE(recipe.memory.weights_bytes * gpus,
              2.1 * gpus * CountParameters(model));
    double softmax_layers = 0;
    for (const AttentionUse& use : recipe.attention) {
      EXPECT_EQ(use.q_heads * t, model.num_attention_heads);
      softmax_layers += use.count;
    }
    EXPECT_EQ(softmax_layers,
              static_cast<double>(model.num_layers - model.num_linear_layers));
    for (const GemmUse& use : recipe.gemms) {
      EXPECT_GT(use.n, 0) << use.name;
      EXPECT_GT(use.k, 0) << use.name;
      EXPECT_GT(use.count, 0) << use.name;
    }
    for (const CollectiveUse& use : recipe.collectives) {
      EXPECT_GT(use.group_size, 1) << use.name;
      EXPECT_GT(use.count, 0) << use.name;
      EXPECT_THAT(use.paths, ::testing::Not(IsEmpty())) << use.name;
    }
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace fabricwise
