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
#include "server/engines/engines.h"
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

// model_executor/layers/quantization: fp8.py block_n; marlin_utils.py.
constexpr int64_t kFp8Block = 128;
constexpr int64_t kMarlinHidden = 128;
constexpr int64_t kMarlinMinimumThread = 64;

// Deep EP low latency: default of max_num_batched_tokens (config/scheduler.py).
constexpr int64_t kLowLatencyChunk = 256;

// Whether each of the node's GPUs has NVLink to each other; false where the
// node does not say.
bool NvlinkComplete(const Fingerprint& node) {
  const size_t count = node.gpus.size();
  if (node.nvlinks.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (node.nvlinks[i].size() != count) return false;
    for (size_t j = 0; j < count; ++j) {
      if (i != j && node.nvlinks[i][j] == 0) return false;
    }
  }
  return count > 1;
}

bool PeerAccessComplete(const Fingerprint& node) {
  const size_t count = node.gpus.size();
  if (node.peer_access.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (node.peer_access[i].size() != count) return false;
    for (size_t j = 0; j < count; ++j) {
      if (i != j && !node.peer_access[i][j]) return false;
    }
  }
  return count > 1;
}

// custom_all_reduce.py: 2, 4, 6 or 8 ranks; peer access; over two ranks only
// with NVLink between all.
bool CustomAllReduce(const Fingerprint& node, int ranks) {
  if (ranks != 2 && ranks != 4 && ranks != 6 && ranks != 8) return false;
  if (ranks == 2) return PeerAccessComplete(node) || NvlinkComplete(node);
  return NvlinkComplete(node);
}

bool LargeGpus(const Fingerprint& node) {
  return !node.gpus.empty() && node.gpus.front().memory_bytes >= kLargeGpuBytes;
}

std::string FailsMultiple(absl::string_view what, int64_t whole,
                          absl::string_view by, int64_t parts, int64_t unit,
                          absl::string_view unit_name) {
  return absl::StrCat(what, " ", whole, " / ", by, " ", parts, " = ",
                      whole / parts, " is not a multiple of ", unit_name, " ",
                      unit);
}

// quantization/fp8.py and fp8_utils.py for blocks, marlin_utils.py for int4:
// what a sharded width must divide by.
std::optional<std::string> WidthRefusal(absl::string_view what, int64_t width,
                                        absl::string_view by, int64_t parts,
                                        const WeightFormat& format) {
  if (parts == 1) return std::nullopt;
  switch (format.number) {
    case NumberFormat::kFp8Block:
      if (width / parts % kFp8Block != 0) {
        return FailsMultiple(what, width, by, parts, kFp8Block, "fp8 block");
      }
      return std::nullopt;
    case NumberFormat::kInt4Group: {
      const int64_t unit = std::max(kMarlinMinimumThread, format.group_size);
      if (width / parts % unit != 0) {
        return FailsMultiple(what, width, by, parts, unit, "int4 group");
      }
      return std::nullopt;
    }
    case NumberFormat::kBf16:
    case NumberFormat::kFp8:
    case NumberFormat::kMxfp4:
    case NumberFormat::kNvfp4:
      return std::nullopt;
  }
  return std::nullopt;
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

  std::optional<std::string> Refusal(const ModelShape& model, const Plan& plan,
                                     const Fingerprint& node) const override {
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
      if (!NvlinkComplete(node)) {
        return absl::StrCat(
            "DeepEP needs NVLink between all GPUs of the node; the profile ",
            node.nvlinks.empty() ? "does not say which have it"
                                 : "has pairs without it");
      }
    }
    if (auto refusal =
            WidthRefusal("moe_intermediate_size", model.moe_intermediate_size,
                         "TP", plan.moe_tp, model.expert_weights)) {
      return refusal;
    }
    if (model.is_moe() &&
        model.expert_weights.number == NumberFormat::kInt4Group &&
        model.hidden_size % kMarlinHidden != 0) {
      return absl::StrCat("hidden_size ", model.hidden_size,
                          " is not a multiple of ", kMarlinHidden,
                          " (int4 experts)");
    }
    if (model.num_dense_layers > 0) {
      if (auto refusal =
              WidthRefusal("intermediate_size", model.intermediate_size, "TP",
                           plan.attention_tp, model.dense_weights)) {
        return refusal;
      }
    }
    const bool split_shared =
        plan.attention_tp == 1 || plan.transport != ExpertTransport::kNone;
    if (model.shared_intermediate_size > 0 && !split_shared) {
      return WidthRefusal("shared_intermediate_size",
                          model.shared_intermediate_size, "TP",
                          plan.attention_tp, model.shared_expert_weights);
    }
    return std::nullopt;
  }

  Recipe MakeRecipe(const ModelShape& model, const Plan& plan,
                    const Fingerprint& node) const override {
    RecipeRules rules{
        .boundary_tensors = kBoundaryTensors,
        .chunk_tokens = LargeGpus(node) ? kLargeChunk : kSmallChunk,
        .max_sequences = LargeGpus(node) ? kLargeSequences : kSmallSequences,
        .usable_memory_fraction = kMemoryUtilization,
        // Scheduling and sampling overlap the step (asynchronous scheduling is
        // the default), so nothing is added unless the asker states it.
        .host_seconds = 0};
    if (CustomAllReduce(node, plan.attention_tp)) {
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
                      const Workload& workload) const override {
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
    const int per_replica = plan.gpus() / plan.replicas;
    for (int replica = 0; replica < plan.replicas; ++replica) {
      std::vector<int> gpus;
      for (int i = 0; i < per_replica; ++i) {
        gpus.push_back(replica * per_replica + i);
      }
      constexpr int kFirstPort = 8000;  // vLLM's default
      advice.commands.push_back(absl::StrCat(
          "CUDA_VISIBLE_DEVICES=", absl::StrJoin(gpus, ","), " vllm serve ",
          model.name.empty() ? "MODEL" : ShellWord(model.name), " ",
          absl::StrJoin(flags, " "), " --port ", kFirstPort + replica));
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
