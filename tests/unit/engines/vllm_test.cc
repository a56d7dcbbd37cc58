// SPDX-License-Identifier: Apache-2.0
#include <limits>
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
using ::testing::SizeIs;

constexpr EngineId kVllm = EngineId::kVllm;

std::string Refusal(const ModelShape& model, const std::string& mode,
                    const Fingerprint& node = Node(8)) {
  return RefusalOf(kVllm, model, mode, node);
}

// A MoE model whose experts have this width and format.
ModelShape WithExperts(int64_t intermediate, const WeightFormat& format) {
  ModelShape model = Preset("Qwen3-235B-A22B");
  model.moe_intermediate_size = intermediate;
  model.expert_weights = format;
  return model;
}

// A dense model whose layers have this width and format.
ModelShape WithDense(int64_t intermediate, const WeightFormat& format) {
  ModelShape model = Preset("Llama-3.1-70B");
  model.intermediate_size = intermediate;
  model.dense_weights = format;
  return model;
}

constexpr WeightFormat kFp8{NumberFormat::kFp8Block};
constexpr WeightFormat Int4(int64_t group) {
  return {NumberFormat::kInt4Group, group};
}

struct Row {
  const char* what;
  ModelShape model;
  const char* mode;
  const char* refusal;  // empty: it runs
};

TEST(Vllm, AcceptsAndRefusesWidthsAsItsLoadersDo) {
  const ModelShape qwen = Preset("Qwen3-235B-A22B-FP8");
  const ModelShape minimax = Preset("MiniMax-M2.5");
  const ModelShape kimi = Preset("Kimi-K2.5");
  const std::string of_192 =
      "moe_intermediate_size 1536 / TP 8 = 192 is not a multiple of ";
  const std::string block_192 = of_192 + "fp8 block 128";
  const std::string group_192 = of_192 + "int4 group 128";
  const Row rows[] = {
      {"Qwen3-235B FP8", qwen, "TP8", block_192.c_str()},
      {"Qwen3-235B FP8", qwen, "TP4", ""},
      {"Qwen3-235B FP8", qwen, "TP8+EP8", ""},
      {"Qwen3-235B FP8", qwen, "DP8+EP8", ""},
      {"Qwen3-235B FP8", qwen, "DP8", block_192.c_str()},
      {"Qwen3-235B FP8", qwen, "PP2xTP4", ""},
      {"Qwen3-235B bf16", Preset("Qwen3-235B-A22B"), "TP8", ""},
      {"MiniMax-M2.5 FP8", minimax, "TP8", block_192.c_str()},
      {"MiniMax-M2.5 FP8", minimax, "TP4", ""},
      {"MiniMax-M2.5 FP8", minimax, "TP8+EP8", ""},
      {"I = 512 FP8", WithExperts(512, kFp8), "TP8",
       "moe_intermediate_size 512 / TP 8 = 64 is not a multiple of fp8 block "
       "128"},
      {"I = 512 FP8", WithExperts(512, kFp8), "TP4", ""},
      {"I = 512 FP8", WithExperts(512, kFp8), "TP8+EP8", ""},
      {"I = 640 FP8", WithExperts(640, kFp8), "TP2",
       "moe_intermediate_size 640 / TP 2 = 320 is not a multiple of fp8 block "
       "128"},
      {"I = 640 FP8", WithExperts(640, kFp8), "TP4",
       "moe_intermediate_size 640 / TP 4 = 160 is not a multiple of fp8 block "
       "128"},
      {"I = 640 FP8", WithExperts(640, kFp8), "TP8",
       "moe_intermediate_size 640 / TP 8 = 80 is not a multiple of fp8 block "
       "128"},
      {"I = 640 FP8", WithExperts(640, kFp8), "TP4+EP4", ""},
      {"int4 g128, I = 1536", WithExperts(1536, Int4(128)), "TP8",
       group_192.c_str()},
      {"int4 g128, I = 1536", WithExperts(1536, Int4(128)), "TP4", ""},
      {"int4 g128, I = 1536", WithExperts(1536, Int4(128)), "TP8+EP8", ""},
      {"Kimi int4 g32", kimi, "TP8", ""},
      {"Kimi int4 g32", kimi, "TP16", ""},
      {"Kimi int4 g32", kimi, "TP32", ""},  // 64, what Marlin's threads need
      {"Kimi int4 g32", kimi, "TP64",
       "moe_intermediate_size 2048 / TP 64 = 32 is not a multiple of int4 "
       "group 64"},
      {"DeepSeek-V3 dense FP8", WithDense(18'432, kFp8), "TP32",
       "intermediate_size 18432 / TP 32 = 576 is not a multiple of fp8 block "
       "128"},
      {"DeepSeek-V3", Preset("DeepSeek-V3"), "TP16", ""},
      {"DeepSeek-V3", Preset("DeepSeek-V3"), "TP32",
       "moe_intermediate_size 2048 / TP 32 = 64 is not a multiple of fp8 "
       "block 128"},
      {"DeepSeek-V3", Preset("DeepSeek-V3"), "TP32+EP32",
       "intermediate_size 18432 / TP 32 = 576 is not a multiple of fp8 block "
       "128"},
      {"72B int4 g128, I = 29568", WithDense(29'568, Int4(128)), "TP2",
       "intermediate_size 29568 / TP 2 = 14784 is not a multiple of int4 "
       "group 128"},
      {"72B int4 g128, I = 29568", WithDense(29'568, Int4(128)), "TP1", ""},
      {"72B int4 g128, I = 29568", WithDense(29'568, Int4(128)), "PP2", ""},
  };
  for (const Row& row : rows) {
    const std::string refusal = Refusal(row.model, row.mode, Node(64));
    if (std::string(row.refusal).empty()) {
      EXPECT_EQ(refusal, "") << row.what << " " << row.mode;
    } else {
      EXPECT_THAT(refusal, HasSubstr(row.refusal))
          << row.what << " " << row.mode;
    }
  }
}

TEST(Vllm, ChecksWhatElseItShards) {
  ModelShape shared = Preset("Kimi-K2.5");
  shared.shared_expert_weights = kFp8;
  shared.shared_intermediate_size = 512;
  EXPECT_EQ(Refusal(shared, "TP8"),
            "shared_intermediate_size 512 / TP 8 = 64 is not a multiple of fp8 "
            "block 128");
  EXPECT_EQ(Refusal(shared, "DP8+EP8"), "");  // there it is whole
  EXPECT_EQ(Refusal(shared, "DP2xTP4+EP8"), "");

  ModelShape narrow = WithExperts(1536, Int4(32));
  narrow.hidden_size = 4032;
  EXPECT_EQ(Refusal(narrow, "TP1"),
            "hidden_size 4032 is not a multiple of int4 experts' tile 128");
  EXPECT_EQ(Refusal(Preset("Llama-3.1-70B"), "TP3"),
            "num_attention_heads 64 is not a multiple of TP 3");
}

TEST(Vllm, TiesExpertParallelismToTheStage) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(Refusal(kimi, "TP8+EP4xMTP2"), "EP is TP x DP = 8 or off, not 4");
  EXPECT_EQ(Refusal(kimi, "DP2xTP4+EP2xMTP4"),
            "EP is TP x DP = 8 or off, not 2");
  EXPECT_EQ(Refusal(kimi, "PP2xTP4+EP4"), "");
}

TEST(Vllm, RunsDenseDataParallelRanksAsReplicas) {
  const Plan plan{.attention_dp = 2, .attention_tp = 4};
  EXPECT_EQ(GetEngine(kVllm).Refusal(Preset("Llama-3.1-70B"), plan, Node(8),
                                     Gpus(plan).replicas[0]),
            "data-parallel ranks of a dense model are independent replicas");
}

TEST(Vllm, DispatchesOnlyBetweenDataParallelRanks) {
  const Engine& engine = GetEngine(kVllm);
  EXPECT_THAT(engine.Transports(1), ElementsAre(ExpertTransport::kNone));
  EXPECT_THAT(engine.Transports(2),
              ElementsAre(ExpertTransport::kAllGatherReduceScatter,
                          ExpertTransport::kDeepEpLowLatency));
}

TEST(Vllm, RefusesDeepEpWithoutNvlinkOrExpertParallelism) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll"), "");
  const char* const no_nvlink =
      "DeepEP needs NVLink between all GPUs of a stage; some pairs have none";
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll", Node(8, false)), no_nvlink);
  Fingerprint unknown = Node(8);
  unknown.nvlinks.clear();
  EXPECT_EQ(
      Refusal(kimi, "DP8+EP8:deepep-ll", unknown),
      "DeepEP needs NVLink between all GPUs of a stage; the profile does not "
      "say which have it");
  Fingerprint broken = Node(8);
  broken.nvlinks[2][5] = 0;
  EXPECT_EQ(Refusal(kimi, "DP8+EP8:deepep-ll", broken), no_nvlink);

  Plan plan = PlanOf(kimi, "DP8");
  plan.transport = ExpertTransport::kDeepEpLowLatency;
  EXPECT_EQ(
      GetEngine(kVllm).Refusal(kimi, plan, Node(8), Gpus(plan).replicas[0]),
      "DeepEP needs expert parallelism");
}

// The largest message of vLLM's own all-reduce; 0: it is not used.
double CustomAllReduceBytes(const std::string& mode, const Fingerprint& node) {
  const Recipe recipe = RecipeOf(kVllm, Preset("Llama-3.1-70B"), mode, node);
  const CollectiveUse& use = CollectiveOf(recipe, "all_reduce attention");
  EXPECT_EQ(use.paths.back().implementation, CollectiveImpl::kNccl);
  EXPECT_EQ(use.paths.back().max_bytes,
            std::numeric_limits<double>::infinity());
  if (use.paths.size() == 1) return 0;
  EXPECT_EQ(use.paths[0].implementation, CollectiveImpl::kVllmCustom);
  return use.paths[0].max_bytes;
}

TEST(Vllm, TakesItsOwnAllReduceWhereItsConditionsHold) {
  constexpr double k8MiB = 8 << 20;
  EXPECT_EQ(CustomAllReduceBytes("TP2", Node(8)), k8MiB);
  EXPECT_EQ(CustomAllReduceBytes("TP4", Node(8)), k8MiB);
  EXPECT_EQ(CustomAllReduceBytes("TP8", Node(8)), k8MiB);
  EXPECT_EQ(CustomAllReduceBytes("TP16", Node(16)), 0);
  // Over PCIe: two ranks with peer access only.
  EXPECT_EQ(CustomAllReduceBytes("TP2", Node(8, false)), 0);
  EXPECT_EQ(CustomAllReduceBytes("TP8", Node(8, false)), 0);
  Fingerprint peers = Node(8, false);
  for (auto& row : peers.peer_access) row.assign(row.size(), true);
  EXPECT_EQ(CustomAllReduceBytes("TP2", peers), k8MiB);
  EXPECT_EQ(CustomAllReduceBytes("TP4", peers), 0);
  peers.peer_access[1].pop_back();
  EXPECT_EQ(CustomAllReduceBytes("TP2", peers), 0);
  peers.peer_access.clear();
  EXPECT_EQ(CustomAllReduceBytes("TP2", peers), 0);
}

TEST(Vllm, SizesItsStepsByTheGpuAndTheTransport) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(RecipeOf(kVllm, kimi, "TP8").chunk_tokens, 8192);
  EXPECT_EQ(RecipeOf(kVllm, kimi, "DP8+EP8:deepep-ll").chunk_tokens, 256);
  Fingerprint small = Node(8);
  for (Gpu& gpu : small.gpus) gpu.memory_bytes = 48'000'000'000;
  const Recipe recipe = RecipeOf(kVllm, kimi, "TP8", small);
  EXPECT_EQ(recipe.chunk_tokens, 2048);
  EXPECT_LT(recipe.memory.activation_bytes,
            RecipeOf(kVllm, kimi, "TP8").memory.activation_bytes);
  EXPECT_EQ(recipe.memory.usable_fraction, 0.92);
}

LaunchAdvice Launch(const std::string& model, const std::string& mode,
                    int64_t concurrency) {
  const ModelShape& shape = Preset(model);
  const Plan plan = PlanOf(shape, mode);
  return GetEngine(kVllm).Launch(shape, plan, {.concurrency = concurrency},
                                 Node(8), Gpus(plan));
}

TEST(Vllm, LaunchesOneServerAReplica) {
  EXPECT_THAT(Launch("Llama-3.1-8B", "TP1", 4).commands,
              ElementsAre("CUDA_VISIBLE_DEVICES=0 vllm serve "
                          "meta-llama/Llama-3.1-8B --gpu-memory-utilization "
                          "0.92 --max-num-seqs 4 "
                          "--port 8000"));
  EXPECT_THAT(
      Launch("Qwen3-235B-A22B", "2xTP4", 65).commands,
      ElementsAre(
          "CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve Qwen/Qwen3-235B-A22B "
          "-tp 4 --gpu-memory-utilization 0.92 --max-num-seqs 33 "
          "--port 8000",
          "CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve Qwen/Qwen3-235B-A22B "
          "-tp 4 --gpu-memory-utilization 0.92 --max-num-seqs 33 "
          "--port 8001"));
}

TEST(Vllm, LaunchesEveryModeByItsFlags) {
  const auto flags = [](const std::string& mode) {
    return Launch("Kimi-K2.5", mode, 64).commands[0];
  };
  EXPECT_THAT(flags("TP8+EP8"), HasSubstr(" -tp 8 --enable-expert-parallel "
                                          "--gpu-memory-utilization"));
  EXPECT_THAT(flags("DP8+EP8"),
              HasSubstr(" -tp 1 -dp 8 --enable-expert-parallel "
                        "--all2all-backend allgather_reducescatter "));
  EXPECT_THAT(flags("DP8+EP8"), HasSubstr("--max-num-seqs 8 "));
  EXPECT_THAT(flags("DP8+EP8:deepep-ll"),
              HasSubstr("--all2all-backend deepep_low_latency "));
  EXPECT_THAT(flags("DP8"), HasSubstr(" -tp 1 -dp 8 --gpu-memory"));
  EXPECT_THAT(flags("PP2xTP4"), HasSubstr(" -tp 4 -pp 2 --gpu-memory"));
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 1).engine_version, HasSubstr("vLLM"));
}

TEST(Vllm, LaunchesAModelWithoutARepositoryUnderAPlaceholder) {
  ModelShape model = Preset("Llama-3.1-8B");
  model.repository.clear();
  const Plan plan = PlanOf(model, "TP1");
  const LaunchAdvice launch =
      GetEngine(kVllm).Launch(model, plan, {}, Node(8), Gpus(plan));
  EXPECT_THAT(launch.commands[0], HasSubstr("vllm serve MODEL "));
}

// Names come from files that the asker did not write; commands are pasted.
TEST(Vllm, QuotesANameThatAShellWouldRead) {
  ModelShape model = Preset("Llama-3.1-8B");
  const Plan plan = PlanOf(model, "TP1");
  const auto command = [&](const char* repository) {
    model.repository = repository;
    return GetEngine(kVllm)
        .Launch(model, plan, {}, Node(8), Gpus(plan))
        .commands[0];
  };
  EXPECT_THAT(command("meta-llama/Llama-3.1_8B:v1"),
              HasSubstr("vllm serve meta-llama/Llama-3.1_8B:v1 --gpu"));
  EXPECT_THAT(command("x; rm -rf ~"),
              HasSubstr("vllm serve 'x; rm -rf ~' --gpu"));
  EXPECT_THAT(command("it's"), HasSubstr("vllm serve 'it'\\''s' --gpu"));
}

}  // namespace
}  // namespace fabricwise
