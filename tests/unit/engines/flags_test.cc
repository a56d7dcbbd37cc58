// SPDX-License-Identifier: Apache-2.0
//
// The spelling of every mode in every engine, one test each; and what no
// launch may have in it.
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr EngineId kVllm = EngineId::kVllm, kSglang = EngineId::kSglang,
                   kTrtllm = EngineId::kTrtllm;

constexpr char kEp[] = "--enable-expert-parallel";

// All that is pasted to launch a mode: environment, then commands.
std::string Pasted(EngineId engine, const std::string& model,
                   const std::string& mode, const Fingerprint& node) {
  const ModelShape& shape = Preset(model);
  EXPECT_EQ(RefusalOf(engine, shape, mode, node), "");
  const Plan plan = PlanOf(shape, mode);
  const LaunchAdvice launch = GetEngine(engine).Launch(
      shape, plan, {.concurrency = 64}, node, Gpus(plan));
  return absl::StrCat(absl::StrJoin(launch.environment, " "), " ",
                      absl::StrJoin(launch.commands, "\n"));
}

struct Spelling {
  std::string row;
  EngineId engine;
  const char* mode;
  std::vector<const char*> has, has_not;
  const char* model = "Kimi-K2.5";
};

void PrintTo(const Spelling& spelling, std::ostream* out) {
  *out << spelling.row << " in " << ToString(spelling.engine);
}

class Flags : public testing::TestWithParam<Spelling> {
 protected:
  static void Check(const std::string& pasted) {
    for (const char* text : GetParam().has) {
      EXPECT_THAT(pasted, HasSubstr(text));
    }
    for (const char* text : GetParam().has_not) {
      EXPECT_THAT(pasted, Not(HasSubstr(text)));
    }
  }
};

TEST_P(Flags, AreSpelledAsTheEngineDoes) {
  Check(Pasted(GetParam().engine, GetParam().model, GetParam().mode,
               Box("NVIDIA B200", 8, true, true)));
}

std::string NameOf(const testing::TestParamInfo<Spelling>& info) {
  return TestName(absl::StrCat(info.param.row, " in ",
                               std::string(ToString(info.param.engine))));
}

std::vector<Spelling> OfModes() {
  return {
      {"TP", kVllm, "TP8", {" -tp 8 "}, {kEp, " -dp ", "all2all", " -pp "}},
      {"TP",
       kSglang,
       "TP8",
       {" --tp-size 8 "},
       {"--ep-size", "--dp-size", "dp-attention", "a2a"}},
      {"TP",
       kTrtllm,
       "TP8",
       {" --tp_size 8 --ep_size 1 "},
       {"attention_dp", "moe_tensor_parallel_size", "TRTLLM_"}},
      {"TP of a dense model",
       kTrtllm,
       "TP8",
       {" --tp_size 8 "},
       {"--ep_size"},
       "Llama-3.1-70B"},
      {"TP and EP",
       kVllm,
       "TP8+EP8",
       {" -tp 8 --enable-expert-parallel "},
       {"all2all", " -dp "}},
      {"TP and EP",
       kSglang,
       "TP8+EP8",
       {" --tp-size 8 --ep-size 8 "},
       {"--dp-size", "a2a"}},
      {"TP and EP",
       kTrtllm,
       "TP8+EP8",
       {" --tp_size 8 --ep_size 8 "},
       {"attention_dp", "TRTLLM_"}},
      {"hybrid MoE TP and EP",
       kSglang,
       "TP8+EP2xMTP4",
       {" --tp-size 8 --ep-size 2 "},
       {}},
      {"hybrid MoE TP and EP",
       kTrtllm,
       "TP8+EP2xMTP4",
       {" --tp_size 8 --ep_size 2 "},
       {}},
      {"DP attention and EP",
       kVllm,
       "DP8+EP8",
       {" -tp 1 -dp 8 --enable-expert-parallel --all2all-backend "
        "allgather_reducescatter "},
       {}},
      {"DP attention and EP",
       kSglang,
       "DP8+EP8",
       {" --tp-size 8 --dp-size 8 --enable-dp-attention --ep-size 8 "},
       {"a2a"}},
      {"DP attention and EP",
       kTrtllm,
       "DP8+EP8",
       {" --tp_size 8 --ep_size 8 ", "\nenable_attention_dp: true\n",
        "TRTLLM_FORCE_COMM_METHOD=ALLGATHER "},
       {"moe_tensor_parallel_size"}},
      {"low-latency a2a",
       kVllm,
       "DP8+EP8:deepep-ll",
       {" -tp 1 -dp 8 --enable-expert-parallel --all2all-backend "
        "deepep_low_latency "},
       {}},
      {"low-latency a2a",
       kSglang,
       "DP8+EP8:deepep-ll",
       {" --ep-size 8 --moe-a2a-backend deepep --deepep-mode auto "},
       {}},
      {"low-latency a2a",
       kTrtllm,
       "DP8+EP8:deepep-ll",
       {"TRTLLM_FORCE_COMM_METHOD=DEEPEPLOWLATENCY "
        "TRTLLM_DEEP_EP_TOKEN_LIMIT=256 "},
       {}},
      {"FlashInfer NVLink a2a",
       kVllm,
       "DP8+EP8:flashinfer",
       {" --all2all-backend flashinfer_nvlink_one_sided "},
       {},
       "gpt-oss-120b"},
      {"DP attention and MoE TP",
       kVllm,
       "DP8",
       {" -tp 1 -dp 8 "},
       {kEp, "all2all"}},
      {"DP attention and MoE TP",
       kSglang,
       "DP8",
       {" --tp-size 8 --dp-size 8 --enable-dp-attention "},
       {"--ep-size"}},
      {"DP attention and MoE TP",
       kTrtllm,
       "DP8",
       {"\nenable_attention_dp: true\nmoe_tensor_parallel_size: 8\n"},
       {"TRTLLM_"}},
      {"TP times DP and EP",
       kVllm,
       "DP2xTP4+EP8",
       {" -tp 4 -dp 2 --enable-expert-parallel "},
       {}},
      {"TP times DP and EP",
       kSglang,
       "DP2xTP4+EP8",
       {" --tp-size 8 --dp-size 2 --enable-dp-attention --ep-size 8 "},
       {}},
      {"replicas",
       kVllm,
       "2xTP4",
       {"CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve ",
        "CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve ", " -tp 4 "},
       {" -dp "}},
      {"replicas",
       kSglang,
       "2xTP4",
       {" --tp-size 4 --dp-size 2 "},
       {"dp-attention"}},
      {"replicas",
       kTrtllm,
       "2xTP4",
       {"CUDA_VISIBLE_DEVICES=0,1,2,3 trtllm-serve ",
        "CUDA_VISIBLE_DEVICES=4,5,6,7 trtllm-serve ", " --tp_size 4 "},
       {"attention_dp"}},
      {"PP", kVllm, "PP8", {" -pp 8 "}, {" -tp "}},
      {"PP", kSglang, "PP8", {" --pp-size 8 "}, {}},
      {"PP", kTrtllm, "PP8", {" --pp_size 8 "}, {}},
      {"TP times PP", kVllm, "PP2xTP4", {" -tp 4 -pp 2 "}, {}},
      {"TP times PP", kSglang, "PP2xTP4", {" --tp-size 4 --pp-size 2 "}, {}},
      {"TP times PP", kTrtllm, "PP2xTP4", {" --tp_size 4 --pp_size 2 "}, {}},
      {"memory", kVllm, "TP8", {" --gpu-memory-utilization 0.92 "}, {}},
      {"memory", kSglang, "TP8", {" --mem-fraction-static 0."}, {}},
      {"memory",
       kTrtllm,
       "TP8",
       {" --kv_cache_free_gpu_memory_fraction 0.9 "},
       {}},
  };
}

INSTANTIATE_TEST_SUITE_P(Of, Flags, testing::ValuesIn(OfModes()), NameOf);

class FlagsWithoutCustomAllReduce : public Flags {};

TEST_P(FlagsWithoutCustomAllReduce, AreSpelledAsTheEngineDoes) {
  Fingerprint node = Node(8);
  node.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  Check(Pasted(GetParam().engine, GetParam().model, GetParam().mode, node));
}

std::vector<Spelling> OfSickNodes() {
  return {
      {"custom AR off",
       kVllm,
       "TP8",
       {"NCCL_P2P_DISABLE=1 ", "VLLM_ALLREDUCE_USE_FLASHINFER=0 ",
        "VLLM_ALLREDUCE_USE_SYMM_MEM=0 ", " --disable-custom-all-reduce "},
       {}},
      {"custom AR off",
       kSglang,
       "TP8",
       {"NCCL_P2P_DISABLE=1 ",
        " --disable-custom-all-reduce "
        "--enforce-disable-flashinfer-allreduce-fusion "},
       {}},
      {"custom AR off",
       kTrtllm,
       "TP8",
       {"NCCL_P2P_DISABLE=1 ", "\nallreduce_strategy: NCCL\n"},
       {}},
  };
}

INSTANTIATE_TEST_SUITE_P(Of, FlagsWithoutCustomAllReduce,
                         testing::ValuesIn(OfSickNodes()), NameOf);

TEST(HybridExpertParallelism, IsNotAvailableInVllm) {
  EXPECT_NE(RefusalOf(kVllm, Preset("Kimi-K2.5"), "TP8+EP2xMTP4"), "");
}

TEST(AttentionDataParallelism, IsAllOrNothingInTrtllm) {
  EXPECT_NE(RefusalOf(kTrtllm, Preset("Kimi-K2.5"), "DP2xTP4+EP8"), "");
}

// ---- What is never pasted

// All launches of an engine, whatever the model, the plan and the node.
const std::string& Everything(EngineId engine) {
  static auto* const known = new std::map<EngineId, std::string>();
  std::string& all = (*known)[engine];
  if (all.empty()) {
    const int launched =
        ForEachLaunch(engine, [&](const Plan&, const std::string& one) {
          absl::StrAppend(&all, one, "\n");
        });
    EXPECT_GT(launched, 300);
  }
  return all;
}

class NeverPasted : public testing::TestWithParam<const char*> {};

TEST_P(NeverPasted, ByAnyEngine) {
  for (EngineId engine : ServingEngines()) {
    EXPECT_EQ(Everything(engine).find(GetParam()), std::string::npos)
        << ToString(engine);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Is, NeverPasted,
    testing::Values(
        // Gone from vLLM, or for no server that decodes.
        "naive", "pplx", "VLLM_ALL2ALL_BACKEND", "deepep_high_throughput",
        // Of sizes that nobody knows.
        "deepep_v2", "flashinfer_nvlink_two_sided", "flashinfer_all2allv",
        "nixl", "mori",
        // Gone from SGLang, deprecated, or somebody's own.
        "--enable-ep-moe", "--enable-deepep-moe",
        "--enable-flashinfer-allreduce-fusion", "--deepep-mode normal",
        "--enable-pcie-oneshot-allreduce", "--ep-dispatch-algorithm",
        "--moe-dense-tp-size",
        // Of TensorRT-LLM: deprecated, without effect, an alias.
        "WIDEEP", "LOWPRECISION", "--extra_llm_api_options",
        // Of several nodes.
        "--data-parallel-size-local", "--data-parallel-address",
        "--data-parallel-rpc-port", "--data-parallel-start-rank", "--headless",
        // Off by default and priced as off.
        "VLLM_USE_NCCL_SYMM_MEM", "--enable-symm-mem", "--enable-mscclpp",
        "--enable-torch-symm-mem", "VLLM_DEEPEPLL_NVFP4_DISPATCH", "eplb",
        "--speculative", "-dcp", "NCCL_MIN_NCHANNELS", "NCCL_P2P_LEVEL"),
    [](const testing::TestParamInfo<const char*>& of) {
      return TestName(of.param);
    });

TEST(AttentionDataParallelism, IsNeverAskedOfSglangWithoutItsSize) {
  ForEachLaunch(kSglang, [](const Plan& plan, const std::string& all) {
    const bool attention_dp =
        all.find("--enable-dp-attention") != std::string::npos;
    EXPECT_EQ(attention_dp, plan.attention_dp > 1) << all;
    if (attention_dp) {
      EXPECT_THAT(all, HasSubstr(absl::StrCat(" --dp-size ", plan.attention_dp,
                                              " --enable-dp-attention ")));
    }
  });
}

TEST(AttentionDataParallelism, IsAskedOfTrtllmInItsConfiguration) {
  ForEachLaunch(kTrtllm, [](const Plan& plan, const std::string& all) {
    EXPECT_EQ(all.find("\nenable_attention_dp: true\n") != std::string::npos,
              plan.attention_dp > 1)
        << all;
  });
}

TEST(DeepEp, IsPastedOnlyWhereNvlinkJoinsAllGpus) {
  for (EngineId engine : ServingEngines()) {
    for (const char* mode : {"DP8+EP8:deepep-ll", "DP4+EP4:deepep-ll"}) {
      const ModelShape& kimi = Preset("Kimi-K2.5");
      EXPECT_NE(RefusalOf(engine, kimi, mode, Node(8, false)), "");
      EXPECT_EQ(RefusalOf(engine, kimi, mode, Node(8)), "");
    }
  }
}

}  // namespace
}  // namespace fabricwise
