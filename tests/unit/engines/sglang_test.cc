// SPDX-License-Identifier: Apache-2.0
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/engines/engine.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using enum CollectiveOp;

constexpr EngineId kSglang = EngineId::kSglang;
constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

std::string Refusal(const ModelShape& model, const std::string& mode,
                    const Fingerprint& node = Node(8)) {
  return RefusalOf(kSglang, model, mode, node);
}

ModelShape WithExperts(int64_t intermediate, const WeightFormat& format) {
  ModelShape model = Preset("Qwen3-235B-A22B");
  model.moe_intermediate_size = intermediate;
  model.expert_weights = format;
  return model;
}

Fingerprint NodeOf(int gpus, bool nvlink, int capability,
                   int64_t memory_bytes) {
  Fingerprint node = Node(gpus, nvlink);
  for (Gpu& gpu : node.gpus) {
    gpu.compute_capability = capability;
    gpu.memory_bytes = memory_bytes;
  }
  return node;
}

TEST(Sglang, NeedsExpertsThatDivideByExpertParallelism) {
  const ModelShape& mixtral = Preset("Mixtral-8x7B");
  EXPECT_EQ(Refusal(mixtral, "TP8+EP8"), "");
  EXPECT_EQ(Refusal(mixtral, "TP8+EP4xMTP2"), "");
  ModelShape odd = mixtral;
  odd.num_experts = 12;
  EXPECT_EQ(Refusal(odd, "TP8+EP8"),
            "num_experts 12 is not a multiple of EP 8");
  EXPECT_EQ(Refusal(odd, "TP8+EP4xMTP2"), "");
}

TEST(Sglang, RunsFourBitExpertsWhereTheirKernelsDo) {
  const ModelShape& oss = Preset("gpt-oss-120b");
  EXPECT_EQ(Refusal(oss, "TP4"), "");
  EXPECT_EQ(Refusal(oss, "TP4+EP4"),
            "mxfp4 experts run in triton_kernel, which needs EP 1, not 4");
  EXPECT_EQ(Refusal(oss, "TP4+EP4", NodeOf(8, true, 100, 180'000'000'000)), "");
  const ModelShape nvfp4 = WithExperts(1536, {NumberFormat::kNvfp4});
  EXPECT_EQ(Refusal(nvfp4, "TP8+EP8"), "");
  EXPECT_EQ(Refusal(nvfp4, "TP8"), "");
  EXPECT_EQ(Refusal(nvfp4, "TP8+EP2xMTP4"),
            "nvfp4 experts need EP 1 or 8, not 2");
}

TEST(Sglang, GivesDeepEpTheWholeStageAndNvlink) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll"), "");
  EXPECT_EQ(Refusal(kimi, "TP8+EP8:deepep-ll"), "");
  EXPECT_EQ(Refusal(kimi, "DP2xTP4+EP8:deepep-ll"), "");
  Plan plan = PlanOf(kimi, "DP8+EP4xMTP2");
  plan.transport = ExpertTransport::kDeepEpLowLatency;
  EXPECT_EQ(GetEngine(kSglang).Refusal(kimi, plan, Node(8),
                                       Gpus(plan).replicas.front()),
            "DeepEP sets EP to the whole stage, 8, not 4");
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll", Node(8, false)),
            "DeepEP needs NVLink between all GPUs of a stage; some pairs have "
            "none");
  Fingerprint unknown = Node(8);
  unknown.nvlinks.clear();
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll", unknown),
            "DeepEP needs NVLink between all GPUs of a stage; the profile does "
            "not say which have it");
}

TEST(Sglang, RunsDenseDataParallelRanksAsReplicas) {
  const Plan plan{.attention_dp = 2, .attention_tp = 4};
  EXPECT_EQ(GetEngine(kSglang).Refusal(Preset("Llama-3.1-70B"), plan, Node(8),
                                       Gpus(plan).replicas.front()),
            "data-parallel ranks of a dense model are independent replicas");
}

// What one kind of step runs of collectives.
double CountIn(const Recipe& recipe, CollectiveOp op, Launch launch) {
  double count = 0;
  for (const CollectiveUse& use : recipe.collectives) {
    if (use.only.value_or(launch) != launch) continue;
    for (const CollectiveStep& step : use.steps) {
      if (step.op == op) count += use.count;
    }
  }
  return count;
}

TEST(KimiInSglang, AllReducesTwiceALayerAndAfterTheEmbedding) {
  for (const char* mode : {"TP8", "TP8+EP8", "TP8+EP2xMTP4"}) {
    const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), mode);
    EXPECT_EQ(CountOf(recipe, kAllReduce), 123) << mode;
    EXPECT_EQ(CountOf(recipe, kAllGather), 1) << mode;  // logits
    for (const CollectiveUse& use : recipe.collectives) {
      EXPECT_FALSE(use.only.has_value()) << use.name;
      if (use.steps[0].op != kAllReduce) continue;
      EXPECT_EQ(use.steps[0].bytes_per_token, 14'336) << use.name;
      EXPECT_EQ(use.group_size, 8) << use.name;
    }
    EXPECT_THAT(recipe.exchanges, IsEmpty());
  }
}

TEST(Sglang, SumsExpertsOfQwenOverBothGroupsInTurn) {
  const Recipe recipe =
      RecipeOf(kSglang, Preset("Qwen3-235B-A22B"), "TP8+EP2xMTP4");
  const CollectiveUse& first =
      CollectiveOf(recipe, "all_reduce experts over EP");
  const CollectiveUse& second =
      CollectiveOf(recipe, "all_reduce experts over MoE TP");
  EXPECT_EQ(first.group_size, 2);
  EXPECT_EQ(second.group_size, 4);
  for (const CollectiveUse* use : {&first, &second}) {
    EXPECT_EQ(use->count, 94);
    EXPECT_EQ(use->steps[0].bytes_per_token, 2 * 4096);
  }
  EXPECT_EQ(CountOf(recipe, kAllReduce), 3 * 94 + 1);
  for (const char* pure : {"TP8", "TP8+EP8"}) {
    EXPECT_EQ(
        CountOf(RecipeOf(kSglang, Preset("Qwen3-235B-A22B"), pure), kAllReduce),
        2 * 94 + 1)
        << pure;
  }
}

TEST(KimiInSglang, GathersPaddedRanksInDecodeStepsAndSumsThemInPrompts) {
  const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), "DP8+EP8");
  // Every layer is a feed-forward layer that sees the stage, the dense one
  // too; the head gathers its rows and its logits.
  EXPECT_EQ(CountIn(recipe, kAllGather, Launch::kGraph), 61 + 2);
  EXPECT_EQ(CountIn(recipe, kReduceScatter, Launch::kGraph), 61);
  EXPECT_EQ(CountIn(recipe, kAllReduce, Launch::kGraph), 0);
  EXPECT_EQ(CountIn(recipe, kAllGather, Launch::kEager), 2);
  EXPECT_EQ(CountIn(recipe, kReduceScatter, Launch::kEager), 61);
  EXPECT_EQ(CountIn(recipe, kAllReduce, Launch::kEager), 61);
  for (const char* name :
       {"all_gather feed-forward tokens", "all_reduce feed-forward tokens"}) {
    const CollectiveUse& use = CollectiveOf(recipe, name);
    EXPECT_EQ(use.group_size, 8);
    EXPECT_EQ(use.steps[0].bytes_per_token, 14'336);
    EXPECT_EQ(use.steps[0].tokens, TokenBasis::kStage);
  }
}

TEST(KimiInSglang, ScattersAttentionBeforeItGathersAStage) {
  const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), "DP2xTP4+EP8");
  const CollectiveUse& attention =
      CollectiveOf(recipe, "reduce_scatter + all_gather attention");
  EXPECT_EQ(attention.count, 61);
  EXPECT_EQ(attention.group_size, 4);
  EXPECT_EQ(attention.only, Launch::kGraph);
  // Decoding sums nothing over all but the embedding.
  EXPECT_EQ(CountIn(recipe, kAllReduce, Launch::kGraph), 1);
  EXPECT_EQ(CollectiveOf(recipe, "all_reduce embedding").group_size, 4);
  // Prompts: one sum to gather, one to combine, as EP is not DP.
  EXPECT_EQ(CountIn(recipe, kAllReduce, Launch::kEager), 2 * 61 + 1);
  EXPECT_EQ(CountIn(recipe, kReduceScatter, Launch::kEager), 0);
}

TEST(KimiInSglang, SplitsFeedForwardLayersAndHeadOverAttentionDpRanks) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const Recipe recipe = RecipeOf(kSglang, kimi, "DP8+EP8");
  EXPECT_EQ(GemmOf(recipe, "gate and up projection").n, 2 * 18'432 / 8);
  EXPECT_EQ(GemmOf(recipe, "gate and up projection").rows, TokenBasis::kStage);
  EXPECT_EQ(GemmOf(recipe, "shared expert gate and up projection").n,
            2 * 2048 / 8);
  EXPECT_EQ(GemmOf(recipe, "router").rows, TokenBasis::kStage);
  const GemmUse& head = GemmOf(recipe, "output head");
  EXPECT_EQ(head.n, 163'840 / 8);
  EXPECT_EQ(head.rows, TokenBasis::kOutput);
  EXPECT_EQ(head.row_factor, 8);
  EXPECT_EQ(
      CollectiveOf(recipe, "all_gather output tokens").steps[0].bytes_per_token,
      8 * 14'336);
  EXPECT_EQ(CollectiveOf(recipe, "all_gather logits").steps[0].bytes_per_token,
            8 * 2 * 163'840);
  // Attention is whole on each rank, the embedding as well.
  EXPECT_EQ(GemmOf(recipe, "output projection").k, 64 * 128);
  EXPECT_EQ(recipe.memory.kv_bytes_per_token, 70'272);
  const Recipe sliced = RecipeOf(kSglang, kimi, "TP8+EP8");
  const double whole_embedding = 2.0 * 7168 * 163'840;
  EXPECT_GT(recipe.memory.weights_bytes - sliced.memory.weights_bytes,
            whole_embedding * 7 / 8);
}

TEST(KimiInSglang, DispatchesWithDeepEpOnSlicesOfARank) {
  for (const char* mode : {"DP8+EP8:deepep-ll", "TP8+EP8:deepep-ll"}) {
    const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), mode);
    ASSERT_THAT(recipe.exchanges, SizeIs(2)) << mode;
    EXPECT_EQ(recipe.exchanges[0].implementation,
              ExchangeImpl::kDeepEpLowLatency);
    EXPECT_EQ(recipe.exchanges[0].only, Launch::kGraph);
    EXPECT_EQ(recipe.exchanges[1].implementation,
              ExchangeImpl::kDeepEpHighThroughput);
    EXPECT_EQ(recipe.exchanges[1].only, Launch::kEager);
    for (const ExchangeUse& use : recipe.exchanges) {
      EXPECT_EQ(use.count, 60);
      EXPECT_EQ(use.group_size, 8);
    }
    // The shared expert is whole on every rank.
    EXPECT_EQ(GemmOf(recipe, "shared expert gate and up projection").n,
              2 * 2048);
  }
  const Recipe split =
      RecipeOf(kSglang, Preset("Kimi-K2.5"), "TP8+EP8:deepep-ll");
  EXPECT_EQ(CollectiveOf(split, "reduce_scatter + all_gather attention").count,
            60);
  EXPECT_EQ(CollectiveOf(split, "all_reduce attention").count, 1);
}

struct PathRow {
  const char* what;
  Fingerprint node;
  const char* mode;
  CollectivePaths own;  // NCCL beyond
};

void PrintTo(const PathRow& row, std::ostream* out) { *out << row.what; }

std::vector<PathRow> PathRows() {
  const auto path = [](CollectiveKernel kernel, double bytes) {
    return CollectivePath{CollectiveImpl::kSglangCustom, kernel, bytes};
  };
  const auto one = [&](double bytes) {
    return path(CollectiveKernel::kOneShot, bytes);
  };
  const auto two = [&](double bytes) {
    return path(CollectiveKernel::kTwoShot, bytes);
  };
  const CollectivePath multicast =
      path(CollectiveKernel::kMulticast, 16 * kMiB);
  const CollectivePath rest = two(16 * kMiB);
  Fingerprint peers = Node(8, false);
  for (auto& row : peers.peer_access) row.assign(row.size(), true);
  Fingerprint bridges = Node(4, false);  // 0-1 and 2-3
  for (auto& row : bridges.peer_access) row.assign(row.size(), true);
  for (size_t i = 0; i < 4; ++i) bridges.nvlinks[i][i ^ 1] = 4;
  Fingerprint disabled = peers;
  disabled.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  const Fingerprint hopper = Node(8), blackwell = NodeOf(8, true, 100, 0),
                    ampere = NodeOf(8, true, 80, 0);
  Fingerprint broken = hopper;
  for (auto& row : broken.peer_access) row.assign(row.size(), false);
  return {
      {"sm90, 2", Node(8), "TP2", {one(16 * kMiB)}},
      {"sm90, 3", hopper, "TP3", {one(1.25 * kMiB), rest}},
      {"sm90, 5", hopper, "TP5", {one(192 * kKiB), rest}},
      {"sm90, 6", hopper, "TP6", {one(128 * kKiB), rest}},
      {"sm90, 7", hopper, "TP7", {one(128 * kKiB), rest}},
      {"sm100, 3", blackwell, "TP3", {one(4 * kMiB), rest}},
      {"sm100, 5", blackwell, "TP5", {one(1.5 * kMiB), rest}},
      {"sm100, 6", blackwell, "TP6", {one(1 * kMiB), rest}},
      {"sm100, 7", blackwell, "TP7", {one(0.625 * kMiB), rest}},
      {"sm80, 2", ampere, "TP2", {one(1 * kMiB), rest}},
      {"sm80, 3", ampere, "TP3", {one(1 * kMiB), rest}},
      {"sm80, 4", ampere, "TP4", {one(1 * kMiB), rest}},
      {"sm80, 6", ampere, "TP6", {one(1 * kMiB), rest}},
      {"NVLink without peer access, 8", broken, "TP8", {}},
      {"sm90, 4", Node(8), "TP4", {one(384 * kKiB), rest}},
      {"sm90, 8",
       Node(8),
       "TP8",
       {one(128 * kKiB), two(512 * kKiB), multicast}},
      {"sm100, 2", NodeOf(8, true, 100, 0), "TP2", {one(8 * kMiB), rest}},
      {"sm100, 4", NodeOf(8, true, 100, 0), "TP4", {one(2.25 * kMiB), rest}},
      {"sm100, 8",
       NodeOf(8, true, 100, 0),
       "TP8",
       {one(512 * kKiB), two(8 * kMiB), multicast}},
      {"sm80, 8", NodeOf(8, true, 80, 0), "TP8", {one(1 * kMiB), rest}},
      {"sm90, 16", Node(16), "TP16", {}},
      {"PCIe with peer access, 2", peers, "TP2", {one(8 * kMiB)}},
      {"PCIe with peer access, 4", peers, "TP4", {}},
      {"PCIe, peer access switched off", disabled, "TP2", {}},
      {"PCIe without peer access", Node(8, false), "TP2", {}},
      {"two bridges, a pair", bridges, "TP2", {one(16 * kMiB)}},
      {"two bridges, both", bridges, "TP4", {}},
  };
}

class SglangAllReduce : public testing::TestWithParam<PathRow> {};

TEST_P(SglangAllReduce, GoesBySizeGpuRanksAndFabric) {
  CollectivePaths expected = GetParam().own;
  expected.push_back({CollectiveImpl::kNccl});
  ModelShape model = Preset("Llama-3.1-70B");
  model.num_attention_heads = model.num_key_value_heads = 3 * 5 * 7 * 16;
  const Recipe recipe =
      RecipeOf(kSglang, model, GetParam().mode, GetParam().node);
  EXPECT_EQ(CollectiveOf(recipe, "all_reduce attention").paths, expected);
}

INSTANTIATE_TEST_SUITE_P(Of, SglangAllReduce, testing::ValuesIn(PathRows()),
                         [](const testing::TestParamInfo<PathRow>& of) {
                           return TestName(of.param.what);
                         });

TEST(Sglang, OffersDeepEpWithAndWithoutDataParallelRanks) {
  const Engine& engine = GetEngine(kSglang);
  EXPECT_THAT(
      engine.Transports(1),
      ElementsAre(ExpertTransport::kNone, ExpertTransport::kDeepEpLowLatency));
  EXPECT_THAT(engine.Transports(8),
              ElementsAre(ExpertTransport::kAllGatherReduceScatter,
                          ExpertTransport::kDeepEpLowLatency));
}

TEST(KimiInSglang, CombinesPromptsByAnAllReduceWhereExpertsAreSliced) {
  const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), "DP8");
  EXPECT_EQ(CountIn(recipe, kAllReduce, Launch::kEager), 2 * 61);
  EXPECT_EQ(CountIn(recipe, kReduceScatter, Launch::kEager), 0);
  EXPECT_EQ(CountIn(recipe, kReduceScatter, Launch::kGraph), 61);
}

TEST(Sglang, SendsHiddenStatesAndResidualBetweenStages) {
  const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), "PP2xTP4");
  EXPECT_EQ(
      CollectiveOf(recipe, "send_recv stage boundary").steps[0].bytes_per_token,
      2 * 14'336 / 4);
  EXPECT_EQ(CollectiveOf(recipe, "all_gather stage boundary")
                .steps[0]
                .bytes_per_token,
            2 * 14'336);
}

TEST(Sglang, FusesNormsIntoTheAllReducesOfMoeModelsUnderTensorParallelism) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const FusedKernels fused = RecipeOf(kSglang, kimi, "TP8").fused;
  EXPECT_EQ(fused.count, 122);  // all but the embedding's
  EXPECT_EQ(fused.bytes_per_token, 14'336);
  EXPECT_EQ(fused.max_bytes, 2048 * 14'336);
  for (const char* mode : {"DP8+EP8", "DP2xTP4+EP8", "TP8+EP8:deepep-ll"}) {
    EXPECT_EQ(RecipeOf(kSglang, kimi, mode).fused.count, 0) << mode;
  }
  EXPECT_EQ(RecipeOf(kSglang, kimi, "TP8", Node(8, false)).fused.count, 0);
  EXPECT_EQ(RecipeOf(kSglang, kimi, "TP8", NodeOf(8, true, 80, 0)).fused.count,
            0);
  EXPECT_EQ(RecipeOf(kSglang, Preset("Llama-3.1-70B"), "TP8").fused.count, 0);
  Fingerprint broken = Node(8);
  broken.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  EXPECT_EQ(RecipeOf(kSglang, kimi, "TP8", broken).fused.count, 0);
}

TEST(Sglang, WaitsForOtherRanksUnderAttentionDataParallelism) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(RecipeOf(kSglang, kimi, "TP8").host_seconds, 0);
  EXPECT_EQ(RecipeOf(kSglang, kimi, "DP8+EP8").host_seconds, 100e-6);
}

TEST(Sglang, BatchesPromptsByThemselvesAndDeepEpTokensByItsLimit) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_FALSE(RecipeOf(kSglang, kimi, "TP8").mixed_steps);
  EXPECT_EQ(RecipeOf(kSglang, kimi, "TP8").max_rank_sequences, 0);
  EXPECT_EQ(RecipeOf(kSglang, kimi, "DP8+EP8:deepep-ll").max_rank_sequences,
            1024);
  EXPECT_EQ(RecipeOf(kSglang, kimi, "DP2xTP4+EP8:deepep-ll").max_rank_sequences,
            4 * 1024);
}

struct MemoryRow {
  const char* what;
  int64_t memory_bytes;
  const char* mode;
  int64_t chunk_tokens;
  double reserved_gib;
};

TEST(Sglang, SizesItsStepsAndReserveByTheGpu) {
  const auto gib = [](int64_t count) { return count << 30; };
  const MemoryRow rows[] = {
      {"16 GiB", gib(16), "TP8", 2048, 0.5 + 3 + 1 + 8. / 512 + 1.5},
      {"32 GiB", gib(32), "TP8", 2048, 0.5 + 3 + 1 + 80. / 512 + 1.5},
      {"32 GiB, few", gib(32), "TP2", 2048, 0.5 + 3 + 0.25 + 24. / 512 + 1.5},
      {"48 GiB", gib(48), "TP8", 4096, 0.5 + 6 + 1 + 160. / 512 + 1.5},
      {"80 GiB", gib(80), "TP8", 8192, 0.5 + 12 + 1 + 1 + 1.5},
      {"80 GiB, few", gib(80), "TP2", 8192, 0.5 + 12 + 0.25 + 0.5 + 1.5},
      {"141 GiB", gib(141), "TP8", 8192, 0.5 + 12 + 1 + 1 + 1.5},
      {"180 GiB", gib(180), "TP8", 16'384, 0.5 + 24 + 1 + 1 + 1.5},
      {"not known", 0, "TP8", 4096, 0.5 + 6 + 1 + 160. / 512 + 1.5},
      // The floor; three and one and a half MiB for each sequence and rank.
      {"141 GiB", gib(141), "DP8+EP8", 1024, 10 + 1 + 12 + 6 + 1.5},
      {"141 GiB", gib(141), "DP8+EP8:deepep-ll", 1024, 10 + 1 + 12 + 6 + 3.5},
      {"48 GiB", gib(48), "DP8+EP8", 512,
       0.5 + 3 + 1 + 160. / 512 + 160. * 8 * 3 / 1024 + 1.5},
      {"141 GiB, pipeline", gib(141), "PP2xTP4", 8192, 0.5 + 12 + 1 + 1 + 1.5},
  };
  for (const MemoryRow& row : rows) {
    const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), row.mode,
                                   NodeOf(8, true, 90, row.memory_bytes));
    EXPECT_EQ(recipe.chunk_tokens, row.chunk_tokens) << row.what << row.mode;
    EXPECT_NEAR(recipe.memory.activation_bytes / kGiB, row.reserved_gib, 1e-9)
        << row.what << " " << row.mode;
    EXPECT_EQ(recipe.memory.communicator_bytes, 0);
    EXPECT_EQ(recipe.memory.usable_fraction, 1);
  }
  // Without latent attention nothing is kept for its graphs of prompts.
  EXPECT_NEAR(RecipeOf(kSglang, Preset("Llama-3.1-70B"), "TP8",
                       NodeOf(8, true, 90, gib(141)))
                      .memory.activation_bytes /
                  kGiB,
              0.5 + 12 + 1 + 1, 1e-9);
}

LaunchAdvice Launch(const std::string& model, const std::string& mode,
                    int64_t concurrency, const Fingerprint& node = Node(8)) {
  const ModelShape& shape = Preset(model);
  const Plan plan = PlanOf(shape, mode);
  return GetEngine(kSglang).Launch(shape, plan, {.concurrency = concurrency},
                                   node, Gpus(plan));
}

TEST(Sglang, LaunchesWithItsOwnReserveAndTheSequencesAsked) {
  EXPECT_THAT(
      Launch("Kimi-K2.5", "TP8", 64).commands,
      ElementsAre(
          "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 python -m "
          "sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp-size 8 "
          "--mem-fraction-static 0.878 --max-running-requests 64 "
          "--port 30000"));
  const LaunchAdvice advice = Launch("Kimi-K2.5", "DP8+EP8", 64);
  EXPECT_THAT(advice.environment, IsEmpty());
  EXPECT_THAT(advice.engine_version, HasSubstr("SGLang"));
  EXPECT_THAT(advice.commands[0], HasSubstr(" --mem-fraction-static 0.767 "
                                            "--max-running-requests 64 "));
}

TEST(Sglang, RunsReplicasOfTensorParallelismInOneServer) {
  EXPECT_THAT(
      Launch("Llama-3.1-70B", "2xTP4", 65).commands,
      ElementsAre(AllOf(HasSubstr("CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 "),
                        HasSubstr(" --tp-size 4 --dp-size 2 --mem"),
                        HasSubstr(" --max-running-requests 65 "),
                        Not(HasSubstr("dp-attention")))));
  EXPECT_THAT(Launch("Kimi-K2.5", "2xPP2xTP2", 65).commands,
              ElementsAre(AllOf(HasSubstr("CUDA_VISIBLE_DEVICES=0,1,2,3 "),
                                HasSubstr(" --max-running-requests 33 "),
                                EndsWith(" --port 30000")),
                          AllOf(HasSubstr("CUDA_VISIBLE_DEVICES=4,5,6,7 "),
                                Not(HasSubstr("--dp-size")),
                                EndsWith(" --port 30001"))));
}

TEST(Sglang, WidensGraphsAndDeepEpForTheSequencesAsked) {
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 512).commands[0],
              Not(HasSubstr("cuda-graph")));
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 513).commands[0],
              HasSubstr(" --cuda-graph-max-bs-decode 513 "));
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8+EP8:deepep-ll", 8 * 128).environment,
              IsEmpty());
  EXPECT_THAT(
      Launch("Kimi-K2.5", "DP8+EP8:deepep-ll", 8 * 128 + 1).environment,
      ElementsAre("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=129"));
}

TEST(Sglang, StoresTheCacheAsTheModelDoes) {
  ModelShape model = Preset("Kimi-K2.5");
  model.kv_cache_format = NumberFormat::kFp8;
  const Plan plan = PlanOf(model, "TP8");
  EXPECT_THAT(GetEngine(kSglang)
                  .Launch(model, plan, {}, Node(8), Gpus(plan))
                  .commands[0],
              HasSubstr(" --kv-cache-dtype fp8_e4m3 "));
}

TEST(Sglang, KeepsOffPeerCopiesThatAreBroken) {
  Fingerprint broken = Node(8);
  broken.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  const LaunchAdvice advice = Launch("Kimi-K2.5", "TP8", 1, broken);
  EXPECT_THAT(advice.environment, ElementsAre("NCCL_P2P_DISABLE=1"));
  EXPECT_THAT(advice.commands[0], HasSubstr(" --disable-custom-all-reduce "));
}

TEST(Sglang, LeavesTheMemoryFractionToItselfWhereMemoryIsNotKnown) {
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 1, NodeOf(8, true, 90, 0)).commands[0],
              Not(HasSubstr("--mem-fraction-static")));
}

// Of its rules for architectures, where the dimensions would say otherwise.
TEST(Sglang, GoesByTheModelTypeWhereItIsSaid) {
  ModelShape model = Preset("Qwen3-235B-A22B");
  const auto sums = [&] {
    return CountOf(RecipeOf(kSglang, model, "TP8+EP2xMTP4"), kAllReduce);
  };
  EXPECT_EQ(model.model_type, "qwen3_moe");
  EXPECT_EQ(sums(), 3 * 94 + 1);
  model.model_type = "minimax_m2";
  EXPECT_EQ(sums(), 2 * 94 + 1);
  model.model_type = "";
  EXPECT_EQ(sums(), 3 * 94 + 1);
}

TEST(Sglang, OverlapsTwoBatchesWithDeepEpForTwoKindsOfModels) {
  const auto refusal = [](const char* model, const char* mode) {
    return RefusalOf(kSglang, Preset(model), mode);
  };
  EXPECT_EQ(refusal("Kimi-K2.5", "DP8+EP8:deepep-ll+tbo"), "");
  EXPECT_EQ(refusal("Qwen3-235B-A22B", "TP8+EP8:deepep-ll+tbo"), "");
  EXPECT_EQ(refusal("GLM-4.6", "DP8+EP8:deepep-ll+tbo"),
            "two-batch overlap is for layers of DeepSeek's and Qwen3's MoE "
            "models, not glm4_moe");
  EXPECT_EQ(refusal("Kimi-K2.5", "DP8+EP8+tbo"),
            "two-batch overlap needs expert tokens to travel by DeepEP, not "
            "agrs");
  EXPECT_EQ(refusal("Kimi-K2.5", "PP2xDP4+EP4:deepep-ll+tbo"),
            "two-batch overlap is known for PP 1, not 2");
  const Recipe recipe =
      RecipeOf(kSglang, Preset("Kimi-K2.5"), "DP8+EP8:deepep-ll+tbo");
  ASSERT_TRUE(recipe.overlap.has_value());
  EXPECT_EQ(recipe.overlap->least_decode_tokens, 2);
  EXPECT_THAT(
      Launch("Kimi-K2.5", "DP8+EP8:deepep-ll+tbo", 64).commands[0],
      HasSubstr(" --deepep-mode auto --enable-two-batch-overlap --mem"));
}

TEST(Sglang, GathersPromptsInEightBitsWhereAsked) {
  const auto refusal = [](const char* mode) {
    return RefusalOf(kSglang, Preset("Kimi-K2.5"), mode);
  };
  EXPECT_EQ(refusal("DP8+EP8+fp8d"), "");
  EXPECT_EQ(refusal("DP8+fp8d"), "");
  EXPECT_EQ(refusal("DP4xTP2+EP8+fp8d"),
            "8-bit gathering needs TP 1 in a data-parallel rank, not 2");
  EXPECT_EQ(refusal("TP8+EP8+fp8d"),
            "8-bit dispatch is an option where ranks gather tokens, not of "
            "none");
  EXPECT_EQ(refusal("DP8+EP8:deepep-ll+fp8d"),
            "8-bit dispatch is an option where ranks gather tokens, not of "
            "deepep-ll");
  ModelShape odd = Preset("Kimi-K2.5");
  odd.hidden_size = 7200;
  EXPECT_EQ(RefusalOf(kSglang, odd, "DP8+EP8+fp8d"),
            "hidden_size 7200 is not a multiple of values of a scale 128");

  const Recipe recipe = RecipeOf(kSglang, Preset("Kimi-K2.5"), "DP8+EP8+fp8d");
  EXPECT_EQ(CountIn(recipe, kAllReduce, Launch::kEager), 0);
  EXPECT_EQ(CountIn(recipe, kAllGather, Launch::kEager), 61 + 2);
  EXPECT_EQ(CountIn(recipe, kReduceScatter, Launch::kEager), 61);
  EXPECT_EQ(recipe.eager_small_kernels, 2 * 61);
  EXPECT_THAT(
      Launch("Kimi-K2.5", "DP8+EP8+fp8d", 64).environment,
      ElementsAre("SGLANG_DP_USE_GATHERV=1", "SGLANG_ENABLE_DP_GATHER_FP8=1"));
}

TEST(Sglang, DispatchesByDeepEpInTheFormatOfTheExperts) {
  const auto low_latency = [](const char* model) {
    return RecipeOf(kSglang, Preset(model), "DP8+EP8:deepep-ll").exchanges;
  };
  EXPECT_EQ(low_latency("DeepSeek-V3")[0].dispatch_ratio, 1);
  EXPECT_EQ(low_latency("DeepSeek-V3")[0].note, "");
  const auto int4 = low_latency("Kimi-K2.5");
  EXPECT_NEAR(int4[0].dispatch_ratio, 14352. / 7408, 1e-12);
  EXPECT_THAT(std::string(int4[0].note), HasSubstr("bf16"));
  EXPECT_EQ(int4[1].dispatch_ratio, 1);  // of prompts
  EXPECT_EQ(int4[1].note, "");
}

}  // namespace
}  // namespace fabricwise
