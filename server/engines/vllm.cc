// SPDX-License-Identifier: Apache-2.0
//
// vLLM, read from its sources at 7cfb97e3 (2026-08-20). Paths below are within
// its vllm/ folder.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/engines/divisibility.h"
#include "server/engines/engines.h"
#include "server/engines/node_facts.h"
#include "server/engines/recipe_builder.h"

namespace fabricwise {
namespace {

constexpr absl::string_view kVersion = "vLLM 7cfb97e3 (2026-08-20)";

// config/cache.py: gpu_memory_utilization.
constexpr double kMemoryUtilization = 0.92;

// engine/arg_utils.py: max_num_batched_tokens of the API server and
// max_num_seqs, on GPUs of 70 GiB and more, and below.
constexpr int64_t kLargeGpuBytes = int64_t{70} << 30;
constexpr int64_t kLargeChunk = 8192, kSmallChunk = 2048;
constexpr int64_t kLargeSequences = 1024, kSmallSequences = 256;

// distributed/device_communicators/custom_all_reduce.py: largest message.
constexpr double kCustomMaxBytes = 8.0 * 1024 * 1024;

// Tensors at a pipeline boundary: hidden states and residual
// (v1/worker/gpu_worker.py).
constexpr int kBoundaryTensors = 2;

// model_executor/layers/quantization/utils/marlin_utils.py.
constexpr int64_t kMarlinHidden = 128;

// Deep EP low latency: default of max_num_batched_tokens (config/scheduler.py).
constexpr int64_t kLowLatencyChunk = 256;

// custom_all_reduce.py: 2, 4, 6 or 8 ranks; peer access; over two ranks only
// with NVLink between all.
bool CustomAllReduce(const Fingerprint& node, absl::Span<const int> gpus,
                     int ranks) {
  if (ranks != 2 && ranks != 4 && ranks != 6 && ranks != 8) return false;
  if (OfEveryGroup(node, gpus, ranks, NvlinkComplete) == true) return true;
  return ranks == 2 &&
         OfEveryGroup(node, gpus, ranks, PeerAccessComplete) == true;
}

bool LargeGpus(const Fingerprint& node, absl::Span<const int> gpus) {
  return SmallestMemoryBytes(node, gpus).value_or(0) >= kLargeGpuBytes;
}

// `text` as one word of a POSIX shell.
std::string ShellWord(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("._-/:", c);
  });
  return plain ? text
               : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}),
                              "'");
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
        ExpertTransport::kDeepEpLowLatency};
    if (attention_dp > 1) return kSplit;
    return kReplicated;
  }

  std::optional<std::string> Refusal(
      const ModelShape& model, const Plan& plan, const Fingerprint& node,
      absl::Span<const int> gpus) const override {
    if (auto common = CommonRefusal(model, plan)) return common;
    if (!model.is_moe() && plan.attention_dp > 1) {
      return "data-parallel ranks of a dense model are independent replicas";
    }
    const int stage = plan.stage_gpus();
    if (model.is_moe() && plan.expert_parallel != 1 &&
        plan.expert_parallel != stage) {
      return absl::StrCat("EP is TP x DP = ", stage, " or off, not ",
                          plan.expert_parallel);
    }
    if (plan.transport == ExpertTransport::kDeepEpLowLatency) {
      if (plan.expert_parallel == 1) return "DeepEP needs expert parallelism";
      const std::optional<bool> nvlink =
          OfEveryGroup(node, gpus, stage, NvlinkComplete);
      if (nvlink != true) {
        return absl::StrCat("DeepEP needs NVLink between all GPUs of a stage; ",
                            nvlink.has_value()
                                ? "some pairs have none"
                                : "the profile does not say which have it");
      }
    }
    if (auto refusal = QuantizedShareRefusal(
            "moe_intermediate_size", model.moe_intermediate_size, "TP",
            plan.moe_tp, model.expert_weights)) {
      return refusal;
    }
    if (model.is_moe() &&
        model.expert_weights.number == NumberFormat::kInt4Group) {
      if (auto refusal = MultipleRefusal("hidden_size", model.hidden_size,
                                         "int4 experts' tile", kMarlinHidden)) {
        return refusal;
      }
    }
    if (model.num_dense_layers > 0) {
      if (auto refusal = QuantizedShareRefusal(
              "intermediate_size", model.intermediate_size, "TP",
              plan.attention_tp, model.dense_weights)) {
        return refusal;
      }
    }
    const bool split_shared =
        plan.attention_tp == 1 || plan.transport != ExpertTransport::kNone;
    if (model.shared_intermediate_size > 0 && !split_shared) {
      return QuantizedShareRefusal(
          "shared_intermediate_size", model.shared_intermediate_size, "TP",
          plan.attention_tp, model.shared_expert_weights);
    }
    return std::nullopt;
  }

  Recipe MakeRecipe(const ModelShape& model, const Plan& plan,
                    const Fingerprint& node,
                    absl::Span<const int> gpus) const override {
    RecipeRules rules{
        .boundary_tensors = kBoundaryTensors,
        .chunk_tokens = LargeGpus(node, gpus) ? kLargeChunk : kSmallChunk,
        .max_sequences =
            LargeGpus(node, gpus) ? kLargeSequences : kSmallSequences,
        .usable_memory_fraction = kMemoryUtilization,
        // Scheduling and sampling overlap the step (asynchronous scheduling is
        // the default), so nothing is added unless the asker states it.
        .host_seconds = 0};
    if (CustomAllReduce(node, gpus, plan.attention_tp)) {
      rules.all_reduce_paths = {{CollectiveImpl::kVllmCustom, kCustomMaxBytes},
                                {CollectiveImpl::kNccl}};
    }
    if (plan.transport == ExpertTransport::kDeepEpLowLatency) {
      rules.chunk_tokens = kLowLatencyChunk;
      rules.max_sequences = kLowLatencyChunk;
    }
    return BuildRecipe(model, plan, rules);
  }

  LaunchAdvice Launch(const ModelShape& model, const Plan& plan,
                      const Workload& workload, const Fingerprint&,
                      const Placement& placement) const override {
    std::vector<std::string> flags;
    if (plan.attention_tp > 1 || plan.attention_dp > 1) {
      flags.push_back(absl::StrCat("-tp ", plan.attention_tp));
    }
    if (plan.attention_dp > 1) {
      flags.push_back(absl::StrCat("-dp ", plan.attention_dp));
    }
    if (plan.pipeline > 1) {
      flags.push_back(absl::StrCat("-pp ", plan.pipeline));
    }
    if (plan.expert_parallel > 1) {
      flags.push_back("--enable-expert-parallel");
      if (plan.attention_dp > 1) {
        flags.push_back(
            absl::StrCat("--all2all-backend ",
                         plan.transport == ExpertTransport::kDeepEpLowLatency
                             ? "deepep_low_latency"
                             : "allgather_reducescatter"));
      }
    }
    flags.push_back(
        absl::StrCat("--gpu-memory-utilization ", kMemoryUtilization));
    // Sequences that one engine process schedules.
    const int64_t engines = int64_t{plan.replicas} * plan.attention_dp;
    flags.push_back(absl::StrCat(
        "--max-num-seqs ",
        std::max<int64_t>(1, (workload.concurrency + engines - 1) / engines)));

    LaunchAdvice advice{.engine_version = std::string(version())};
    constexpr int kFirstPort = 8000;  // vLLM's default
    int port = kFirstPort;
    for (const std::vector<int>& gpus : placement.replicas) {
      advice.commands.push_back(absl::StrCat(
          "CUDA_VISIBLE_DEVICES=", absl::StrJoin(gpus, ","), " vllm serve ",
          model.repository.empty() ? "MODEL" : ShellWord(model.repository), " ",
          absl::StrJoin(flags, " "), " --port ", port++));
    }
    return advice;
  }
};

}  // namespace

const Engine& VllmEngine() {
  static const Vllm engine;
  return engine;
}

}  // namespace fabricwise
