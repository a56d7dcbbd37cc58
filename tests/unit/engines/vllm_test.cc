// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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
using ::testing::SizeIs;
using ::testing::UnorderedElementsAreArray;

constexpr EngineId kVllm = EngineId::kVllm;

std::string Refusal(const ModelShape& model, const std::string& mode,
                    const Fingerprint& node = Node(8)) {
  return RefusalOf(kVllm, model, mode, node);
}

LaunchAdvice Launch(const std::string& model, const std::string& mode,
                    int64_t concurrency, const Fingerprint& node = Node(8)) {
  const ModelShape& shape = Preset(model);
  const Plan plan = PlanOf(shape, mode);
  return GetEngine(kVllm).Launch(shape, plan, {.concurrency = concurrency},
                                 node, Gpus(plan));
}

// A MoE model whose experts have this width and format.
ModelShape WithExperts(int64_t intermediate, const WeightFormat& format) {
  ModelShape model = Preset("Qwen3-235B-A22B");
  model.moe_intermediate_size = intermediate;
  model.expert_weights = format;
  return model;
}

constexpr WeightFormat kFp8{NumberFormat::kFp8Block};
constexpr WeightFormat Int4(int64_t group) {
  return {NumberFormat::kInt4Group, group};
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

TEST(Vllm, WantsWholeBlocksOfAttentionOnEveryRank) {
  ModelShape model = Preset("Llama-3.1-70B");
  model.attention_weights = kFp8;
  model.head_dim = model.v_head_dim = 64;
  EXPECT_EQ(Refusal(model, "TP4"), "");
  EXPECT_EQ(Refusal(model, "TP8"),
            "key and value width 512 / TP 8 = 64 is not a multiple of fp8 "
            "block 128");
  model.num_key_value_heads = 64;
  EXPECT_EQ(Refusal(model, "TP64", Node(64)),
            "query width 4096 / TP 64 = 64 is not a multiple of fp8 block 128");
  model.attention_weights = Int4(128);
  EXPECT_EQ(Refusal(model, "TP64", Node(64)),
            "attention output width 4096 / TP 64 = 64 is not a multiple of "
            "int4 group 128");
  EXPECT_EQ(Refusal(Preset("DeepSeek-V3"), "TP16+EP16", Node(16)), "");
}

TEST(Vllm, RunsInt4ExpertsOfThreeGroupSizes) {
  for (const int64_t group : {32, 64, 128}) {
    EXPECT_EQ(Refusal(WithExperts(1536, Int4(group)), "TP4"), "") << group;
  }
  EXPECT_EQ(Refusal(WithExperts(1536, Int4(256)), "TP2"),
            "int4 experts come in groups of 32, 64, 128, not 256");
}

TEST(Vllm, RunsNvfp4ExpertsOnConsumerBlackwellWithoutExpertParallelism) {
  const ModelShape model = WithExperts(1536, {NumberFormat::kNvfp4});
  const Fingerprint sm120 = Box("NVIDIA RTX PRO 6000", 8, false, true);
  EXPECT_EQ(Refusal(model, "TP4", sm120), "");
  EXPECT_EQ(Refusal(model, "TP4+EP4", sm120),
            "NVFP4 experts on sm_120 run on kernels without expert "
            "parallelism");
  EXPECT_EQ(Refusal(model, "TP4+EP4", Box("NVIDIA B200", 8, true, true)), "");
}

// Experts need not divide: the remainder is spread.
TEST(Vllm, SpreadsExpertsThatDoNotDivide) {
  ModelShape model = Preset("Qwen3-235B-A22B");
  model.num_experts = 130;
  EXPECT_EQ(Refusal(model, "TP4+EP4"), "");
  EXPECT_EQ(RecipeOf(kVllm, model, "TP4+EP4").experts[0].num_experts, 130);
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
                          ExpertTransport::kDeepEpLowLatency,
                          ExpertTransport::kFlashinferNvlink));
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

// The paths of an all-reduce of Llama-3.1-70B, as "one_shot 0.5, nccl": kernels
// with the largest message in MiB.
std::string Paths(const std::string& mode, const Fingerprint& node) {
  const Recipe recipe = RecipeOf(kVllm, Preset("Llama-3.1-70B"), mode, node);
  std::string text;
  for (const CollectivePath& path :
       CollectiveOf(recipe, "all_reduce attention").paths) {
    if (!text.empty()) text += ", ";
    switch (path.kernel) {
      case CollectiveKernel::kLibrary:
        EXPECT_EQ(path.implementation, CollectiveImpl::kNccl);
        EXPECT_EQ(path.max_bytes, std::numeric_limits<double>::infinity());
        text += "nccl";
        continue;
      case CollectiveKernel::kOneShot:
        text += "one_shot";
        break;
      case CollectiveKernel::kTwoShot:
        text += "two_shot";
        break;
      case CollectiveKernel::kMulticast:
        text += "multicast";
        break;
    }
    EXPECT_EQ(path.implementation, CollectiveImpl::kVllmCustom);
    text += absl::StrCat(" ", path.max_bytes / (1 << 20));
  }
  return text;
}

// Four GPUs, bridged in pairs.
Fingerprint Bridged() {
  Fingerprint node = Box("NVIDIA RTX A6000", 4, false, true);
  for (const auto& [i, j] : {std::pair(0, 1), std::pair(2, 3)}) {
    node.nvlinks[i][j] = node.nvlinks[j][i] = 4;
  }
  return node;
}

struct PathsRow {
  const char* what;
  Fingerprint node;
  const char* mode;
  const char* paths;
};

void PrintTo(const PathsRow& row, std::ostream* out) { *out << row.what; }

std::vector<PathsRow> PathsRows() {
  const auto box = [](const char* name, int count) {
    return Box(name, count, true, true);
  };
  return {
      {"8x H100 NVSwitch", box("NVIDIA H100 80GB HBM3", 8), "TP8",
       "one_shot 0.5, multicast 64, nccl"},
      {"8x H200 NVSwitch", box("NVIDIA H200", 8), "TP8",
       "one_shot 0.5, multicast 64, nccl"},
      {"4 of 8x H100", box("NVIDIA H100 80GB HBM3", 8), "TP4",
       "one_shot 2, two_shot 8, multicast 32, nccl"},
      {"4x H100 NVSwitch", box("NVIDIA H100 80GB HBM3", 4), "TP4",
       "one_shot 2, two_shot 8, multicast 32, nccl"},
      {"2 of 8x H200", box("NVIDIA H200", 8), "TP2",
       "one_shot 32, two_shot 64, nccl"},
      {"6x H200", box("NVIDIA H200", 6), "TP6",
       "one_shot 0.25, two_shot 0.5, multicast 64, nccl"},
      {"2x H200", box("NVIDIA H200", 2), "TP2",
       "one_shot 32, two_shot 64, nccl"},
      {"8x B200", box("NVIDIA B200", 8), "TP8",
       "one_shot 1, multicast 128, nccl"},
      {"4 of 8x B200", box("NVIDIA B200", 8), "TP4",
       "one_shot 4, two_shot 32, nccl"},
      {"2 of 8x B200", box("NVIDIA B200", 8), "TP2",
       "one_shot 32, two_shot 64, nccl"},
      {"6x B200", box("NVIDIA B200", 6), "TP6",
       "one_shot 0.25, two_shot 1, multicast 128, nccl"},
      {"16x B200", box("NVIDIA B200", 16), "TP16", "two_shot 64, nccl"},
      {"2 of 8x B300", box("NVIDIA B300 SXM6 AC", 8), "TP2",
       "one_shot 32, two_shot 64, nccl"},
      {"4 of 8x B300", box("NVIDIA B300 SXM6 AC", 8), "TP4",
       "one_shot 4, two_shot 64, nccl"},
      {"6x B300", box("NVIDIA B300 SXM6 AC", 6), "TP6",
       "one_shot 0.25, two_shot 8, multicast 32, nccl"},
      {"16x B300", box("NVIDIA B300 SXM6 AC", 16), "TP16", "two_shot 64, nccl"},
      {"8x B300", box("NVIDIA B300 SXM6 AC", 8), "TP8",
       "one_shot 2, two_shot 4, multicast 64, nccl"},
      {"8x A100 NVSwitch", box("NVIDIA A100-SXM4-80GB", 8), "TP8",
       "one_shot 0.25, two_shot 8, nccl"},
      {"4 of 8x A100", box("NVIDIA A100-SXM4-80GB", 8), "TP4",
       "one_shot 0.5, two_shot 8, nccl"},
      {"2x L40S with P2P", Box("NVIDIA L40S", 2, false, true), "TP2",
       "one_shot 8, nccl"},
      {"2x H100 PCIe with P2P", Box("NVIDIA H100 PCIe", 2, false, true), "TP2",
       "one_shot 8, nccl"},
      {"2 of 8x RTX PRO 6000", Box("NVIDIA RTX PRO 6000", 8, false, true),
       "TP2", "one_shot 8, nccl"},
      {"2x RTX 4090", Box("NVIDIA GeForce RTX 4090", 2, false, false), "TP2",
       "nccl"},
      {"vllm#56128: 4x RTX PRO 6000",
       Box("NVIDIA RTX PRO 6000", 4, false, true), "TP4", "nccl"},
      {"8x RTX PRO 6000", Box("NVIDIA RTX PRO 6000", 8, false, true), "TP8",
       "nccl"},
      {"8x L40S", Box("NVIDIA L40S", 8, false, true), "TP8", "nccl"},
      {"8x RTX 4090", Box("NVIDIA GeForce RTX 4090", 8, false, false), "TP8",
       "nccl"},
      {"4x A6000", Box("NVIDIA RTX A6000", 4, false, true), "TP4", "nccl"},
      {"4x H100 PCIe", Box("NVIDIA H100 PCIe", 4, false, true), "TP4", "nccl"},
      {"3x A100 NVSwitch", box("NVIDIA A100-SXM4-80GB", 3), "TP3", "nccl"},
      {"4x A6000 bridged in pairs", Bridged(), "TP4", "nccl"},
      {"2 of 4x A6000 bridged in pairs", Bridged(), "TP2", "one_shot 8, nccl"},
      {"16x H200", box("NVIDIA H200", 16), "TP16", "nccl"},
  };
}

class VllmAllReduce : public testing::TestWithParam<PathsRow> {};

TEST_P(VllmAllReduce, IsTheFirstOfItsOrderThatTakesTheSize) {
  EXPECT_EQ(Paths(GetParam().mode, GetParam().node), GetParam().paths);
}

INSTANTIATE_TEST_SUITE_P(Of, VllmAllReduce, testing::ValuesIn(PathsRows()),
                         [](const testing::TestParamInfo<PathsRow>& of) {
                           return TestName(of.param.what);
                         });

TEST(Vllm, TakesBridgesForNoSwitch) {
  // H200 NVL: six links to each of three.
  Fingerprint mesh = Box("NVIDIA H200 NVL", 4, true, true);
  for (auto& row : mesh.nvlinks) row.assign(4, 6);
  EXPECT_EQ(Paths("TP4", mesh), "one_shot 2, two_shot 8, nccl");
}

TEST(Vllm, LooksAtTheGpusOfTheGroupsOnly) {
  Fingerprint node = Box("NVIDIA A100-SXM4-80GB", 8, true, true);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 4; j < 8; ++j) node.nvlinks[i][j] = node.nvlinks[j][i] = 0;
  }
  EXPECT_EQ(Paths("TP4", node), "one_shot 0.5, two_shot 8, nccl");
  EXPECT_EQ(Paths("PP2xTP4", node), "one_shot 0.5, two_shot 8, nccl");
  EXPECT_EQ(Paths("TP8", node), "nccl");
}

TEST(Vllm, SaysThatTheProfileDoesNotTellNvlinks) {
  Fingerprint node = Box("NVIDIA H200", 8, true, true);
  node.nvlinks.clear();
  const auto note = [&](const char* mode) {
    const Recipe recipe = RecipeOf(kVllm, Preset("Llama-3.1-70B"), mode, node);
    const CollectiveUse& use = CollectiveOf(recipe, "all_reduce attention");
    EXPECT_EQ(use.upper_bound, !use.note.empty());
    return std::string(use.note);
  };
  EXPECT_EQ(Paths("TP8", node), "nccl");
  EXPECT_THAT(note("TP8"), HasSubstr("does not say which GPUs NVLink joins"));
  // Peer access is all that two want.
  EXPECT_EQ(Paths("TP2", node), "one_shot 8, nccl");
  EXPECT_EQ(note("TP2"), "");
  node.peer_access.clear();
  EXPECT_EQ(Paths("TP2", node), "nccl");
  EXPECT_THAT(note("TP2"), HasSubstr("does not say"));
  // Without peer access nothing but NCCL is left.
  node = Box("NVIDIA H200", 8, true, false);
  node.nvlinks.clear();
  EXPECT_EQ(Paths("TP8", node), "nccl");
  EXPECT_EQ(note("TP8"), "");
}

TEST(Vllm, DoesWithoutPeerKernelsWhereNcclDoes) {
  Fingerprint node = Box("NVIDIA H200", 8, true, true);
  node.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  EXPECT_EQ(Paths("TP8", node), "nccl");
  EXPECT_EQ(Refusal(Preset("Kimi-K2.5"), "DP8+EP8:deepep-ll", node),
            "DeepEP needs copies between peers, which do not work here");
}

TEST(Vllm, FusesTheNormAfterAnAllReduceOnHopperAndBlackwell) {
  const ModelShape& llama = Preset("Llama-3.1-70B");
  const Recipe h200 = RecipeOf(kVllm, llama, "TP8");
  const Recipe a100 = RecipeOf(kVllm, llama, "TP8",
                               Box("NVIDIA A100-SXM4-80GB", 8, true, true));
  EXPECT_EQ(h200.fused.count, 2 * 80);
  EXPECT_EQ(h200.fused.max_bytes, 512 << 10);
  EXPECT_EQ(h200.fused.bytes_per_token, 2 * 8192);
  EXPECT_EQ(a100.fused.count, 0);
  EXPECT_EQ(h200.small_kernels + h200.fused.count, a100.small_kernels);
  EXPECT_EQ(RecipeOf(kVllm, llama, "TP1").fused.count, 0);
  // All-reduces stay as many.
  EXPECT_EQ(CountOf(h200, CollectiveOp::kAllReduce),
            CountOf(a100, CollectiveOp::kAllReduce));
}

// ---- Collectives of a layer

struct ModeRow {
  const char* what;
  const char* model;
  const char* mode;
  std::vector<std::string> lines;
};

void PrintTo(const ModeRow& row, std::ostream* out) { *out << row.what; }

std::vector<ModeRow> ModeRows() {
  // Of a token 7168 x 2 bytes, in Qwen3's 4096 x 2, and for each of 8 experts
  // 8 bytes of routing.
  return {
      {"dense TP",
       "Llama-3.1-70B",
       "TP8",
       {"80 x all_reduce n8 16384 rank", "80 x all_reduce n8 16384 rank",
        "1 x all_reduce n8 16384 rank", "1 x all_gather n8 256512 output"}},
      {"MoE TP",
       "Kimi-K2.5",
       "TP8",
       {"61 x all_reduce n8 14336 rank", "60 x all_reduce n8 14336 rank",
        "1 x all_reduce n8 14336 rank", "1 x all_reduce n8 14336 rank",
        "1 x all_gather n8 327680 output"}},
      {"DP and EP, TP 1",
       "Kimi-K2.5",
       "DP8+EP8",
       {"60 x all_gather n8 14400 stage",
        "60 x reduce_scatter n8 14336 stage"}},
      {"DP without EP, TP 1",
       "Kimi-K2.5",
       "DP8",
       {"60 x all_gather n8 14400 stage",
        "60 x reduce_scatter n8 14336 stage"}},
      {"DP without EP, TP 4",
       "Qwen3-235B-A22B",
       "DP2xTP4",
       {"94 x all_gather n2 8256 stage", "94 x reduce_scatter n2 8192 stage",
        "94 x all_reduce n4 8192 rank", "94 x all_reduce n4 8192 rank",
        "1 x all_reduce n4 8192 rank", "1 x all_gather n4 303872 output"}},
      {"DP and EP, TP 4: sequence-parallel experts",
       "Qwen3-235B-A22B",
       "DP2xTP4+EP8",
       {"94 x all_gather n8 8256 stage", "94 x reduce_scatter n8 8192 stage",
        "94 x reduce_scatter n4 8192 rank", "94 x all_gather n4 8192 rank",
        "1 x all_reduce n4 8192 rank", "1 x all_gather n4 303872 output"}},
      {"the same by FlashInfer",
       "Qwen3-235B-A22B",
       "DP2xTP4+EP8:flashinfer",
       {"94 x all_gather n8 8256 stage", "94 x reduce_scatter n8 8192 stage",
        "94 x reduce_scatter n4 8192 rank", "94 x all_gather n4 8192 rank",
        "1 x all_reduce n4 8192 rank", "1 x all_gather n4 303872 output"}},
      {"the same with stages, of DeepSeek's kind: not sequence-parallel",
       "Kimi-K2.5",
       "PP2xDP2xTP2+EP4",
       {"60 x all_gather n2 14400 stage", "60 x reduce_scatter n2 14336 stage",
        "60 x all_reduce n2 14336 rank", "61 x all_reduce n2 14336 rank",
        "1 x all_reduce n2 14336 rank", "1 x all_reduce n2 14336 rank",
        "1 x all_gather n2 327680 output", "1 x send_recv n2 14336 rank",
        "1 x all_gather n2 28672 rank"}},
      {"PP: hidden states and residual",
       "Llama-3.1-70B",
       "PP2",
       {"1 x send_recv n2 32768 rank"}},
  };
}

class VllmMode : public testing::TestWithParam<ModeRow> {};

TEST_P(VllmMode, RunsItsCollectives) {
  EXPECT_THAT(Lines(RecipeOf(kVllm, Preset(GetParam().model), GetParam().mode)),
              UnorderedElementsAreArray(GetParam().lines));
}

INSTANTIATE_TEST_SUITE_P(Of, VllmMode, testing::ValuesIn(ModeRows()),
                         [](const testing::TestParamInfo<ModeRow>& of) {
                           return TestName(of.param.what);
                         });

// Gathered tokens, in the format that the experts' kernels take: beside 8 bytes
// for each of 8 experts.
TEST(Vllm, GathersTokensAsTheExpertsTakeThem) {
  struct Row {
    const char* gpu;
    NumberFormat format;
    const char* mode;
    double bytes;
  };
  using Format = NumberFormat;
  constexpr double kBf16Bytes = 14'336, kFp8Bytes = 7168 + 4 * 56;
  constexpr Row kRows[] = {
      {"NVIDIA B200", Format::kFp8Block, "DP8+EP8", kFp8Bytes},
      {"NVIDIA B200", Format::kFp8Block, "DP8", kFp8Bytes},
      {"NVIDIA L40S", Format::kFp8Block, "DP8+EP8", kFp8Bytes},
      {"NVIDIA H200", Format::kFp8Block, "DP8", kFp8Bytes},
      // FlashInfer's kernel quantizes by itself; Marlin does not at all.
      {"NVIDIA H200", Format::kFp8Block, "DP8+EP8", kBf16Bytes},
      {"NVIDIA A100-SXM4-80GB", Format::kFp8Block, "DP8+EP8", kBf16Bytes},
      {"not known", Format::kFp8Block, "DP8+EP8", kBf16Bytes},
      {"NVIDIA H200", Format::kFp8, "DP8+EP8", 7168 + 4},
      {"NVIDIA B200", Format::kBf16, "DP8+EP8", kBf16Bytes},
      {"NVIDIA B200", Format::kInt4Group, "DP8+EP8", kBf16Bytes},
      {"NVIDIA B200", Format::kMxfp4, "DP8+EP8", kBf16Bytes},
      {"NVIDIA B200", Format::kNvfp4, "DP8+EP8", kBf16Bytes},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(absl::StrCat(row.gpu, " ", row.mode));
    ModelShape model = Preset("DeepSeek-V3");
    model.expert_weights = {row.format,
                            row.format == Format::kInt4Group ? 32 : 0};
    const Recipe recipe =
        RecipeOf(kVllm, model, row.mode, Box(row.gpu, 8, true, true));
    EXPECT_EQ(CollectiveOf(recipe, "all_gather expert tokens")
                  .steps[0]
                  .bytes_per_token,
              row.bytes + 8 * 8);
    EXPECT_EQ(CollectiveOf(recipe, "reduce_scatter expert outputs")
                  .steps[0]
                  .bytes_per_token,
              kBf16Bytes);
  }
}

TEST(Vllm, KeepsABlockOfAWindowBeyondIt) {
  const ModelShape& model = Preset("gpt-oss-120b");
  EXPECT_EQ(RecipeOf(kVllm, model, "TP1").memory.window_tokens, 128 + 16);
}

// What a GPU sends for each token of the step in one MoE layer and the
// attention before it, by rings.
double KilobytesSent(const std::string& mode, const char* name = "Kimi-K2.5",
                     const Fingerprint& node = Node(8)) {
  const Recipe recipe = RecipeOf(kVllm, Preset(name), mode, node);
  double bytes = 0;
  for (const CollectiveUse& use : recipe.collectives) {
    if (use.count < 58) continue;  // not of every MoE layer
    const double n = use.group_size;
    for (const CollectiveStep& step : use.steps) {
      const bool both = step.op == CollectiveOp::kAllReduce;
      bytes += (both ? 2 : 1) * (n - 1) / n * step.bytes_per_token;
    }
  }
  return bytes / 1000;
}

TEST(Vllm, HalvesTheBytesOfALayerByAttentionDataParallelism) {
  EXPECT_NEAR(KilobytesSent("TP8"), 50.2, 0.05);
  EXPECT_NEAR(KilobytesSent("TP8+EP8"), 50.2, 0.05);
  EXPECT_NEAR(KilobytesSent("DP8+EP8"), 25.1, 0.1);
  // Gathered in 8 bits.
  EXPECT_NEAR(KilobytesSent("DP8+EP8", "DeepSeek-V3",
                            Box("NVIDIA B200", 8, true, true)),
              19.0, 0.1);
}

TEST(Vllm, DispatchesByDeepEpWhatASequenceParallelRankHolds) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  const Recipe recipe = RecipeOf(kVllm, kimi, "DP2xTP4+EP8:deepep-ll");
  ASSERT_THAT(recipe.exchanges, SizeIs(1));
  EXPECT_EQ(recipe.exchanges[0].tokens, TokenBasis::kRankSlice);
  EXPECT_EQ(recipe.exchanges[0].group_size, 8);
  EXPECT_EQ(recipe.exchanges[0].count, 60);
  // Where it is not sequence-parallel, the shared expert's parts are summed by
  // an all-reduce of their own.
  const Recipe stages = RecipeOf(kVllm, kimi, "PP2xDP2xTP2+EP4:deepep-ll");
  EXPECT_EQ(stages.exchanges[0].tokens, TokenBasis::kRank);
  EXPECT_EQ(CollectiveOf(stages, "all_reduce shared expert").count, 60);
  EXPECT_EQ(CollectiveOf(stages, "all_reduce shared expert").group_size, 2);
}

TEST(Vllm, ExchangesByFlashinferWhereItsConditionsHold) {
  const ModelShape& model = Preset("gpt-oss-120b");  // mxfp4
  const Fingerprint b200 = Box("NVIDIA B200", 8, true, true);
  const char* const mode = "DP8+EP8:flashinfer";
  EXPECT_EQ(Refusal(model, mode, b200), "");
  EXPECT_EQ(Refusal(model, mode, Box("NVIDIA B300 SXM6 AC", 8, true, true)),
            "");
  EXPECT_EQ(Refusal(model, mode, Box("NVIDIA H200", 8, true, true)),
            "FlashInfer's exchange needs GPUs of sm_100 or sm_103 behind an "
            "NVLink switch");
  EXPECT_EQ(
      Refusal(model, "DP2+EP2:flashinfer", Box("NVIDIA B200", 2, true, true)),
      "FlashInfer's exchange needs GPUs of sm_100 or sm_103 behind an "
      "NVLink switch");
  EXPECT_EQ(Refusal(model, mode, Box("NVIDIA B200", 8, false, true)),
            "FlashInfer needs NVLink between all GPUs of a stage; some pairs "
            "have none");
  EXPECT_EQ(Refusal(model, mode, Box("NVIDIA B200", 8, true, false)),
            "FlashInfer needs copies between peers, which do not work here");
  EXPECT_EQ(Refusal(Preset("DeepSeek-V3"), mode, b200),
            "FlashInfer's exchange is for experts in nvfp4 or mxfp4, not "
            "fp8_block");
  ModelShape many = model;
  many.experts_per_token = 10;
  EXPECT_EQ(Refusal(many, mode, b200),
            "FlashInfer's exchange brings a token to at most 8 experts, not "
            "10");
  Plan sliced = PlanOf(model, "DP8");
  sliced.transport = ExpertTransport::kFlashinferNvlink;
  EXPECT_EQ(
      GetEngine(kVllm).Refusal(model, sliced, b200, Gpus(sliced).replicas[0]),
      "FlashInfer needs expert parallelism");

  // No curve is of it: what it does better than gathering all is not known.
  const Recipe recipe = RecipeOf(kVllm, model, mode, b200);
  EXPECT_EQ(Lines(recipe), Lines(RecipeOf(kVllm, model, "DP8+EP8", b200)));
  for (const CollectiveUse& use : recipe.collectives) {
    EXPECT_TRUE(use.upper_bound) << use.name;
    EXPECT_THAT(std::string(use.note), HasSubstr("upper bound")) << use.name;
  }
  // 8 ranks of 8192 tokens: there and back in bf16, and 8 bytes for each of 4
  // experts.
  EXPECT_NEAR(
      recipe.memory.communicator_bytes -
          RecipeOf(kVllm, model, "DP8+EP8", b200).memory.communicator_bytes,
      8. * 8192 * (4 * 2880 + 8 * 4), 1);
  EXPECT_THAT(Launch("gpt-oss-120b", mode, 8, b200).commands[0],
              HasSubstr(" --all2all-backend flashinfer_nvlink_one_sided "));
}

TEST(Vllm, PadsTheWidthThatDeepEpLowLatencySends) {
  struct Row {
    int64_t hidden, sent;
  };
  constexpr Row kRows[] = {
      {2048, 2048}, {2560, 2560}, {2880, 3072}, {3072, 3072}, {4096, 4096},
      {5120, 5120}, {6144, 6144}, {6656, 7168}, {7168, 7168}, {8192, 8192}};
  for (const Row& row : kRows) {
    ModelShape model = Preset("DeepSeek-V3");
    model.hidden_size = row.hidden;
    EXPECT_EQ(
        RecipeOf(kVllm, model, "DP8+EP8:deepep-ll").exchanges[0].hidden_size,
        row.sent);
  }
}

TEST(Vllm, LimitsDeepEpLowLatencyToTheTokensOfItsBuffers) {
  const Recipe recipe =
      RecipeOf(kVllm, Preset("DeepSeek-V3"), "DP8+EP8:deepep-ll");
  EXPECT_EQ(recipe.max_rank_sequences, 256);
  EXPECT_EQ(recipe.chunk_tokens, 256);
  EXPECT_EQ(
      RecipeOf(kVllm, Preset("DeepSeek-V3"), "DP8+EP8").max_rank_sequences, 0);
  // 256 experts x 256 tokens: two buffers of received (16 + 2 x 7168) and of
  // combined (2 x 7168), and an fp8 copy for the experts.
  const double buffers = 256. * 256 * (2 * 14352 + 2 * 14336 + 7168);
  EXPECT_NEAR(recipe.memory.communicator_bytes -
                  RecipeOf(kVllm, Preset("DeepSeek-V3"), "DP8+EP8")
                      .memory.communicator_bytes,
              buffers, 1);
}

TEST(Vllm, DispatchesByDeepEpInEightBitsOnlyForFp8ByBlocks) {
  using Format = NumberFormat;
  for (const NumberFormat format :
       {Format::kBf16, Format::kFp8, Format::kInt4Group, Format::kMxfp4,
        Format::kNvfp4}) {
    ModelShape model = Preset("DeepSeek-V3");
    model.expert_weights = {format, format == Format::kInt4Group ? 32 : 0};
    EXPECT_NEAR(
        RecipeOf(kVllm, model, "DP8+EP8:deepep-ll").exchanges[0].dispatch_ratio,
        14352. / 7408, 1e-12)
        << ToString(format);
  }
  EXPECT_EQ(RecipeOf(kVllm, Preset("DeepSeek-V3"), "DP8+EP8:deepep-ll")
                .exchanges[0]
                .dispatch_ratio,
            1);
}

TEST(Vllm, SaysThatDeepEpDispatchesInBf16WhatIsNotFp8ByBlocks) {
  const auto note = [](const char* model) {
    return std::string(
        RecipeOf(kVllm, Preset(model), "DP8+EP8:deepep-ll").exchanges[0].note);
  };
  EXPECT_EQ(note("DeepSeek-V3"), "");
  EXPECT_THAT(note("Kimi-K2.5"), HasSubstr("bf16"));
}

TEST(Vllm, WaitsForTheHostOnlyWhereDataParallelRanksAgree) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  EXPECT_EQ(RecipeOf(kVllm, kimi, "TP8").host_seconds, 0);
  EXPECT_GT(RecipeOf(kVllm, kimi, "DP8+EP8").host_seconds, 0);
  EXPECT_LT(RecipeOf(kVllm, kimi, "DP8+EP8").host_seconds, 1e-3);
}

// The high-throughput kernels switch CUDA graphs off for the whole engine.
TEST(Vllm, NeverOffersWhatSwitchesCudaGraphsOff) {
  for (const int ranks : {1, 2, 8}) {
    for (const ExpertTransport transport : GetEngine(kVllm).Transports(ranks)) {
      EXPECT_NE(transport, ExpertTransport::kDeepEpHighThroughput);
    }
  }
}

// ---- Memory

TEST(Vllm, KeepsWhatEveryRankNeedsOnEveryRank) {
  const ModelShape& kimi = Preset("Kimi-K2.5");
  // Replicated per GPU under data parallelism: attention 12.3 GB, embedding and
  // head 4.7, shared experts 5.3, the dense MLP 0.8; routed experts 71.3 of
  // int4 with groups of 32.
  constexpr double kGB = 1e9;
  EXPECT_NEAR(RecipeOf(kVllm, kimi, "DP8+EP8").memory.weights_bytes / kGB,
              12.3 + 4.7 + 5.3 + 0.8 + 71.3, 0.5);
  const double tp8 = RecipeOf(kVllm, kimi, "TP8").memory.weights_bytes;
  EXPECT_GT(tp8 / kGB, 71.3 + (12.3 + 4.7 + 5.3 + 0.8) / 8);
  // The latent down projections are not divided: 7168 x 2112 in 61 layers.
  EXPECT_EQ(GemmOf(RecipeOf(kVllm, kimi, "TP8"), "latent down projection").n,
            1536 + 512 + 64);
}

TEST(Vllm, DividesKeysAndValuesOnlyByTheirHeads) {
  struct Row {
    const char* what;
    const char* model;
    const char* mode;
    NumberFormat format;
    double bytes;  // of a token on a GPU
  };
  constexpr NumberFormat kBf16 = NumberFormat::kBf16;
  constexpr NumberFormat kFp8Cache = NumberFormat::kFp8;
  constexpr Row kRows[] = {
      {"GQA", "Llama-3.1-70B", "TP8", kBf16, 80 * 1 * 2 * 128 * 2},
      {"GQA", "Llama-3.1-70B", "TP4", kBf16, 80 * 2 * 2 * 128 * 2},
      {"GQA fp8", "Llama-3.1-70B", "TP4", kFp8Cache, 80 * 2 * 2 * 128},
      {"GQA, TP > kv", "Qwen3-235B-A22B", "TP8", kBf16, 94 * 1 * 2 * 128 * 2},
      {"MLA", "Kimi-K2.5", "TP8", kBf16, 61 * 1152},
      {"MLA", "Kimi-K2.5", "TP1", kBf16, 61 * 1152},
      {"MLA fp8", "Kimi-K2.5", "TP8", kFp8Cache, 61 * 576},
      {"DeepSeek-V3.2", "DeepSeek-V3.2", "TP8", kBf16, 61 * (1152 + 128)},
      {"DeepSeek-V3.2 fp8", "DeepSeek-V3.2", "TP8", kFp8Cache,
       61 * (656 + 128)},
      {"DeepSeek-V4", "DeepSeek-V4-Flash", "TP8", kBf16, 43 * (584 + 128)},
  };
  for (const Row& row : kRows) {
    ModelShape model = Preset(row.model);
    model.kv_cache_format = row.format;
    EXPECT_EQ(RecipeOf(kVllm, model, row.mode).memory.kv_bytes_per_token,
              row.bytes)
        << row.what << " " << row.mode;
  }
}

TEST(Vllm, SizesItsStepsByTheMemoryOfTheGpu) {
  struct Row {
    const char* name;
    int64_t gib;
    int64_t chunk_tokens, sequences;
  };
  constexpr Row kRows[] = {
      {"NVIDIA B200", 178, 16384, 1024},
      {"NVIDIA H200", 140, 8192, 1024},
      {"NVIDIA H100 80GB HBM3", 79, 8192, 1024},
      {"NVIDIA A100-SXM4-80GB", 79, 2048, 256},
      {"NVIDIA RTX PRO 6000", 95, 8192, 1024},
      {"NVIDIA L40S", 44, 2048, 256},
      {"not said", 0, 2048, 256},
  };
  const ModelShape& kimi = Preset("Kimi-K2.5");
  for (const Row& row : kRows) {
    Fingerprint node = Box(row.name, 8, true, true);
    for (Gpu& gpu : node.gpus) gpu.memory_bytes = row.gib << 30;
    const Recipe recipe = RecipeOf(kVllm, kimi, "TP8", node);
    EXPECT_EQ(recipe.chunk_tokens, row.chunk_tokens) << row.name;
    // Six tensors of hidden width, gate, up and their product of the dense
    // layer in bf16, and logits in fp32.
    const auto tokens = static_cast<double>(row.chunk_tokens);
    EXPECT_NEAR(recipe.memory.activation_bytes,
                2 * tokens * (6 * 7168 + 3. * 18'432 / 8) +
                    4. * static_cast<double>(row.sequences) * 163'840,
                1)
        << row.name;
  }
  EXPECT_EQ(RecipeOf(kVllm, kimi, "TP8").memory.usable_fraction, 0.92);
}

// ---- Launch

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

TEST(Vllm, HasOneSchedulerARank) {
  EXPECT_THAT(Launch("Kimi-K2.5", "DP8+EP8", 64).commands[0],
              HasSubstr(" --max-num-seqs 8 "));
  EXPECT_THAT(Launch("Kimi-K2.5", "TP8", 1).engine_version, HasSubstr("vLLM"));
}

TEST(Vllm, LaunchesOnTheGpusOfThePlacement) {
  const ModelShape& model = Preset("Qwen3-235B-A22B");
  const LaunchAdvice launch =
      GetEngine(kVllm).Launch(model, PlanOf(model, "2xTP2"), {}, Node(8),
                              {.replicas = {{5, 2}, {0, 7}}});
  ASSERT_THAT(launch.commands, SizeIs(2));
  EXPECT_THAT(launch.commands[0], HasSubstr("CUDA_VISIBLE_DEVICES=5,2 vllm"));
  EXPECT_THAT(launch.commands[1], HasSubstr("CUDA_VISIBLE_DEVICES=0,7 vllm"));
}

TEST(Vllm, RaisesTheTokensOfAStepOnlyForMoreSequences) {
  EXPECT_THAT(Launch("Llama-3.1-8B", "TP1", 8192).commands[0],
              Not(HasSubstr("--max-num-batched-tokens")));
  EXPECT_THAT(Launch("Llama-3.1-8B", "TP1", 9000).commands[0],
              HasSubstr("--max-num-seqs 9000 --max-num-batched-tokens 9000 "));
}

TEST(Vllm, LaunchesWithTheCacheOfTheModel) {
  ModelShape model = Preset("Llama-3.1-8B");
  const Plan plan = PlanOf(model, "TP1");
  const auto command = [&] {
    return GetEngine(kVllm)
        .Launch(model, plan, {}, Node(8), Gpus(plan))
        .commands[0];
  };
  EXPECT_THAT(command(), Not(HasSubstr("--kv-cache-dtype")));
  model.kv_cache_format = NumberFormat::kFp8;
  EXPECT_THAT(command(), HasSubstr("--kv-cache-dtype fp8 "));
}

// Curves hold for engines in the environment that they were measured in.
TEST(Vllm, LaunchesInTheEnvironmentOfTheCurves) {
  Fingerprint node = Node(8);
  EXPECT_THAT(Launch("Llama-3.1-70B", "TP8", 8, node).environment, IsEmpty());
  node.nccl_environment = {"NCCL_NVLS_ENABLE=0"};
  EXPECT_THAT(Launch("Llama-3.1-70B", "TP8", 8, node).environment,
              ElementsAre("NCCL_NVLS_ENABLE=0"));
}

// vllm#33041, NCCL#1999: TP2 hangs. Peer copies are broken, though the driver
// promises them: behind bridges with ACS, or an IOMMU that translates.
TEST(Vllm, WorksAroundBrokenPeerCopies) {
  for (const char* fact : {"acs=redirect", "iommu=on"}) {
    Fingerprint node = Box("NVIDIA RTX PRO 6000", 2, false, false);
    node.facts = {fact};
    const LaunchAdvice launch = Launch("Llama-3.1-8B", "TP2", 8, node);
    EXPECT_THAT(launch.environment, ElementsAre("NCCL_P2P_DISABLE=1")) << fact;
    EXPECT_THAT(launch.commands[0], HasSubstr(" --disable-custom-all-reduce "));
    EXPECT_THAT(launch.commands[0], Not(HasSubstr("pass_config")));
    // One GPU has no peers.
    const LaunchAdvice one = Launch("Llama-3.1-8B", "2xTP1", 8, node);
    EXPECT_THAT(one.environment, IsEmpty());
    EXPECT_THAT(one.commands[0], Not(HasSubstr("custom-all-reduce")));
  }
}

// sglang#4814, 8x RTX 4090: "peer access is not supported" in vLLM's own
// all-reduce; NCCL finds its way by itself.
TEST(Vllm, TakesNoCustomAllReduceWithoutPeerAccess) {
  const LaunchAdvice launch =
      Launch("Llama-3.1-8B", "TP2", 8,
             Box("NVIDIA GeForce RTX 4090", 8, false, false));
  EXPECT_THAT(launch.environment, IsEmpty());
  EXPECT_THAT(launch.commands[0], HasSubstr(" --disable-custom-all-reduce "));
  EXPECT_THAT(
      Launch("Llama-3.1-8B", "TP2", 8, Box("NVIDIA L40S", 8, false, true))
          .commands[0],
      Not(HasSubstr("custom-all-reduce")));
}

TEST(Vllm, SwitchesOffAllThatCopiesBetweenPeersWhereLinkedOnesFail) {
  Fingerprint node = Box("NVIDIA H200", 8, true, false);
  const LaunchAdvice launch = Launch("Llama-3.1-70B", "TP8", 8, node);
  EXPECT_THAT(launch.environment, ElementsAre("NCCL_P2P_DISABLE=1",
                                              "VLLM_ALLREDUCE_USE_FLASHINFER=0",
                                              "VLLM_ALLREDUCE_USE_SYMM_MEM=0"));
  EXPECT_THAT(
      launch.commands[0],
      HasSubstr(" --disable-custom-all-reduce "
                "--compilation-config.pass_config.fuse_allreduce_rms false "));
  // Not said twice.
  node.nccl_environment = {"NCCL_P2P_DISABLE=1"};
  EXPECT_THAT(Launch("Llama-3.1-70B", "TP8", 8, node).environment, SizeIs(3));
}

// Whatever the model, the plan and the node.
TEST(Vllm, NeverEmitsWhatIsGoneFromItsTree) {
  const Fingerprint nodes[] = {Node(8), Box("NVIDIA L40S", 8, false, true),
                               Box("NVIDIA H200", 8, true, false)};
  int launched = 0;
  for (const ModelShape& model : Presets()) {
    for (const Fingerprint& node : nodes) {
      for (const int t : {1, 2, 4, 8}) {
        for (const int d : {1, 2, 4, 8}) {
          for (const int p : {1, 2, 4}) {
            if (t * d * p > 8) continue;
            for (const int e : {1, t * d}) {
              for (const ExpertTransport transport :
                   GetEngine(kVllm).Transports(d)) {
                if (!model.is_moe() && (d > 1 || e > 1)) continue;
                const Plan plan{.replicas = 8 / (t * d * p),
                                .pipeline = p,
                                .attention_dp = d,
                                .attention_tp = t,
                                .expert_parallel = e,
                                .moe_tp = model.is_moe() ? t * d / e : 1,
                                .transport = transport};
                const Placement gpus = Gpus(plan);
                if (GetEngine(kVllm).Refusal(model, plan, node,
                                             gpus.replicas[0])) {
                  continue;
                }
                ++launched;
                const LaunchAdvice launch = GetEngine(kVllm).Launch(
                    model, plan, {.concurrency = 64}, node, gpus);
                ASSERT_THAT(launch.commands, SizeIs(plan.replicas));
                const std::string all = absl::StrJoin(launch.commands, " ") +
                                        absl::StrJoin(launch.environment, " ");
                for (const char* gone :
                     {"naive", "pplx", "VLLM_ALL2ALL_BACKEND",
                      "deepep_high_throughput"}) {
                  EXPECT_THAT(all, Not(HasSubstr(gone)));
                }
                EXPECT_EQ(all.find("deepep") != std::string::npos,
                          transport == ExpertTransport::kDeepEpLowLatency);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(launched, 500);
}

TEST(Vllm, LaunchesAModelWithoutARepositoryUnderAPlaceholder) {
  ModelShape model = Preset("Llama-3.1-8B");
  model.repository.clear();
  const Plan plan = PlanOf(model, "TP1");
  const LaunchAdvice launch =
      GetEngine(kVllm).Launch(model, plan, {}, Node(8), Gpus(plan));
  EXPECT_THAT(launch.commands[0], HasSubstr("vllm serve MODEL "));
}

// Of its rules for architectures, where the dimensions would say otherwise.
TEST(Vllm, GoesByTheModelTypeWhereItIsSaid) {
  ModelShape model = Preset("Kimi-K2.5");
  const auto slices = [&] {
    const Recipe recipe = RecipeOf(EngineId::kVllm, model, "PP2xDP2xTP2+EP4");
    return GemmOf(recipe, "router").rows == TokenBasis::kRankSlice;
  };
  EXPECT_EQ(model.model_type, "kimi_k2");
  EXPECT_FALSE(slices());
  model.model_type = "glm4_moe_lite";  // latent attention, not DeepSeek's code
  EXPECT_TRUE(slices());
  model.model_type = "";
  EXPECT_FALSE(slices());
}

TEST(Vllm, OverlapsTwoBatchesWithDeepEp) {
  const ModelShape& model = Preset("DeepSeek-V3");
  EXPECT_EQ(RefusalOf(kVllm, model, "DP8+EP8:deepep-ll+tbo"), "");
  EXPECT_EQ(RefusalOf(kVllm, model, "DP8+EP8+tbo"),
            "dual batch overlap needs expert tokens to travel by DeepEP, not "
            "agrs");
  EXPECT_EQ(RefusalOf(kVllm, model, "TP8+tbo"),
            "dual batch overlap needs expert tokens to travel by DeepEP, not "
            "none");
  EXPECT_EQ(RefusalOf(kVllm, model, "PP2xDP4+EP4:deepep-ll+tbo"),
            "dual batch overlap is known for PP 1, not 2");
  EXPECT_EQ(RefusalOf(kVllm, model, "DP8+EP8:deepep-ll+fp8d"),
            "8-bit dispatch is no option: DeepEP sends tokens so for experts "
            "in fp8_block, and only for them; these are fp8_block");
  const Recipe recipe = RecipeOf(kVllm, model, "DP8+EP8:deepep-ll+tbo");
  ASSERT_TRUE(recipe.overlap.has_value());
  EXPECT_EQ(recipe.overlap->least_decode_tokens, 32);
  EXPECT_EQ(recipe.overlap->least_prompt_tokens, 512);
  EXPECT_FALSE(RecipeOf(kVllm, model, "DP8+EP8:deepep-ll").overlap.has_value());
  EXPECT_THAT(
      Launch("DeepSeek-V3", "DP8+EP8:deepep-ll+tbo", 64).commands[0],
      HasSubstr("--all2all-backend deepep_low_latency --enable-dbo --gpu"));
  EXPECT_THAT(Launch("DeepSeek-V3", "DP8+EP8:deepep-ll", 64).commands[0],
              Not(HasSubstr("dbo")));
}

}  // namespace
}  // namespace fabricwise
