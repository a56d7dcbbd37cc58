// SPDX-License-Identifier: Apache-2.0
//
// vLLM, read from its sources at 7cfb97e3 (2026-08-20). Paths below are within
// its vllm/ folder.
#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/engines/architecture.h"
#include "server/engines/divisibility.h"
#include "server/engines/engines.h"
#include "server/engines/launch.h"
#include "server/engines/node_facts.h"
#include "server/engines/recipe_builder.h"

namespace fabricwise {
namespace {

constexpr absl::string_view kVersion = "vLLM 7cfb97e3 (2026-08-20)";

constexpr double kMiB = 1024.0 * 1024;

// config/cache.py: gpu_memory_utilization.
constexpr double kMemoryUtilization = 0.92;

// CUDA context with cuBLAS and NCCL modules (0.5 to 0.6 GiB on sm_90) and the
// captured graphs of a decoder (0.2 to 0.4 GiB): what start-up takes off the
// memory for KV beside weights and activations (v1/worker/gpu_worker.py).
constexpr double kStartupBytes = 1024 * kMiB;

// engine/arg_utils.py: max_num_batched_tokens of the API server and
// max_num_seqs, by the memory of a GPU.
struct StepDefaults {
  int64_t batched_tokens, sequences;
};
constexpr int64_t kVeryLargeGpuBytes = int64_t{160} << 30;
constexpr int64_t kLargeGpuBytes = int64_t{70} << 30;
constexpr StepDefaults kOnVeryLarge = {16384, 1024};
constexpr StepDefaults kOnLarge = {8192, 1024};
constexpr StepDefaults kElse = {2048, 256};

// Tensors at a pipeline boundary: hidden states and residual
// (v1/worker/gpu_worker.py).
constexpr int kBoundaryTensors = 2;

// config/cache.py: tokens of a block of KV; v1/kv_cache_interface.py: one more
// is kept of each window.
constexpr int64_t kBlockTokens = 16;

// model_executor/layers/quantization/utils/marlin_utils.py.
constexpr int64_t kMarlinHidden = 128;
constexpr int64_t kMarlinExpertGroups[] = {32, 64, 128};

// A gathered token brings, for each of its experts, a weight and an id
// (fused_moe/prepare_finalize/naive_dp_ep.py), of four bytes each.
constexpr double kRoutingBytesPerExpert = 8;

// DeepEP low latency. config/scheduler.py: default of max_num_batched_tokens,
// for which its buffers are made. fused_moe/prepare_finalize/deepep_ll.py:
// widths that it is built for; others are padded to the next.
constexpr int64_t kLowLatencyTokens = 256;
constexpr int64_t kLowLatencyWidths[] = {2048, 2560, 3072, 4096,
                                         5120, 6144, 7168, 8192};
constexpr absl::string_view kBf16Dispatch =
    "tokens go out in bf16, as the experts are not fp8 by blocks: the curve of "
    "fp8 dispatch by the bytes of both";

// config/parallel.py: dbo_decode_token_threshold, dbo_prefill_token_threshold,
// of a rank.
constexpr TwoBatchOverlap kDualBatchOverlap = {32, 512};

// Bytes of a token and layer of sparse latent attention
// (v1/attention/backends/mla/flashmla_sparse.py, sparse_swa.py): fp8 with its
// scales, and rotary values in bf16.
struct SparseKv {
  int64_t latent, rotary;
  bool fp8_only;  // else whatever the cache's format
  double bytes;
};
constexpr SparseKv kSparseKv[] = {{512, 64, true, 656}, {448, 64, false, 584}};

// ---- All-reduce (distributed/device_communicators)

// Largest messages in MiB for 2, 4, 6, 8 and 16 ranks; 0: not for so many. Of
// FlashInfer's kernels, alone and with the norm after it
// (compilation/passes/fusion/allreduce_rms_fusion.py), and those of one shot;
// of vLLM's own where torch's symmetric memory is active, and of the latter
// (all_reduce_utils.py); and whether that has the switch reduce (symm_mem.py).
constexpr int kRanks[] = {2, 4, 6, 8, 16};
using ByRanks = std::array<double, std::size(kRanks)>;
struct Architecture {
  int capability;
  ByRanks flashinfer, one_shot, custom, symmetric;
  std::array<bool, std::size(kRanks)> multicast;
};
constexpr Architecture kArchitectures[] = {
    {90,
     {64, 2, 0, 0.5, 0},
     {32, 2, 0, 0.5, 0},
     {8, 8, 0.5, 0.25, 0},
     {64, 32, 64, 64, 0},
     {false, true, true, true, false}},
    {100,
     {64, 32, 0, 1, 64},
     {32, 4, 0, 1, 0},
     {2, 2, 1, 1, 0},
     {8, 32, 128, 128, 0},
     {false, false, true, true, false}},
    {103,
     {64, 64, 0, 2, 64},
     {32, 4, 0, 2, 0},
     {4, 4, 8, 4, 0},
     {4, 32, 32, 64, 0},
     {false, false, true, true, false}},
};
// custom_all_reduce.py: largest message elsewhere; csrc/custom_all_reduce.cuh:
// up to where it takes one stage, for more than two ranks.
constexpr ByRanks kCustomMiB = {8, 8, 8, 8, 0};
constexpr ByRanks kOneStageMiB = {8, 0.5, 0.25, 0.25, 0};

constexpr absl::string_view kNvlinkUnknown =
    "the profile does not say which GPUs NVLink joins: NCCL, an upper bound";

// That of `gpus`; null where it has no kernels of its own.
const Architecture* FindArchitecture(const Fingerprint& node,
                                     absl::Span<const int> gpus) {
  const int capability = ComputeCapability(node, gpus).value_or(0);
  for (const Architecture& known : kArchitectures) {
    if (known.capability == capability) return &known;
  }
  return nullptr;
}

struct AllReduce {
  CollectivePaths paths;
  absl::string_view bound;  // why it is faster than told; empty: it is not
  double fused_norm_max_bytes = 0;
};

// What an all-reduce among `ranks` tensor-parallel ranks takes, in the order of
// cuda_communicator.py (NCCL's symmetric memory is off by default): FlashInfer,
// vLLM's own, torch's symmetric memory, NCCL.
AllReduce AllReduceOf(const Fingerprint& node, absl::Span<const int> gpus,
                      int ranks) {
  AllReduce result;
  const auto column = static_cast<size_t>(
      std::find(std::begin(kRanks), std::end(kRanks), ranks) -
      std::begin(kRanks));
  const std::optional<bool> peers =
      OfEveryGroup(node, gpus, ranks, PeerAccessComplete);
  if (column < std::size(kRanks) && peers != false) {
    const std::optional<bool> nvlink =
        OfEveryGroup(node, gpus, ranks, NvlinkComplete);
    const auto add = [&](CollectiveKernel kernel, double mib) {
      if (mib == 0) return;
      AddPath({CollectiveImpl::kVllmCustom, kernel, mib * kMiB}, result.paths);
    };
    const Architecture* architecture =
        nvlink == true ? FindArchitecture(node, gpus) : nullptr;
    const bool tabled = architecture != nullptr;
    // Two GPUs alone do not tell a switch from bridges; there FlashInfer takes
    // all that symmetric memory would.
    const bool symmetric = tabled && NvlinkSwitched(node) == true;
    if (tabled && architecture->flashinfer[column] > 0) {
      add(CollectiveKernel::kOneShot, architecture->one_shot[column]);
      add(CollectiveKernel::kTwoShot, architecture->flashinfer[column]);
      result.fused_norm_max_bytes = architecture->flashinfer[column] * kMiB;
    }
    // Over two ranks it wants NVLink between all; two make do with peer access.
    if (nvlink == true || (ranks == 2 && peers == true)) {
      const double most =
          symmetric ? architecture->custom[column] : kCustomMiB[column];
      add(CollectiveKernel::kOneShot, std::min(most, kOneStageMiB[column]));
      add(CollectiveKernel::kTwoShot, most);
    }
    if (symmetric) {
      add(architecture->multicast[column] ? CollectiveKernel::kMulticast
                                          : CollectiveKernel::kTwoShot,
          architecture->symmetric[column]);
    }
    if (!nvlink.has_value() && result.paths.empty()) {
      result.bound = kNvlinkUnknown;
    }
  }
  AddPath({CollectiveImpl::kNccl}, result.paths);
  return result;
}

StepDefaults DefaultsOn(const Fingerprint& node, absl::Span<const int> gpus) {
  const int64_t bytes = SmallestMemoryBytes(node, gpus).value_or(0);
  if (bytes >= kVeryLargeGpuBytes) return kOnVeryLarge;
  const bool a100 =
      absl::StrContains(node.gpus[static_cast<size_t>(gpus[0])].name, "A100");
  return bytes >= kLargeGpuBytes && !a100 ? kOnLarge : kElse;
}

// ---- Expert tokens

// fused_moe/prepare_finalize/naive_dp_ep.py: tokens are quantized before they
// are gathered where the experts' kernel takes them so, which for fp8 weights
// it does but on GPUs without fp8 (Marlin) and, of weights in blocks, for
// expert parallelism on sm_90, where FlashInfer's does it itself
// (fused_moe/oracle/fp8.py). 0: they are gathered as they are.
double GatherBytes(const ModelShape& model, const Plan& plan,
                   std::optional<int> capability) {
  constexpr int kFirstWithFp8 = 89, kHopper = 90;
  constexpr double kTokenScaleBytes = 4;
  if (capability.value_or(0) < kFirstWithFp8) return 0;
  switch (model.expert_weights.number) {
    case NumberFormat::kFp8Block:
      if (capability == kHopper && plan.expert_parallel > 1) return 0;
      return Fp8TokenBytes(model.hidden_size);
    case NumberFormat::kFp8:
      return static_cast<double>(model.hidden_size) + kTokenScaleBytes;
    case NumberFormat::kBf16:
    case NumberFormat::kInt4Group:
    case NumberFormat::kMxfp4:
    case NumberFormat::kNvfp4:
      break;
  }
  return 0;
}

// config/parallel.py: tokens of a rank are split over its tensor-parallel ranks
// for the experts' sake; DeepSeek's do not where there are stages
// (models/deepseek_v2.py).
bool SequenceParallelExperts(const ModelShape& model, const Plan& plan) {
  return plan.attention_dp > 1 && plan.attention_tp > 1 &&
         plan.expert_parallel > 1 &&
         !(RunsAsDeepSeek(model) && plan.pipeline > 1);
}

int64_t LowLatencyWidth(int64_t hidden_size) {
  const auto* width = std::lower_bound(
      std::begin(kLowLatencyWidths), std::end(kLowLatencyWidths), hidden_size);
  return width == std::end(kLowLatencyWidths) ? hidden_size : *width;
}

// FlashInfer's workspace: what every rank may send and get back of a step's
// tokens (bf16), and for each expert of a token a weight and an id.
double FlashinferBytes(const ModelShape& model, const Plan& plan,
                       int64_t tokens) {
  constexpr double kBf16 = 2;
  const double slots =
      static_cast<double>(plan.expert_parallel) * static_cast<double>(tokens);
  return slots * (2 * kBf16 * static_cast<double>(model.hidden_size) +
                  kRoutingBytesPerExpert *
                      static_cast<double>(model.experts_per_token));
}

class Vllm final : public Engine {
 public:
  EngineId id() const override { return EngineId::kVllm; }
  absl::string_view version() const override { return kVersion; }

  // config/parallel.py: with one data-parallel rank there is no dispatch; with
  // more the default is all-gather + reduce-scatter. The high-throughput
  // kernels switch CUDA graphs off for the whole engine
  // (config/compilation.py), so they are not for a server that decodes.
  absl::Span<const ExpertTransport> Transports(
      int attention_dp) const override {
    static constexpr std::array kReplicated = {ExpertTransport::kNone};
    static constexpr std::array kSplit = {
        ExpertTransport::kAllGatherReduceScatter,
        ExpertTransport::kDeepEpLowLatency, ExpertTransport::kFlashinferNvlink};
    if (attention_dp > 1) return kSplit;
    return kReplicated;
  }

  // config/vllm.py: dual batch overlap is for DeepEP. What it dispatches in 8
  // bits goes by the experts' format.
  bool OffersTwoBatchOverlap(ExpertTransport transport) const override {
    return transport == ExpertTransport::kDeepEpLowLatency;
  }

  std::optional<std::string> Refusal(
      const ModelShape& model, const Plan& plan, const Fingerprint& node,
      absl::Span<const int> gpus) const override {
    if (auto refusal = OptionRefusal(model, plan)) return refusal;
    if (auto common = CommonRefusal(model, plan)) return common;
    if (model.is_moe()) {
      if (auto refusal = ExpertsRefusal(model, plan, node, gpus)) {
        return refusal;
      }
    } else if (plan.attention_dp > 1) {
      return "data-parallel ranks of a dense model are independent replicas";
    }
    if (model.num_dense_layers > 0) {
      if (auto refusal = QuantizedShareRefusal(
              "intermediate_size", model.intermediate_size, "TP",
              plan.attention_tp, model.dense_weights)) {
        return refusal;
      }
    }
    if (model.shared_intermediate_size > 0 &&
        !SequenceParallelExperts(model, plan)) {
      if (auto refusal = QuantizedShareRefusal(
              "shared_intermediate_size", model.shared_intermediate_size, "TP",
              plan.attention_tp, model.shared_expert_weights)) {
        return refusal;
      }
    }
    return AttentionRefusal(model, plan);
  }

  Recipe MakeRecipe(const ModelShape& model, const Plan& plan,
                    const Fingerprint& node,
                    absl::Span<const int> gpus) const override {
    const StepDefaults defaults = DefaultsOn(node, gpus);
    AllReduce all_reduce = AllReduceOf(node, gpus, plan.attention_tp);
    RecipeRules rules{
        .sequence_parallel_experts = SequenceParallelExperts(model, plan),
        .routing_bytes_per_expert = kRoutingBytesPerExpert,
        .window_slack_tokens = kBlockTokens,
        .gather_bytes_per_token =
            GatherBytes(model, plan, ComputeCapability(node, gpus)),
        .boundary_tensors = kBoundaryTensors,
        .all_reduce_paths = std::move(all_reduce.paths),
        .all_reduce_bound = all_reduce.bound,
        .fused_norm_max_bytes = all_reduce.fused_norm_max_bytes,
        .chunk_tokens = defaults.batched_tokens,
        .max_sequences = defaults.sequences,
        .usable_memory_fraction = kMemoryUtilization,
        .startup_bytes = kStartupBytes,
        // Scheduling and sampling overlap the step (asynchronous scheduling is
        // the default); agreeing with other ranks (v1/worker/dp_utils.py) does
        // not.
        .host_seconds = plan.attention_dp > 1 ? kDataParallelSyncSeconds : 0};
    for (const SparseKv& kv : kSparseKv) {
      if (model.index_topk > 0 && model.kv_lora_rank == kv.latent &&
          model.qk_rope_head_dim == kv.rotary &&
          (!kv.fp8_only || model.kv_cache_format != NumberFormat::kBf16)) {
        rules.latent_kv_bytes_per_token = kv.bytes;
      }
    }
    if (plan.transport == ExpertTransport::kDeepEpLowLatency) {
      const bool fp8 = model.expert_weights.number == NumberFormat::kFp8Block;
      rules.chunk_tokens = kLowLatencyTokens;
      rules.max_sequences = kLowLatencyTokens;
      rules.max_rank_sequences = kLowLatencyTokens;
      rules.exchange_hidden_size = LowLatencyWidth(model.hidden_size);
      rules.exchange_bytes =
          LowLatencyBytes(rules.exchange_hidden_size, model.num_experts,
                          kLowLatencyTokens, fp8);
      if (!fp8) {
        rules.low_latency_note = kBf16Dispatch;
        rules.low_latency_dispatch_ratio =
            Bf16DispatchRatio(rules.exchange_hidden_size);
      }
      if (plan.two_batch_overlap) rules.overlap = kDualBatchOverlap;
    }
    if (plan.transport == ExpertTransport::kFlashinferNvlink) {
      rules.exchange_bytes = FlashinferBytes(model, plan, rules.chunk_tokens);
    }
    return BuildRecipe(model, plan, rules);
  }

  LaunchAdvice Launch(const ModelShape& model, const Plan& plan,
                      const Workload& workload, const Fingerprint& node,
                      const Placement& placement) const override {
    LaunchAdvice advice{.environment = NcclSettings(node),
                        .engine_version = std::string(version())};
    const std::string flags =
        Flags(model, plan, workload, node, placement, advice.environment);
    constexpr int kFirstPort = 8000;  // vLLM's default
    int port = kFirstPort;
    for (const std::vector<int>& gpus : placement.replicas) {
      advice.commands.push_back(absl::StrCat(VisibleDevices(gpus),
                                             " vllm serve ", ModelWord(model),
                                             flags, " --port ", port++));
    }
    return advice;
  }

 private:
  static std::optional<std::string> OptionRefusal(const ModelShape& model,
                                                  const Plan& plan) {
    if (plan.two_batch_overlap &&
        plan.transport != ExpertTransport::kDeepEpLowLatency) {
      return absl::StrCat(
          "dual batch overlap needs expert tokens to travel by ",
          "DeepEP, not ", ToString(plan.transport));
    }
    if (plan.two_batch_overlap && plan.pipeline > 1) {
      return absl::StrCat("dual batch overlap is known for PP 1, not ",
                          plan.pipeline);
    }
    if (plan.fp8_dispatch) {
      return absl::StrCat(
          "8-bit dispatch is no option: DeepEP sends tokens so for experts in "
          "fp8_block, and only for them; these are ",
          ToString(model.expert_weights.number));
    }
    return std::nullopt;
  }

  // quantization/fp8.py and utils/fp8_utils.py: what every rank computes of
  // queries, keys and values, and what it brings to the output projection, is
  // whole blocks; of int4 the latter, which is divided along the groups.
  static std::optional<std::string> AttentionRefusal(const ModelShape& model,
                                                     const Plan& plan) {
    const WeightFormat& format = model.attention_weights;
    const int64_t t = plan.attention_tp;
    const int64_t heads = model.num_attention_heads;
    if (model.num_linear_layers == model.num_layers) return std::nullopt;
    if (format.number == NumberFormat::kFp8Block) {
      const bool latent = model.attention_kind == AttentionKind::kMla;
      const int64_t query =
          latent ? model.qk_nope_head_dim + model.qk_rope_head_dim
                 : model.head_dim;
      if (auto refusal = QuantizedShareRefusal("query width", heads * query,
                                               "TP", t, format)) {
        return refusal;
      }
      const int64_t kv =
          latent ? heads * (model.qk_nope_head_dim + model.v_head_dim)
                 : model.num_key_value_heads * model.head_dim;
      const int64_t parts =
          latent ? t : std::min<int64_t>(t, model.num_key_value_heads);
      if (auto refusal = QuantizedShareRefusal("key and value width", kv, "TP",
                                               parts, format)) {
        return refusal;
      }
    }
    return QuantizedShareRefusal("attention output width",
                                 heads * model.v_head_dim, "TP", t, format);
  }

  static std::optional<std::string> ExpertsRefusal(const ModelShape& model,
                                                   const Plan& plan,
                                                   const Fingerprint& node,
                                                   absl::Span<const int> gpus) {
    const int stage = plan.stage_gpus();
    if (plan.expert_parallel != 1 && plan.expert_parallel != stage) {
      return absl::StrCat("EP is TP x DP = ", stage, " or off, not ",
                          plan.expert_parallel);
    }
    if (plan.transport == ExpertTransport::kDeepEpLowLatency) {
      if (auto refusal = ExchangeRefusal("DeepEP", plan, node, gpus)) {
        return refusal;
      }
    }
    if (plan.transport == ExpertTransport::kFlashinferNvlink) {
      if (auto refusal = FlashinferRefusal(model, plan, node, gpus)) {
        return refusal;
      }
    }
    const WeightFormat& format = model.expert_weights;
    if (auto refusal = QuantizedShareRefusal("moe_intermediate_size",
                                             model.moe_intermediate_size, "TP",
                                             plan.moe_tp, format)) {
      return refusal;
    }
    if (format.number == NumberFormat::kInt4Group) {
      if (auto refusal = MultipleRefusal("hidden_size", model.hidden_size,
                                         "int4 experts' tile", kMarlinHidden)) {
        return refusal;
      }
      if (std::find(std::begin(kMarlinExpertGroups),
                    std::end(kMarlinExpertGroups),
                    format.group_size) == std::end(kMarlinExpertGroups)) {
        return absl::StrCat("int4 experts come in groups of ",
                            absl::StrJoin(kMarlinExpertGroups, ", "), ", not ",
                            format.group_size);
      }
    }
    // fused_moe/experts/flashinfer_b12x_moe.py, cutlass_moe.py: what NVFP4 runs
    // on there.
    constexpr int kConsumerBlackwell = 120;
    if (format.number == NumberFormat::kNvfp4 && plan.expert_parallel > 1 &&
        ComputeCapability(node, gpus) == kConsumerBlackwell) {
      return "NVFP4 experts on sm_120 run on kernels without expert "
             "parallelism";
    }
    return std::nullopt;
  }

  // Both libraries write to peers.
  static std::optional<std::string> ExchangeRefusal(
      absl::string_view library, const Plan& plan, const Fingerprint& node,
      absl::Span<const int> gpus) {
    if (plan.expert_parallel == 1) {
      return absl::StrCat(library, " needs expert parallelism");
    }
    const int stage = plan.stage_gpus();
    const std::optional<bool> nvlink =
        OfEveryGroup(node, gpus, stage, NvlinkComplete);
    if (nvlink != true) {
      return absl::StrCat(
          library, " needs NVLink between all GPUs of a stage; ",
          nvlink.has_value() ? "some pairs have none"
                             : "the profile does not say which have it");
    }
    if (OfEveryGroup(node, gpus, stage, PeerAccessComplete) == false) {
      return absl::StrCat(
          library, " needs copies between peers, which do not work here");
    }
    return std::nullopt;
  }

  // fused_moe/all2all_utils.py, experts/cutlass_moe.py: of the kernels for
  // experts, Triton's, DeepGEMM's and CUTLASS's of fp8 do not take what
  // FlashInfer brings; those of four-bit floats do, on sm_100 and sm_103. It
  // wants memory that a switch can map, and at most eight experts a token.
  static std::optional<std::string> FlashinferRefusal(
      const ModelShape& model, const Plan& plan, const Fingerprint& node,
      absl::Span<const int> gpus) {
    if (auto refusal = ExchangeRefusal("FlashInfer", plan, node, gpus)) {
      return refusal;
    }
    const NumberFormat format = model.expert_weights.number;
    if (format != NumberFormat::kNvfp4 && format != NumberFormat::kMxfp4) {
      return absl::StrCat(
          "FlashInfer's exchange is for experts in nvfp4 or "
          "mxfp4, not ",
          ToString(format));
    }
    const int capability = ComputeCapability(node, gpus).value_or(0);
    if ((capability != 100 && capability != 103) ||
        NvlinkSwitched(node) != true) {
      return "FlashInfer's exchange needs GPUs of sm_100 or sm_103 behind an "
             "NVLink switch";
    }
    constexpr int64_t kMostExperts = 8;
    if (model.experts_per_token > kMostExperts) {
      return absl::StrCat("FlashInfer's exchange brings a token to at most ",
                          kMostExperts, " experts, not ",
                          model.experts_per_token);
    }
    return std::nullopt;
  }

  static absl::string_view Backend(ExpertTransport transport) {
    switch (transport) {
      case ExpertTransport::kDeepEpLowLatency:
        return "deepep_low_latency";
      case ExpertTransport::kFlashinferNvlink:
        return "flashinfer_nvlink_one_sided";
      case ExpertTransport::kNone:
      case ExpertTransport::kAllGatherReduceScatter:
      case ExpertTransport::kNcclAllToAll:
      case ExpertTransport::kDeepEpHighThroughput:
        break;
    }
    return "allgather_reducescatter";
  }

  // What stands behind the model's name, a space before each. Adds to
  // `environment` what a sick node needs.
  static std::string Flags(const ModelShape& model, const Plan& plan,
                           const Workload& workload, const Fingerprint& node,
                           const Placement& placement,
                           std::vector<std::string>& environment) {
    std::string flags;
    const auto add = [&](const auto&... parts) {
      absl::StrAppend(&flags, " ", parts...);
    };
    if (plan.attention_tp > 1 || plan.attention_dp > 1) {
      add("-tp ", plan.attention_tp);
    }
    if (plan.attention_dp > 1) add("-dp ", plan.attention_dp);
    if (plan.pipeline > 1) add("-pp ", plan.pipeline);
    const bool low_latency =
        plan.transport == ExpertTransport::kDeepEpLowLatency;
    if (plan.expert_parallel > 1) {
      add("--enable-expert-parallel");
      if (plan.attention_dp > 1) {
        add("--all2all-backend ", Backend(plan.transport));
      }
      if (plan.two_batch_overlap) add("--enable-dbo");
    }
    if (model.kv_cache_format == NumberFormat::kFp8) {
      add("--kv-cache-dtype fp8");
    }
    add("--gpu-memory-utilization ", kMemoryUtilization);
    // Sequences that one scheduler has in flight. Each needs a token of a step.
    const int64_t sequences =
        SequencesEach(workload, int64_t{plan.replicas} * plan.attention_dp);
    add("--max-num-seqs ", sequences);
    const int64_t tokens =
        low_latency ? kLowLatencyTokens
                    : DefaultsOn(node, placement.replicas[0]).batched_tokens;
    if (sequences > tokens) add("--max-num-batched-tokens ", sequences);
    if (plan.attention_tp > 1) {
      AddPeerWorkarounds(node, plan.attention_tp, placement, flags,
                         environment);
    }
    return flags;
  }

  // custom_all_reduce.py trusts the driver's word on peer access, and fails,
  // hangs or returns garbage where that is wrong. FlashInfer's kernels, alone
  // and fused, and torch's symmetric memory have switches of their own.
  static void AddPeerWorkarounds(const Fingerprint& node, int ranks,
                                 const Placement& placement, std::string& flags,
                                 std::vector<std::string>& environment) {
    bool access = true, broken = false, linked = true;
    for (const std::vector<int>& gpus : placement.replicas) {
      access = access &&
               OfEveryGroup(node, gpus, ranks, PeerAccessComplete) != false;
      broken = broken || PeerCopiesBroken(node, gpus);
      linked =
          linked && OfEveryGroup(node, gpus, ranks, NvlinkComplete) == true;
    }
    if (access) return;
    absl::StrAppend(&flags, " --disable-custom-all-reduce");
    if (broken) SetVariable("NCCL_P2P_DISABLE=1", environment);
    if (!linked || FindArchitecture(node, placement.replicas[0]) == nullptr) {
      return;
    }
    SetVariable("VLLM_ALLREDUCE_USE_FLASHINFER=0", environment);
    SetVariable("VLLM_ALLREDUCE_USE_SYMM_MEM=0", environment);
    absl::StrAppend(&flags,
                    " --compilation-config.pass_config.fuse_allreduce_rms "
                    "false");
  }
};

}  // namespace

const Engine& VllmEngine() {
  static const Vllm engine;
  return engine;
}

}  // namespace fabricwise
