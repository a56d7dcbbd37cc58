// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engines/engine.h"
#include "server/profile/preset.h"
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

TEST(KimiInTrtllm, AllReducesTwiceALayer) {
  for (const char* mode : {"TP8", "TP8+EP8", "TP8+EP2xMTP4"}) {
    const Recipe recipe = RecipeOf(kTrtllm, Preset("Kimi-K2.5"), mode);
    EXPECT_EQ(CountOf(recipe, kAllReduce), 122) << mode;
    EXPECT_EQ(CountOf(recipe, kAllGather), 1) << mode;  // logits
  }
}

TEST(KimiInTrtllm, HasTheWholeEmbeddingOnEveryGpu) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const double table = 2.0 * 7168 * 163'840;
  EXPECT_NEAR(RecipeOf(kTrtllm, kimi, "TP8").memory.weights_bytes -
                  RecipeOf(EngineId::kVllm, kimi, "TP8").memory.weights_bytes,
              table * 7 / 8, 1);
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
  const Row rows[] = {{NumberFormat::kFp8Block, 7168 + 4 * 56},
                      {NumberFormat::kFp8, 7168},
                      {NumberFormat::kNvfp4, 3584 + 448},
                      {NumberFormat::kBf16, 14'336},
                      {NumberFormat::kMxfp4, 14'336}};
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

TEST(Trtllm, LaunchesEveryModeByItsFlags) {
  const auto command = [](const std::string& mode) {
    return Launch("Kimi-K2.5", mode, 64).commands[0];
  };
  EXPECT_THAT(command("TP8"), HasSubstr(" --tp_size 8 --ep_size 1 "));
  EXPECT_THAT(command("TP8"), Not(HasSubstr("enable_attention_dp")));
  EXPECT_THAT(command("TP8+EP8"), HasSubstr(" --tp_size 8 --ep_size 8 "));
  EXPECT_THAT(command("TP8+EP2xMTP4"), HasSubstr(" --tp_size 8 --ep_size 2 "));
  EXPECT_THAT(command("PP2xTP4"),
              HasSubstr(" --tp_size 4 --pp_size 2 --ep_size 1 "));
  EXPECT_THAT(command("DP8+EP8"),
              HasSubstr(" --tp_size 8 --ep_size 8 --max_batch_size 8 "));
  EXPECT_THAT(command("DP8+EP8"), HasSubstr("\nenable_attention_dp: true\n"));
  EXPECT_THAT(command("DP8+EP8"), Not(HasSubstr("moe_tensor_parallel")));
  EXPECT_THAT(command("DP8"), HasSubstr("\nenable_attention_dp: true\n"
                                        "moe_tensor_parallel_size: 8\n"));
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 1).environment, IsEmpty());
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8", 1).environment, IsEmpty());
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8+EP8", 1).environment,
              ElementsAre("TRTLLM_FORCE_COMM_METHOD=ALLGATHER"));
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8+EP8:deepep-ll", 1).environment,
              ElementsAre("TRTLLM_FORCE_COMM_METHOD=DEEPEPLOWLATENCY"));
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

// Whatever the model, the plan and the node.
TEST(Trtllm, NeverEmitsWhatIsGoneOrNotForAServer) {
  const int launched =
      ForEachLaunch(kTrtllm, [](const Plan& plan, const std::string& all) {
        for (const char* gone :
             {"WIDEEP", "LOWPRECISION", "--extra_llm_api_options"}) {
          EXPECT_THAT(all, Not(HasSubstr(gone)));
        }
        EXPECT_EQ(all.find("enable_attention_dp: true") != std::string::npos,
                  plan.attention_dp > 1)
            << all;
      });
  EXPECT_GT(launched, 300);
}

TEST(Trtllm, HasNoOptionsOfPlans) {
  EXPECT_EQ(Refusal(Preset("Kimi-K2.5"), "DP8+EP8:deepep-ll+tbo"),
            "there is no two-batch overlap");
  EXPECT_EQ(Refusal(Preset("Kimi-K2.5"), "DP8+EP8+fp8d"),
            "8-bit dispatch is no option: it goes by the experts' format");
}

TEST(Trtllm, DispatchesByDeepEpInTheFormatOfTheExperts) {
  const auto ratio = [](const char* model) {
    return RecipeOf(kTrtllm, Preset(model), "DP8+EP8:deepep-ll")
        .exchanges[0]
        .dispatch_ratio;
  };
  EXPECT_EQ(ratio("DeepSeek-V3"), 1);
  EXPECT_NEAR(ratio("Kimi-K2.5"), 14352. / 7408, 1e-12);
}

}  // namespace
}  // namespace fabricwise
