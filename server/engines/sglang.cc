// SPDX-License-Identifier: Apache-2.0
//
// SGLang, read from its sources at d315eb72 (2026-08-22, about v0.5.18). Paths
// below are within its python/sglang/srt/ folder.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/engines/architecture.h"
#include "server/engines/divisibility.h"
#include "server/engines/engines.h"
#include "server/engines/launch.h"
#include "server/engines/node_facts.h"
#include "server/engines/recipe_builder.h"

namespace fabricwise {
namespace {

constexpr absl::string_view kVersion = "SGLang d315eb72 (2026-08-22, v0.5.18)";

constexpr double kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// server_args.py: what follows from the memory of a GPU unless it is given.
// Graphs of decode steps go up to `graph_sequences` sequences of a rank, where
// a server has fewer than four GPUs and where it has more.
struct MemoryTier {
  double below_bytes;
  int64_t chunk_tokens;
  std::array<int64_t, 2> graph_sequences;
};
constexpr int kManyGpus = 4;
constexpr MemoryTier kTiers[] = {
    {20 * kGiB, 2048, {8, 8}},      {35 * kGiB, 2048, {24, 80}},
    {60 * kGiB, 4096, {32, 160}},   {90 * kGiB, 8192, {256, 512}},
    {160 * kGiB, 8192, {256, 512}},
};
constexpr MemoryTier kLargestTier = {0, 16384, {512, 512}};
// Where the memory is not known.
constexpr MemoryTier kUnknownTier = {0, 4096, {160, 160}};

// The same file: what is kept free of weights and KV.
constexpr double kReservedBase = 512 * kMiB;
constexpr double kReservedPerChunkToken = 1.5 * kMiB;
constexpr int64_t kReservedLeastChunk = 2048;
constexpr double kReservedPerGpu = kGiB / 8;
constexpr double kReservedFloor = 10 * kGiB, kFloorAbove = 60 * kGiB;
constexpr double kReservedPerGraphSequence = 2 * kMiB;
constexpr double kReservedPerDpGraphSequence = 3 * kMiB;
constexpr double kReservedMorePerDpGraphSequence = 1.5 * kMiB;
constexpr int64_t kManyGraphSequences = 300;
constexpr double kReservedLatentPrompts = 1.5 * kGiB;
constexpr double kReservedDeepEp = 2 * kGiB;

// environ.py: tokens of a rank that DeepEP's low-latency kernels are set up
// for, and the most that they can be.
constexpr int64_t kDeepEpTokens = 128, kMostDeepEpTokens = 1024;

// distributed/device_communicators/configs/custom_all_reduce_v2.py: the largest
// one-shot message in a graph for 2 to 8 ranks, by compute capability.
using OneShotBytes = std::array<double, 7>;
constexpr int kLeastRanks = 2, kMostRanks = 8;
constexpr OneShotBytes kHopper = {16 * kMiB,  1.25 * kMiB, 384 * kKiB,
                                  192 * kKiB, 128 * kKiB,  128 * kKiB,
                                  128 * kKiB};
constexpr OneShotBytes kBlackwell = {8 * kMiB,   4 * kMiB, 2.25 * kMiB,
                                     1.5 * kMiB, 1 * kMiB, 0.625 * kMiB,
                                     512 * kKiB};
constexpr double kOtherOneShot = 1 * kMiB;
// From where a switch reduces, of eight ranks.
constexpr double kHopperMulticastFrom = 512 * kKiB;
constexpr double kBlackwellMulticastFrom = 8 * kMiB;
// environ.py: SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB.
constexpr double kCustomMaxBytes = 16 * kMiB;
// distributed/device_communicators/custom_all_reduce.py, for two ranks without
// NVLink whose copies were tested.
constexpr double kLegacyMaxBytes = 8 * kMiB;

constexpr int kHopperCapability = 90;
constexpr int kBlackwellCapability = 100, kLastBlackwellCapability = 109;

// layers/communicator.py: tokens of a step up to which FlashInfer's all-reduce
// does the norm after it along.
constexpr double kFusedNormTokens = 2048;
constexpr double kHiddenValueBytes = 2;  // bf16

// Tensors at a pipeline boundary: hidden states and residual.
constexpr int kBoundaryTensors = 2;

bool IsBlackwell(std::optional<int> capability) {
  return capability >= kBlackwellCapability &&
         capability <= kLastBlackwellCapability;
}

// Whether NVLink joins all ranks of every group, and copies over it work: else
// the engine is started without kernels that need them.
bool OwnKernelsRun(const Fingerprint& node, absl::Span<const int> gpus,
                   int ranks) {
  return OfEveryGroup(node, gpus, ranks, NvlinkComplete) == true &&
         OfEveryGroup(node, gpus, ranks, PeerAccessComplete) != false;
}

// distributed/parallel_state.py: the engine's own kernels where NVLink joins
// all ranks, or two whose copies were tested; else NCCL.
CollectivePaths AllReducePaths(const Fingerprint& node,
                               absl::Span<const int> gpus, int ranks) {
  CollectivePaths paths;
  const auto add = [&](CollectiveKernel kernel, double bytes) {
    AddPath({CollectiveImpl::kSglangCustom, kernel, bytes}, paths);
  };
  const bool few = ranks >= kLeastRanks && ranks <= kMostRanks;
  if (few && OwnKernelsRun(node, gpus, ranks)) {
    const auto index = static_cast<size_t>(ranks - kLeastRanks);
    const std::optional<int> capability = ComputeCapability(node, gpus);
    const bool hopper = capability == kHopperCapability;
    const bool blackwell = IsBlackwell(capability);
    add(CollectiveKernel::kOneShot, hopper      ? kHopper[index]
                                    : blackwell ? kBlackwell[index]
                                                : kOtherOneShot);
    // Switches reduce from some size on; known for eight ranks.
    if (ranks == kMostRanks && (hopper || blackwell) &&
        NvlinkSwitched(node) == true) {
      add(CollectiveKernel::kTwoShot,
          hopper ? kHopperMulticastFrom : kBlackwellMulticastFrom);
      add(CollectiveKernel::kMulticast, kCustomMaxBytes);
    } else {
      add(CollectiveKernel::kTwoShot, kCustomMaxBytes);
    }
  } else if (ranks == kLeastRanks && !PeerCopiesBroken(node, gpus) &&
             OfEveryGroup(node, gpus, ranks, PeerAccessComplete) == true) {
    add(CollectiveKernel::kOneShot, kLegacyMaxBytes);
  }
  AddPath({CollectiveImpl::kNccl}, paths);
  return paths;
}

constexpr absl::string_view kBf16Dispatch =
    "tokens go out in bf16, as the experts take them: the curve of fp8 "
    "dispatch by the bytes of both";

// layers/moe/token_dispatcher/deepep.py: what low latency sends in bf16.
bool DispatchesInBf16(const ModelShape& model) {
  switch (model.expert_weights.number) {
    case NumberFormat::kFp8Block:
    case NumberFormat::kFp8:
    case NumberFormat::kNvfp4:
      return false;
    case NumberFormat::kBf16:
    case NumberFormat::kInt4Group:
    case NumberFormat::kMxfp4:
      break;
  }
  return true;
}

bool IsDeepEp(const Plan& plan) {
  return plan.transport == ExpertTransport::kDeepEpLowLatency;
}

// One server's sizes by default.
struct Defaults {
  int64_t chunk_tokens;
  int64_t graph_sequences;  // of a rank
};

Defaults DefaultsOf(const Plan& plan, std::optional<int64_t> gpu_bytes) {
  const MemoryTier* tier =
      gpu_bytes.has_value() ? &kLargestTier : &kUnknownTier;
  if (gpu_bytes.has_value()) {
    for (const MemoryTier& one : kTiers) {
      if (static_cast<double>(*gpu_bytes) >= one.below_bytes) continue;
      tier = &one;
      break;
    }
  }
  // Attention-DP ranks divide the chunk (server_args.py).
  return {std::max<int64_t>(1, tier->chunk_tokens / plan.attention_dp),
          tier->graph_sequences[plan.stage_gpus() < kManyGpus ? 0 : 1]};
}

// Bytes of a GPU that are neither weights nor KV.
double ReservedBytes(const ModelShape& model, const Plan& plan,
                     const Defaults& defaults,
                     std::optional<int64_t> gpu_bytes) {
  const auto sequences = static_cast<double>(defaults.graph_sequences);
  double reserved = kReservedBase +
                    kReservedPerChunkToken *
                        static_cast<double>(std::max(defaults.chunk_tokens,
                                                     kReservedLeastChunk)) +
                    kReservedPerGpu * plan.stage_gpus() * plan.pipeline;
  if (static_cast<double>(gpu_bytes.value_or(0)) > kFloorAbove) {
    reserved = std::max(reserved, kReservedFloor);
  }
  reserved += kReservedPerGraphSequence * sequences;
  if (plan.attention_dp > 1) {
    reserved += kReservedPerDpGraphSequence * sequences * plan.attention_dp;
    if (defaults.graph_sequences > kManyGraphSequences) {
      reserved +=
          kReservedMorePerDpGraphSequence * sequences * plan.attention_dp;
    }
  }
  if (model.attention_kind == AttentionKind::kMla) {
    reserved += kReservedLatentPrompts;
  }
  if (IsDeepEp(plan)) reserved += kReservedDeepEp;
  return reserved;
}

class Sglang final : public Engine {
 public:
  EngineId id() const override { return EngineId::kSglang; }
  absl::string_view version() const override { return kVersion; }

  // Without an a2a backend ranks gather tokens or have them all; DeepEP is
  // allowed either way. Its normal mode disables CUDA graphs, so servers that
  // decode take "auto", low latency for decode steps and normal for prompts.
  absl::Span<const ExpertTransport> Transports(
      int attention_dp) const override {
    static constexpr std::array kReplicated = {
        ExpertTransport::kNone, ExpertTransport::kDeepEpLowLatency};
    static constexpr std::array kSplit = {
        ExpertTransport::kAllGatherReduceScatter,
        ExpertTransport::kDeepEpLowLatency};
    if (attention_dp > 1) return kSplit;
    return kReplicated;
  }

  // arg_groups: two-batch overlap needs an a2a backend (or attention data
  // parallelism for DeepSeek-V4 alone, left out). layers/dp_attention.py: what
  // ranks gather of prompts may go in 8 bits; DeepEP goes by the experts.
  bool OffersTwoBatchOverlap(ExpertTransport transport) const override {
    return transport == ExpertTransport::kDeepEpLowLatency;
  }
  bool OffersFp8Dispatch(ExpertTransport transport) const override {
    return transport == ExpertTransport::kAllGatherReduceScatter;
  }

  std::optional<std::string> Refusal(
      const ModelShape& model, const Plan& plan, const Fingerprint& node,
      absl::Span<const int> gpus) const override {
    if (auto refusal = OptionRefusal(model, plan)) return refusal;
    if (auto common = CommonRefusal(model, plan)) return common;
    if (!model.is_moe() && plan.attention_dp > 1) {
      return "data-parallel ranks of a dense model are independent replicas";
    }
    if (model.is_moe()) {
      if (auto refusal = ExpertsRefusal(model, plan, node, gpus)) {
        return refusal;
      }
    }
    // Feed-forward layers of attention-DP ranks are split over the whole stage.
    const int feed_forward_tp = plan.stage_gpus();
    if (model.num_dense_layers > 0) {
      if (auto refusal =
              SplitRefusal("intermediate_size", model.intermediate_size,
                           feed_forward_tp, model.dense_weights)) {
        return refusal;
      }
    }
    if (model.shared_intermediate_size > 0 && !IsDeepEp(plan)) {
      return SplitRefusal("shared_intermediate_size",
                          model.shared_intermediate_size, feed_forward_tp,
                          model.shared_expert_weights);
    }
    return std::nullopt;
  }

  Recipe MakeRecipe(const ModelShape& model, const Plan& plan,
                    const Fingerprint& node,
                    absl::Span<const int> gpus) const override {
    const std::optional<int64_t> gpu_bytes = SmallestMemoryBytes(node, gpus);
    const Defaults defaults = DefaultsOf(plan, gpu_bytes);
    RecipeRules rules{
        // models/deepseek_v2.py: a2a backends replicate the shared expert.
        .shard_shared_experts = !IsDeepEp(plan),
        .gather_feed_forward = true,
        .head_over_stage = true,
        // models/qwen3_moe.py sums the outputs of experts over the
        // expert-parallel group and then over the tensor-parallel one within
        // experts; other models do so once over both.
        .two_expert_all_reduces = RunsAsQwen3Moe(model),
        .boundary_tensors = kBoundaryTensors,
        .all_reduce_paths = AllReducePaths(node, gpus, plan.attention_tp),
        .stage_all_reduce_paths = AllReducePaths(node, gpus, plan.stage_gpus()),
        .chunk_tokens = defaults.chunk_tokens,
        .max_sequences = defaults.graph_sequences,
        // Unless asked to, a batch of prompts decodes nothing.
        .mixed_steps = false,
        .usable_memory_fraction = 1,
        .reserve_bytes = ReservedBytes(model, plan, defaults, gpu_bytes),
        // The overlap scheduler prepares a step while the one before it runs;
        // stages of a pipeline, which have none, do so while others compute.
        // Agreeing with other ranks (managers/scheduler.py) is not hidden.
        .host_seconds = plan.attention_dp > 1 ? kDataParallelSyncSeconds : 0};
    if (IsDeepEp(plan)) {
      rules.prompt_exchange = ExchangeImpl::kDeepEpHighThroughput;
      // A rank's tokens are split over its tensor-parallel ranks.
      rules.max_rank_sequences = kMostDeepEpTokens * plan.attention_tp;
      if (DispatchesInBf16(model)) {
        rules.low_latency_note = kBf16Dispatch;
        rules.low_latency_dispatch_ratio = Bf16DispatchRatio(model.hidden_size);
      }
      // batch_overlap/two_batch_overlap.py: whatever there is, is halved.
      if (plan.two_batch_overlap) rules.overlap = TwoBatchOverlap{};
    }
    if (plan.fp8_dispatch) {
      rules.prompt_gather_bytes_per_token = Fp8TokenBytes(model.hidden_size);
    }
    if (FusesNorms(model, plan, node, gpus)) {
      rules.fused_norm_max_bytes = kFusedNormTokens * kHiddenValueBytes *
                                   static_cast<double>(model.hidden_size);
    }
    return BuildRecipe(model, plan, rules);
  }

  LaunchAdvice Launch(const ModelShape& model, const Plan& plan,
                      const Workload& workload, const Fingerprint& node,
                      const Placement& placement) const override {
    LaunchAdvice advice{.environment = NcclSettings(node),
                        .engine_version = std::string(version())};
    const std::optional<int64_t> gpu_bytes =
        SmallestMemoryBytes(node, placement.replicas.front());
    const Defaults defaults = DefaultsOf(plan, gpu_bytes);
    const int64_t rank_sequences =
        SequencesEach(workload, int64_t{plan.replicas} * plan.attention_dp);

    // One server runs all replicas of plain tensor parallelism.
    const bool together =
        plan.replicas > 1 && plan.attention_dp == 1 && plan.pipeline == 1;
    std::vector<std::string> flags = {
        absl::StrCat("--tp-size ", plan.stage_gpus())};
    if (plan.pipeline > 1) {
      flags.push_back(absl::StrCat("--pp-size ", plan.pipeline));
    }
    if (together) {
      flags.push_back(absl::StrCat("--dp-size ", plan.replicas));
    } else if (plan.attention_dp > 1) {
      flags.push_back(absl::StrCat("--dp-size ", plan.attention_dp,
                                   " --enable-dp-attention"));
    }
    if (plan.expert_parallel > 1) {
      flags.push_back(absl::StrCat("--ep-size ", plan.expert_parallel));
    }
    if (IsDeepEp(plan)) {
      flags.push_back("--moe-a2a-backend deepep --deepep-mode auto");
      // A step's tokens of a rank are split over its tensor-parallel ranks.
      const int64_t tokens =
          (rank_sequences + plan.attention_tp - 1) / plan.attention_tp;
      if (tokens > kDeepEpTokens) {
        advice.environment.push_back(absl::StrCat(
            "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=", tokens));
      }
      if (plan.two_batch_overlap) flags.push_back("--enable-two-batch-overlap");
    }
    if (plan.fp8_dispatch) {
      advice.environment.insert(
          advice.environment.end(),
          {"SGLANG_DP_USE_GATHERV=1", "SGLANG_ENABLE_DP_GATHER_FP8=1"});
    }
    if (gpu_bytes.has_value()) {
      const auto bytes = static_cast<double>(*gpu_bytes);
      const double fraction =
          1 - ReservedBytes(model, plan, defaults, gpu_bytes) / bytes;
      // Three digits, as the engine itself rounds, but never up.
      flags.push_back(absl::StrFormat("--mem-fraction-static %.3f",
                                      std::floor(fraction * 1000) / 1000));
    }
    if (model.kv_cache_format == NumberFormat::kFp8) {
      flags.push_back("--kv-cache-dtype fp8_e4m3");
    }
    // The engine shares these out over its data-parallel ranks.
    flags.push_back(
        absl::StrCat("--max-running-requests ",
                     SequencesEach(workload, together ? 1 : plan.replicas)));
    if (rank_sequences > defaults.graph_sequences) {
      flags.push_back(
          absl::StrCat("--cuda-graph-max-bs-decode ", rank_sequences));
    }
    const bool broken = std::any_of(
        placement.replicas.begin(), placement.replicas.end(),
        [&](const auto& gpus) { return PeerCopiesBroken(node, gpus); });
    if (broken) SetVariable("NCCL_P2P_DISABLE=1", advice.environment);
    // Where the driver promises nothing, NCCL finds its way by itself.
    const bool apart =
        plan.attention_tp > 1 &&
        std::any_of(placement.replicas.begin(), placement.replicas.end(),
                    [&](const auto& gpus) {
                      return OfEveryGroup(node, gpus, plan.attention_tp,
                                          PeerAccessComplete) == false;
                    });
    if (broken || apart) {
      flags.push_back("--disable-custom-all-reduce");
      // FlashInfer's, with the norm after it, has a switch of its own.
      const std::optional<int> capability =
          ComputeCapability(node, placement.replicas.front());
      if (capability == kHopperCapability || IsBlackwell(capability)) {
        flags.push_back("--enforce-disable-flashinfer-allreduce-fusion");
      }
    }

    std::vector<std::vector<int>> servers = placement.replicas;
    if (together) {
      for (size_t i = 1; i < servers.size(); ++i) {
        servers[0].insert(servers[0].end(), servers[i].begin(),
                          servers[i].end());
      }
      servers.resize(1);
    }
    constexpr int kFirstPort = 30000;  // SGLang's default
    int port = kFirstPort;
    for (const std::vector<int>& gpus : servers) {
      advice.commands.push_back(absl::StrCat(
          VisibleDevices(gpus), " python -m sglang.launch_server --model-path ",
          ModelWord(model), " ", absl::StrJoin(flags, " "), " --port ",
          port++));
    }
    return advice;
  }

 private:
  static std::optional<std::string> OptionRefusal(const ModelShape& model,
                                                  const Plan& plan) {
    if (plan.two_batch_overlap) {
      if (!IsDeepEp(plan)) {
        return absl::StrCat("two-batch overlap needs expert tokens to travel ",
                            "by DeepEP, not ", ToString(plan.transport));
      }
      if (plan.pipeline > 1) {
        return absl::StrCat("two-batch overlap is known for PP 1, not ",
                            plan.pipeline);
      }
      // batch_overlap/operations_strategy.py.
      if (!RunsAsDeepSeek(model) && !RunsAsQwen3Moe(model)) {
        return absl::StrCat(
            "two-batch overlap is for layers of DeepSeek's and Qwen3's MoE "
            "models, not ",
            model.model_type.empty() ? "these" : model.model_type);
      }
    }
    if (!plan.fp8_dispatch) return std::nullopt;
    if (plan.transport != ExpertTransport::kAllGatherReduceScatter) {
      return absl::StrCat("8-bit dispatch is an option where ranks gather ",
                          "tokens, not of ", ToString(plan.transport));
    }
    if (plan.attention_tp > 1) {
      return absl::StrCat(
          "8-bit gathering needs TP 1 in a data-parallel rank, ", "not ",
          plan.attention_tp);
    }
    constexpr int64_t kScaled = 128;  // values of one scale
    return MultipleRefusal("hidden_size", model.hidden_size,
                           "values of a scale", kScaled);
  }

  static std::optional<std::string> SplitRefusal(absl::string_view what,
                                                 int64_t width, int parts,
                                                 const WeightFormat& format) {
    if (auto refusal = MultipleRefusal(what, width, "TP", parts)) {
      return refusal;
    }
    return QuantizedShareRefusal(what, width, "TP", parts, format);
  }

  // arg_groups/overrides.py: of MoE models on sm90 and sm100, where nothing
  // gathers or dispatches tokens.
  static bool FusesNorms(const ModelShape& model, const Plan& plan,
                         const Fingerprint& node, absl::Span<const int> gpus) {
    const std::optional<int> capability = ComputeCapability(node, gpus);
    return model.is_moe() && plan.attention_tp > 1 && plan.attention_dp == 1 &&
           plan.transport == ExpertTransport::kNone &&
           (capability == kHopperCapability || IsBlackwell(capability)) &&
           OwnKernelsRun(node, gpus, plan.attention_tp);
  }

  static std::optional<std::string> ExpertsRefusal(const ModelShape& model,
                                                   const Plan& plan,
                                                   const Fingerprint& node,
                                                   absl::Span<const int> gpus) {
    const int stage = plan.stage_gpus();
    const int ep = plan.expert_parallel;
    // layers/moe/fused_moe_triton/layer.py.
    if (auto refusal =
            MultipleRefusal("num_experts", model.num_experts, "EP", ep)) {
      return refusal;
    }
    if (auto refusal = QuantizedShareRefusal(
            "moe_intermediate_size", model.moe_intermediate_size, "MoE TP",
            plan.moe_tp, model.expert_weights)) {
      return refusal;
    }
    const NumberFormat format = model.expert_weights.number;
    // server_args.py: triton_kernel, which mxfp4 takes but on sm100.
    if (format == NumberFormat::kMxfp4 && ep > 1 &&
        !IsBlackwell(ComputeCapability(node, gpus))) {
      return absl::StrCat("mxfp4 experts run in triton_kernel, which needs EP ",
                          "1, not ", ep);
    }
    // server_args.py: flashinfer_cutlass and flashinfer_cutedsl.
    if (format == NumberFormat::kNvfp4 && ep != 1 && ep != stage) {
      return absl::StrCat("nvfp4 experts need EP 1 or ", stage, ", not ", ep);
    }
    if (!IsDeepEp(plan)) return std::nullopt;
    // arg_groups/overrides.py: an a2a backend sets EP to the whole stage.
    if (ep != stage) {
      return absl::StrCat("DeepEP sets EP to the whole stage, ", stage,
                          ", not ", ep);
    }
    const std::optional<bool> nvlink =
        OfEveryGroup(node, gpus, stage, NvlinkComplete);
    if (nvlink != true) {
      return absl::StrCat("DeepEP needs NVLink between all GPUs of a stage; ",
                          nvlink.has_value()
                              ? "some pairs have none"
                              : "the profile does not say which have it");
    }
    return std::nullopt;
  }
};

}  // namespace

const Engine& SglangEngine() {
  static const Sglang engine;
  return engine;
}

}  // namespace fabricwise
