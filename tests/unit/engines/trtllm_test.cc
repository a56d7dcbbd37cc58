// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engines/engine.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using enum CollectiveOp;

constexpr EngineId kTrtllm = EngineId::kTrtllm;

std::string Refusal(const ModelShape& model, const std::string& mode,
                    const Fingerprint& node = Node(8)) {
  return RefusalOf(kTrtllm, model, mode, node);
}

Fingerprint OfCapability(int capability) {
  Fingerprint node = Node(8);
  for (Gpu& gpu : node.gpus) gpu.compute_capability = capability;
  return node;
}

TEST(Trtllm, SaysThatItsRulesAreInDoubt) {
  EXPECT_THAT(std::string(GetEngine(kTrtllm).caveat()),
              HasSubstr("low confidence"));
}

TEST(Trtllm, SplitsExpertsBothWays) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  for (const char* mode : {"TP8", "TP8+EP8", "TP8+EP2xMTP4", "DP8", "DP8+EP8",
                           "DP8+EP2xMTP4", "DP8+EP8:deepep-ll", "PP2xTP4"}) {
    EXPECT_EQ(Refusal(kimi, mode), "") << mode;
  }
}

TEST(Trtllm, TakesAttentionDataParallelismOverAWholeStageOrNot) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(Refusal(kimi, "DP2xTP4+EP8"),
            "attention data parallelism takes all 8 GPUs of a stage or none, "
            "not 2");
  EXPECT_EQ(Refusal(kimi, "2xDP4+EP4"), "");
  const Plan plan{.attention_dp = 8};
  EXPECT_EQ(GetEngine(kTrtllm).Refusal(Preset("Llama-3.1-70B"), plan, Node(8),
                                       Gpus(plan).replicas.front()),
            "data-parallel ranks of a dense model are independent replicas");
}

TEST(Trtllm, RefusesWhatTheKernelsOfSm120Do) {
  ModelShape nvfp4 = Preset("Kimi-K2.5");
  nvfp4.expert_weights = {NumberFormat::kNvfp4};
  const Fingerprint sm120 = OfCapability(120);
  EXPECT_EQ(Refusal(nvfp4, "TP8", sm120), "");
  EXPECT_EQ(Refusal(nvfp4, "TP8+EP8", sm120),
            "nvfp4 experts on sm120 need EP 1, not 8");
  EXPECT_EQ(Refusal(nvfp4, "DP8", sm120),
            "nvfp4 experts on sm120 allow no attention data parallelism");
  EXPECT_EQ(Refusal(nvfp4, "TP8+EP8", OfCapability(100)), "");
  EXPECT_EQ(Refusal(Preset("Kimi-K2.5"), "TP8+EP8", sm120), "");
}

TEST(Trtllm, GivesDeepEpTheWholeStageEqualSharesAndNvlink) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  Plan plan = PlanOf(kimi, "DP8+EP4xMTP2");
  plan.transport = ExpertTransport::kDeepEpLowLatency;
  EXPECT_EQ(GetEngine(kTrtllm).Refusal(kimi, plan, Node(8),
                                       Gpus(plan).replicas.front()),
            "DeepEP needs EP over all 8 GPUs of a stage, not 4");
  ModelShape odd = kimi;
  odd.num_experts = 380;
  EXPECT_EQ(Refusal(odd, "DP8+EP8:deepep-ll"),
            "num_experts 380 is not a multiple of EP 8");
  EXPECT_EQ(Refusal(odd, "DP8+EP8"), "");  // gathers where they do not divide
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll", Node(8, false)),
            "DeepEP needs NVLink between all GPUs of a stage; some pairs have "
            "none");
  Fingerprint unknown = Node(8);
  unknown.nvlinks.clear();
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll", unknown),
            "DeepEP needs NVLink between all GPUs of a stage; the profile does "
            "not say which have it");
}

TEST(Trtllm, SplitsWidthsOfDeepSeekIntoWholeBlocks) {
  const ModelShape& deepseek = Preset("DeepSeek-V3");
  // 18432 and 2048 are 144 and 16 blocks of 128.
  const auto width = [&](const char* mode, const char* name) {
    return GemmOf(RecipeOf(kTrtllm, deepseek, mode, Node(32)), name).k;
  };
  EXPECT_EQ(width("TP8", "down projection"), 18'432 / 8);
  EXPECT_EQ(width("TP32", "down projection"), 18'432 / 16);
  EXPECT_EQ(width("TP32", "shared expert down projection"), 2048 / 16);
  EXPECT_EQ(width("DP8+EP8", "down projection"), 18'432);
  EXPECT_EQ(width("DP8+EP8", "shared expert down projection"), 2048);
}

TEST(Trtllm, GathersTokensAsTheExpertsTakeThem) {
  struct Row {
    NumberFormat format;
    double bytes;
  };
  const Row rows[] = {
      {NumberFormat::kFp8Block, 7168 + 4 * 56}, {NumberFormat::kFp8, 7168},
      {NumberFormat::kNvfp4, 3584 + 448},       {NumberFormat::kBf16, 14'336},
      {NumberFormat::kInt4Group, 14'336},       {NumberFormat::kMxfp4, 14'336}};
  for (const Row& row : rows) {
    ModelShape model = Preset("DeepSeek-V3");
    model.expert_weights = {row.format};
    for (const char* mode : {"DP8", "DP8+EP8"}) {
      const Recipe recipe = RecipeOf(kTrtllm, model, mode);
      EXPECT_EQ(CountOf(recipe, kAllReduce), 0);
      const CollectiveUse& gather =
          CollectiveOf(recipe, "all_gather expert tokens");
      EXPECT_EQ(gather.count, 58);
      EXPECT_EQ(gather.steps[0].bytes_per_token, row.bytes)
          << ToString(row.format);
      EXPECT_EQ(CollectiveOf(recipe, "reduce_scatter expert outputs")
                    .steps[0]
                    .bytes_per_token,
                14'336);
    }
  }
}

struct PathRow {
  const char* what;
  Fingerprint node;
  const char* mode;
  bool own;
};

TEST(Trtllm, TakesItsOwnAllReduceOverNvlinkAlone) {
  Fingerprint no_peers = Node(8);
  for (auto& row : no_peers.peer_access) row.assign(row.size(), false);
  Fingerprint peers = Node(8, false);
  for (auto& row : peers.peer_access) row.assign(row.size(), true);
  const PathRow rows[] = {
      {"2 with NVLink", Node(8), "TP2", true},
      {"8 with NVLink", Node(8), "TP8", true},
      {"16 with NVLink", Node(16), "TP16", false},
      {"no peer access", no_peers, "TP8", false},
      {"no NVLink", peers, "TP2", false},
  };
  for (const PathRow& row : rows) {
    const Recipe recipe =
        RecipeOf(kTrtllm, Preset("Llama-3.1-70B"), row.mode, row.node);
    const auto& paths = CollectiveOf(recipe, "all_reduce attention").paths;
    CollectivePaths expected = {{CollectiveImpl::kNccl}};
    if (row.own) {
      expected = {
          {CollectiveImpl::kTrtllm, CollectiveKernel::kOneShot, 128 * 2 * 8192},
          {CollectiveImpl::kTrtllm, CollectiveKernel::kTwoShot, 64 << 20},
          {CollectiveImpl::kNccl}};
    }
    EXPECT_EQ(paths, expected) << row.what;
    EXPECT_EQ(recipe.fused.max_bytes, row.own ? 64 << 20 : 0) << row.what;
  }
}

TEST(Trtllm, LeavesATenthOfFreeMemory) {
  const Recipe recipe = RecipeOf(kTrtllm, Preset("Kimi-K2.5"), "TP8");
  EXPECT_EQ(recipe.memory.usable_fraction, 1);
  EXPECT_EQ(recipe.memory.kv_fraction, 0.9);
  EXPECT_EQ(recipe.chunk_tokens, 8192);
}

LaunchAdvice Launch(const std::string& model, const std::string& mode,
                    int64_t concurrency, const Fingerprint& node = Node(8),
                    int64_t input_tokens = 1024) {
  const ModelShape& shape = Preset(model);
  const Plan plan = PlanOf(shape, mode);
  return GetEngine(kTrtllm).Launch(
      shape, plan, {.concurrency = concurrency, .input_tokens = input_tokens},
      node, Gpus(plan));
}

TEST(Trtllm, LaunchesReplicasEachWithItsConfiguration) {
  EXPECT_THAT(
      Launch("Llama-3.1-70B", "2xTP4", 65).commands,
      ElementsAre(
          "CUDA_VISIBLE_DEVICES=0,1,2,3 trtllm-serve meta-llama/Llama-3.1-70B "
          "--tp_size 4 --max_batch_size 33 "
          "--kv_cache_free_gpu_memory_fraction 0.9 --port 8000 "
          "--config /dev/stdin <<'YAML'\n"
          "cuda_graph_config:\n"
          "  enable_padding: true\n"
          "  max_batch_size: 33\n"
          "YAML",
          "CUDA_VISIBLE_DEVICES=4,5,6,7 trtllm-serve meta-llama/Llama-3.1-70B "
          "--tp_size 4 --max_batch_size 33 "
          "--kv_cache_free_gpu_memory_fraction 0.9 --port 8001 "
          "--config /dev/stdin <<'YAML'\n"
          "cuda_graph_config:\n"
          "  enable_padding: true\n"
          "  max_batch_size: 33\n"
          "YAML"));
}

TEST(Trtllm, LaunchesWithoutVariablesButThoseOfExpertTransport) {
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 1).environment, IsEmpty());
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8", 1).environment, IsEmpty());
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8+EP8", 1).environment,
              ElementsAre("TRTLLM_FORCE_COMM_METHOD=ALLGATHER"));
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8+EP8:deepep-ll", 1).environment,
              ElementsAre("TRTLLM_FORCE_COMM_METHOD=DEEPEPLOWLATENCY",
                          "TRTLLM_DEEP_EP_TOKEN_LIMIT=256"));
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8+EP8", 64).commands[0],
              HasSubstr(" --max_batch_size 8 "));
}

TEST(Trtllm, ChunksPromptsThatDoNotFitOneStep) {
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 1, Node(8), 8192).commands[0],
              Not(HasSubstr("chunked")));
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 1, Node(8), 8193).commands[0],
              HasSubstr(" --enable_chunked_prefill "));
}

TEST(Trtllm, StoresTheCacheAsTheModelDoes) {
  ModelShape model = Preset("Kimi-K2.5");
  model.kv_cache_format = NumberFormat::kFp8;
  const Plan plan = PlanOf(model, "TP8");
  EXPECT_THAT(GetEngine(kTrtllm)
                  .Launch(model, plan, {}, Node(8), Gpus(plan))
                  .commands[0],
              HasSubstr("\nkv_cache_config:\n  dtype: fp8\n"
                        "  free_gpu_memory_fraction: 0.9\n"));
}

TEST(Trtllm, KeepsOffPeerCopiesThatAreBroken) {
  Fingerprint broken = Node(8);
  broken.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  const LaunchAdvice advice = Launch("Kimi-K2.5", "TP8", 1, broken);
  EXPECT_THAT(advice.environment, ElementsAre("NCCL_P2P_DISABLE=1"));
  EXPECT_THAT(advice.commands[0], HasSubstr("\nallreduce_strategy: NCCL\n"));
}

TEST(Trtllm, HasNoOptionsOfPlans) {
  EXPECT_EQ(Refusal(Preset("Kimi-K2.5"), "DP8+EP8:deepep-ll+tbo"),
            "there is no two-batch overlap");
  EXPECT_EQ(Refusal(Preset("Kimi-K2.5"), "DP8+EP8+fp8d"),
            "8-bit dispatch is no option: it goes by the experts' format");
}

TEST(Trtllm, DispatchesByDeepEpInTheFormatOfTheExperts) {
  using enum NumberFormat;
  for (const NumberFormat format :
       {kBf16, kFp8Block, kFp8, kInt4Group, kMxfp4, kNvfp4}) {
    ModelShape model = Preset("DeepSeek-V3");
    model.expert_weights = {format, format == kInt4Group ? 32 : 0};
    const ExchangeUse use =
        RecipeOf(kTrtllm, model, "DP8+EP8:deepep-ll").exchanges[0];
    const bool as_it_is = format != kFp8 && format != kNvfp4;
    EXPECT_NEAR(use.dispatch_ratio, as_it_is ? 14352. / 7408 : 1, 1e-12)
        << ToString(format);
    EXPECT_EQ(!use.note.empty(), as_it_is) << ToString(format);
  }
}

// Its buffers are made for so many tokens of a rank; longer steps gather.
TEST(Trtllm, LimitsDeepEpToDecodeStepsOfTheTokensOfItsBuffers) {
  const ModelShape& deepseek = Preset("DeepSeek-V3");
  const Recipe recipe = RecipeOf(kTrtllm, deepseek, "DP8+EP8:deepep-ll");
  ASSERT_EQ(recipe.exchanges.size(), 1u);
  EXPECT_EQ(recipe.exchanges[0].only, Launch::kGraph);
  EXPECT_EQ(recipe.exchanges[0].count, 58);
  for (const char* name :
       {"all_gather expert tokens", "reduce_scatter expert outputs"}) {
    EXPECT_EQ(CollectiveOf(recipe, name).only, Launch::kEager) << name;
    EXPECT_EQ(CollectiveOf(recipe, name).count, 58) << name;
  }
  EXPECT_EQ(recipe.max_rank_sequences, 256);
  EXPECT_EQ(recipe.chunk_tokens, 8192);
  const double buffers = 256. * 256 * (2 * 14352 + 2 * 14336 + 14336);
  EXPECT_NEAR(
      recipe.memory.communicator_bytes -
          RecipeOf(kTrtllm, deepseek, "DP8+EP8").memory.communicator_bytes,
      buffers, 1);
}

TEST(Trtllm, SplitsTheEmbeddingOfOtherModelsThanDeepSeeksAndGlms) {
  struct Row {
    const char* model;
    bool whole;
  };
  constexpr Row kRows[] = {{"Kimi-K2.5", true},
                           {"DeepSeek-V3.2", true},
                           {"GLM-4.6", true},
                           {"Qwen3-235B-A22B", false},
                           {"Llama-3.1-70B", false}};
  for (const Row& row : kRows) {
    const ModelShape& model = Preset(row.model);
    const double table = 2.0 * static_cast<double>(model.hidden_size) *
                         static_cast<double>(model.vocab_size);
    EXPECT_NEAR(
        RecipeOf(kTrtllm, model, "TP8").memory.weights_bytes -
            RecipeOf(EngineId::kVllm, model, "TP8").memory.weights_bytes,
        row.whole ? table * 7 / 8 : 0, 1)
        << row.model;
  }
}

TEST(Trtllm, KeepsKeysAndValuesInNvfp4) {
  ModelShape model = Preset("Llama-3.1-70B");
  model.kv_cache_format = NumberFormat::kNvfp4;
  EXPECT_EQ(RecipeOf(kTrtllm, model, "TP8").memory.kv_bytes_per_token,
            80 * 2 * (128 / 2 + 128 / 16));
}

}  // namespace
}  // namespace fabricwise
