// SPDX-License-Identifier: Apache-2.0
//
// TensorRT-LLM's PyTorch backend, read from single files at differing commits
// of 2025 and 2026: what holds in one release must be checked there. Paths
// below are within its tensorrt_llm/ folder.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>
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

constexpr absl::string_view kVersion =
    "TensorRT-LLM, several commits up to 2026";

// commands/serve.py: free_gpu_memory_fraction, of what is free once weights
// are loaded and a forward pass was tried.
constexpr double kKvFraction = 0.9;

// llmapi/llm_args.py: max_num_tokens and max_batch_size of a rank.
constexpr int64_t kChunk = 8192, kMostSequences = 2048;

// cpp/.../thop/allreduceOp.cpp: one-shot kernels up to so many tokens, two-shot
// ones up to the workspace (TRTLLM_ALLREDUCE_FUSION_WORKSPACE_SIZE).
constexpr int64_t kOneShotTokens = 128;
constexpr double kWorkspaceBytes = 64.0 * 1024 * 1024;
constexpr double kHiddenValueBytes = 2;  // bf16

// _torch/models/modeling_deepseekv3.py: the block that splits of dense and
// shared widths keep whole, with weights quantized by blocks.
constexpr int64_t kFp8Block = 128;
// deep_ep_low_latency.py: tokens of a rank that its buffers are made for,
// TRTLLM_DEEP_EP_TOKEN_LIMIT; steps of more gather all tokens. By default as
// many as a step may have, of which the buffers fill a GPU: so a limit is set.
constexpr int64_t kDeepEpTokens = 256;
// fp8 dispatch: a scale of four bytes for each block.
constexpr double kFp8ScaleBytes = 4;
// nvfp4 dispatch: half a byte a value, a byte of scale for every 16.
constexpr double kNvfp4ValueBytes = 0.5 + 1.0 / 16;

constexpr absl::string_view kBf16Dispatch =
    "tokens go out in bf16, as the experts take them: the curve of fp8 "
    "dispatch by the bytes of both";

constexpr int kConsumerBlackwell = 120;

// Its own kernels need peer access and NVLink between all ranks, and are tuned
// for 2, 4 and 8 of them; else NCCL.
bool OwnAllReduce(const Fingerprint& node, absl::Span<const int> gpus,
                  int ranks) {
  return (ranks == 2 || ranks == 4 || ranks == 8) &&
         OfEveryGroup(node, gpus, ranks, NvlinkComplete) == true &&
         OfEveryGroup(node, gpus, ranks, PeerAccessComplete) != false;
}

CollectivePaths AllReducePaths(const ModelShape& model, const Fingerprint& node,
                               absl::Span<const int> gpus, int ranks) {
  CollectivePaths paths;
  if (OwnAllReduce(node, gpus, ranks)) {
    const double one_shot = kHiddenValueBytes * kOneShotTokens *
                            static_cast<double>(model.hidden_size);
    AddPath({CollectiveImpl::kTrtllm, CollectiveKernel::kOneShot, one_shot},
            paths);
    AddPath(
        {CollectiveImpl::kTrtllm, CollectiveKernel::kTwoShot, kWorkspaceBytes},
        paths);
  }
  AddPath({CollectiveImpl::kNccl}, paths);
  return paths;
}

// _torch/modules/fused_moe/communication/allgather_reducescatter.py: tokens are
// gathered as the experts' products take them.
double GatherBytes(const ModelShape& model) {
  const auto hidden = static_cast<double>(model.hidden_size);
  switch (model.expert_weights.number) {
    case NumberFormat::kFp8Block:
      return hidden + kFp8ScaleBytes * hidden / kFp8Block;
    case NumberFormat::kFp8:
      return hidden;
    case NumberFormat::kNvfp4:
      return kNvfp4ValueBytes * hidden;
    case NumberFormat::kBf16:
    case NumberFormat::kInt4Group:
    case NumberFormat::kMxfp4:
      break;
  }
  return kHiddenValueBytes * hidden;
}

// deep_ep_low_latency.py: which experts' tokens go out as the products take
// them; others in bf16.
bool DispatchesQuantized(const ModelShape& model) {
  return model.expert_weights.number == NumberFormat::kFp8 ||
         model.expert_weights.number == NumberFormat::kNvfp4;
}

// _torch/models/modeling_deepseekv3.py, modeling_glm.py: Embedding(vocab,
// hidden, dtype), without a mapping. Other models split it over the ranks.
bool HasWholeEmbedding(const ModelShape& model) {
  return RunsAsDeepSeek(model) ||
         absl::StartsWith(model.model_type, "glm4_moe");
}

// Ranks over which DeepSeek's model code splits a dense or shared width: as
// many of `tp` as keep its blocks whole.
int WholeBlocksTp(int64_t width, const WeightFormat& format, int tp) {
  const int64_t block =
      format.number == NumberFormat::kFp8Block ? kFp8Block : 1;
  if (width % block != 0) return 1;
  return static_cast<int>(std::gcd(width / block, int64_t{tp}));
}

class Trtllm final : public Engine {
 public:
  EngineId id() const override { return EngineId::kTrtllm; }
  absl::string_view version() const override { return kVersion; }
  absl::string_view caveat() const override {
    return "low confidence: read from several commits, verify against the "
           "release";
  }

  // communication_factory.py: nothing without attention data parallelism; with
  // it, of the ways that it may choose, those that single nodes without
  // multi-node NVLink memory have.
  absl::Span<const ExpertTransport> Transports(
      int attention_dp) const override {
    static constexpr std::array kReplicated = {ExpertTransport::kNone};
    static constexpr std::array kSplit = {
        ExpertTransport::kAllGatherReduceScatter,
        ExpertTransport::kDeepEpLowLatency};
    if (attention_dp > 1) return kSplit;
    return kReplicated;
  }

  std::optional<std::string> Refusal(
      const ModelShape& model, const Plan& plan, const Fingerprint& node,
      absl::Span<const int> gpus) const override {
    if (plan.two_batch_overlap) return "there is no two-batch overlap";
    if (plan.fp8_dispatch) {
      return "8-bit dispatch is no option: it goes by the experts' format";
    }
    if (auto common = CommonRefusal(model, plan)) return common;
    if (auto refusal = WidthRefusal(model, plan)) return refusal;
    if (!model.is_moe()) {
      if (plan.attention_dp > 1) {
        return "data-parallel ranks of a dense model are independent replicas";
      }
      return std::nullopt;
    }
    const int stage = plan.stage_gpus();
    if (plan.attention_dp > 1 && plan.attention_tp > 1) {
      return absl::StrCat("attention data parallelism takes all ", stage,
                          " GPUs of a stage or none, not ", plan.attention_dp);
    }
    // MOE_DEVELOPER_GUIDE.md: the b12x kernels.
    if (model.expert_weights.number == NumberFormat::kNvfp4 &&
        ComputeCapability(node, gpus) >= kConsumerBlackwell) {
      if (plan.expert_parallel > 1) {
        return absl::StrCat("nvfp4 experts on sm120 need EP 1, not ",
                            plan.expert_parallel);
      }
      if (plan.attention_dp > 1) {
        return "nvfp4 experts on sm120 allow no attention data parallelism";
      }
    }
    if (plan.transport != ExpertTransport::kDeepEpLowLatency) {
      return std::nullopt;
    }
    if (plan.expert_parallel != stage) {
      return absl::StrCat("DeepEP needs EP over all ", stage,
                          " GPUs of a stage, not ", plan.expert_parallel);
    }
    if (auto refusal =
            MultipleRefusal("num_experts", model.num_experts, "EP", stage)) {
      return refusal;
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

  Recipe MakeRecipe(const ModelShape& model, const Plan& plan,
                    const Fingerprint& node,
                    absl::Span<const int> gpus) const override {
    RecipeRules rules{
        .replicate_embedding = HasWholeEmbedding(model),
        .gather_bytes_per_token = GatherBytes(model),
        .all_reduce_paths =
            AllReducePaths(model, node, gpus, plan.attention_tp),
        .chunk_tokens = kChunk,
        .max_sequences = kMostSequences,
        .usable_memory_fraction = 1,
        .kv_memory_fraction = kKvFraction,
        // The executor prepares a step while the one before it runs; agreeing
        // with other ranks (_torch/pyexecutor/py_executor.py) is not hidden.
        .host_seconds = plan.attention_dp > 1 ? kDataParallelSyncSeconds : 0};
    // The norm after an all-reduce of its own is part of it.
    if (OwnAllReduce(node, gpus, plan.attention_tp)) {
      rules.fused_norm_max_bytes = kWorkspaceBytes;
    }
    if (plan.transport == ExpertTransport::kDeepEpLowLatency) {
      const bool quantized = DispatchesQuantized(model);
      rules.gather_prompts = true;
      rules.max_rank_sequences = kDeepEpTokens;
      rules.exchange_bytes = LowLatencyBytes(
          model.hidden_size, model.num_experts, kDeepEpTokens, quantized);
      if (!quantized) {
        rules.low_latency_note = kBf16Dispatch;
        rules.low_latency_dispatch_ratio = Bf16DispatchRatio(model.hidden_size);
      }
    }
    if (RunsAsDeepSeek(model)) {
      rules.dense_tp = WholeBlocksTp(model.intermediate_size,
                                     model.dense_weights, plan.attention_tp);
      rules.shared_tp =
          WholeBlocksTp(model.shared_intermediate_size,
                        model.shared_expert_weights, plan.attention_tp);
    }
    return BuildRecipe(model, plan, rules);
  }

  LaunchAdvice Launch(const ModelShape& model, const Plan& plan,
                      const Workload& workload, const Fingerprint& node,
                      const Placement& placement) const override {
    LaunchAdvice advice{.environment = NcclSettings(node),
                        .engine_version = std::string(version())};
    const bool attention_dp = plan.attention_dp > 1;
    const int64_t rank_sequences =
        SequencesEach(workload, int64_t{plan.replicas} * plan.attention_dp);
    std::vector<std::string> flags = {
        absl::StrCat("--tp_size ", plan.stage_gpus())};
    if (plan.pipeline > 1) {
      flags.push_back(absl::StrCat("--pp_size ", plan.pipeline));
    }
    if (model.is_moe()) {
      flags.push_back(absl::StrCat("--ep_size ", plan.expert_parallel));
    }
    flags.push_back(absl::StrCat("--max_batch_size ", rank_sequences));
    flags.push_back(
        absl::StrCat("--kv_cache_free_gpu_memory_fraction ", kKvFraction));
    // Without it a prompt must fit into one step.
    if (workload.input_tokens > kChunk) {
      flags.push_back("--enable_chunked_prefill");
    }

    // What has no flag. Batches between the captured sizes run in graphs only
    // where they are padded.
    std::vector<std::string> yaml = {
        "cuda_graph_config:", "  enable_padding: true",
        absl::StrCat("  max_batch_size: ", rank_sequences)};
    if (model.kv_cache_format == NumberFormat::kFp8) {
      yaml.insert(yaml.end(),
                  {"kv_cache_config:", "  dtype: fp8",
                   absl::StrCat("  free_gpu_memory_fraction: ", kKvFraction)});
    }
    if (attention_dp) {
      yaml.push_back("enable_attention_dp: true");
      if (plan.moe_tp > 1) {
        yaml.push_back(absl::StrCat("moe_tensor_parallel_size: ", plan.moe_tp));
      } else {
        const bool deep_ep =
            plan.transport == ExpertTransport::kDeepEpLowLatency;
        advice.environment.push_back(
            absl::StrCat("TRTLLM_FORCE_COMM_METHOD=",
                         deep_ep ? "DEEPEPLOWLATENCY" : "ALLGATHER"));
        if (deep_ep) {
          advice.environment.push_back(
              absl::StrCat("TRTLLM_DEEP_EP_TOKEN_LIMIT=", kDeepEpTokens));
        }
      }
    }
    const bool broken = std::any_of(
        placement.replicas.begin(), placement.replicas.end(),
        [&](const auto& gpus) { return PeerCopiesBroken(node, gpus); });
    if (broken) {
      SetVariable("NCCL_P2P_DISABLE=1", advice.environment);
      yaml.push_back("allreduce_strategy: NCCL");
    }

    constexpr int kFirstPort = 8000;  // trtllm-serve's default
    int port = kFirstPort;
    for (const std::vector<int>& gpus : placement.replicas) {
      advice.commands.push_back(
          absl::StrCat(VisibleDevices(gpus), " trtllm-serve ", ModelWord(model),
                       " ", absl::StrJoin(flags, " "), " --port ", port++,
                       " --config /dev/stdin <<'YAML'\n",
                       absl::StrJoin(yaml, "\n"), "\nYAML"));
    }
    return advice;
  }

 private:
  // Shares of quantized widths are whole blocks or groups, which is what
  // DeepSeek's code splits its dense layers and shared expert by.
  static std::optional<std::string> WidthRefusal(const ModelShape& model,
                                                 const Plan& plan) {
    const int64_t t = plan.attention_tp;
    if (model.is_moe()) {
      if (auto refusal = QuantizedShareRefusal(
              "moe_intermediate_size", model.moe_intermediate_size, "MoE TP",
              plan.moe_tp, model.expert_weights)) {
        return refusal;
      }
    }
    if (RunsAsDeepSeek(model)) return std::nullopt;
    if (model.num_dense_layers > 0) {
      if (auto refusal = QuantizedShareRefusal("intermediate_size",
                                               model.intermediate_size, "TP", t,
                                               model.dense_weights)) {
        return refusal;
      }
    }
    if (model.shared_intermediate_size > 0) {
      return QuantizedShareRefusal("shared_intermediate_size",
                                   model.shared_intermediate_size, "TP", t,
                                   model.shared_expert_weights);
    }
    return std::nullopt;
  }
};

}  // namespace

const Engine& TrtllmEngine() {
  static const Trtllm engine;
  return engine;
}

}  // namespace fabricwise
