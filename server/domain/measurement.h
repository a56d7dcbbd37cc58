// SPDX-License-Identifier: Apache-2.0
//
// One measured point and the key that says what was measured. A profile is
// nothing but measurements, indexed; the store and the profile file keep them.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/domain/number_format.h"

namespace fabricwise {

enum class CollectiveOp {
  kAllReduce,      // size: payload
  kAllGather,      // size: gathered buffer (group size x one rank's block)
  kReduceScatter,  // size: buffer before scattering
  kAllToAll,       // size: one rank's whole send buffer
  kSendRecv,       // size: message
};

enum class CollectiveImpl {
  kNccl,
  kNcclSymmetric,  // NCCL over symmetric-memory windows
  kOneShot,        // our one-shot kernel over peer memory
  kTwoShot,        // our two-shot kernel over peer memory
  kVllmCustom,     // the engine's own kernel
  kSglangCustom,
  kTrtllm,
};

enum class Launch { kGraph, kEager };

// A set of GPUs. `members` names them as "0,1" or, over hosts, "a:0,1;b:0,1";
// empty stands for any set of `size` GPUs of the node.
struct GpuGroup {
  int size = 0;
  std::string members;

  friend auto operator<=>(const GpuGroup&, const GpuGroup&) = default;
};

struct CollectiveKey {
  CollectiveOp op = CollectiveOp::kAllReduce;
  GpuGroup group;
  CollectiveImpl implementation = CollectiveImpl::kNccl;
  Launch launch = Launch::kGraph;
  int concurrent_groups = 1;  // groups of this kind busy at once
  double skew_alpha = 0;      // power-law exponent of send sizes; 0: balanced
  int64_t size_bytes = 0;     // nccl-tests semantics, see CollectiveOp

  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

// C[m,n] = A[m,k] x W[k,n].
struct GemmKey {
  NumberFormat format = NumberFormat::kBf16;
  int64_t m = 0, n = 0, k = 0;

  friend auto operator<=>(const GemmKey&, const GemmKey&) = default;
};

// The routed experts of one MoE layer on one GPU of a moe_tp x expert_parallel
// shard: both grouped products and the activation between them.
struct ExpertsKey {
  WeightFormat format;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // whole, before moe_tp
  int64_t num_experts = 0;        // whole, before expert_parallel
  int64_t experts_per_token = 0;
  int64_t moe_tp = 1;
  int64_t expert_parallel = 1;
  double skew_alpha = 0;  // power-law exponent of the routing; 0: uniform
  int64_t tokens = 0;     // entering the layer on all ranks together
};

// What the routing of one ExpertsKey run really put on the measured GPU.
// Negative: not recorded.
struct ExpertsObserved {
  int64_t rows_local = -1;   // token copies
  int64_t experts_hit = -1;  // distinct
};

// Decode (query_tokens == 1) or prefill attention of one layer on one GPU.
struct AttentionKey {
  bool latent = false;  // MLA: kv_heads is 1, head_dim the latent width
  NumberFormat kv_format = NumberFormat::kBf16;
  int64_t batch = 0;
  int64_t query_tokens = 1;
  int64_t context_tokens = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  friend auto operator<=>(const AttentionKey&, const AttentionKey&) = default;
};

enum class MemoryOp { kRead, kCopy };

struct MemoryKey {
  MemoryOp op = MemoryOp::kRead;
  int64_t size_bytes = 0;  // read: bytes read; copy: bytes copied once

  friend auto operator<=>(const MemoryKey&, const MemoryKey&) = default;
};

// Time that one more small kernel node adds to a CUDA graph.
struct LaunchKey {
  friend auto operator<=>(const LaunchKey&, const LaunchKey&) = default;
};

enum class ExchangeImpl { kDeepEpLowLatency, kDeepEpHighThroughput, kPplx };
enum class ExchangeStage { kDispatch, kCombine };

// Moving expert tokens with a library built for it.
struct ExchangeKey {
  ExchangeImpl implementation = ExchangeImpl::kDeepEpLowLatency;
  ExchangeStage stage = ExchangeStage::kDispatch;
  GpuGroup group;
  int64_t hidden_size = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t tokens_per_rank = 0;

  friend auto operator<=>(const ExchangeKey&, const ExchangeKey&) = default;
};

using MeasurementKey =
    std::variant<CollectiveKey, GemmKey, ExpertsKey, AttentionKey, MemoryKey,
                 LaunchKey, ExchangeKey>;

// A canonical one-line form, e.g. "all_reduce/n2/nccl/graph/16384B",
// "gemm/bf16/m16n4096k2048", "memory/read/1048576B", "launch/graph_node".
// Equal keys have equal text; ParseMeasurementKey is its exact inverse and
// answers INVALID_ARGUMENT naming the part that is off.
std::string ToString(const MeasurementKey& key);
absl::StatusOr<MeasurementKey> ParseMeasurementKey(absl::string_view text);

// Whether every size of `key` is one that a measurement can have: positive,
// within 2^53, factors finite. INVALID_ARGUMENT naming the part.
absl::Status Validate(const MeasurementKey& key);

// "all_reduce", "nccl_symmetric", "graph", ... as in the canonical form.
absl::string_view ToString(CollectiveOp op);
absl::string_view ToString(CollectiveImpl implementation);
absl::string_view ToString(Launch launch);
absl::string_view ToString(MemoryOp op);
absl::string_view ToString(ExchangeImpl implementation);
absl::string_view ToString(ExchangeStage stage);

enum class Origin {
  kMeasured,   // on this node
  kReference,  // on another node of this kind
};

enum class StopReason {
  kUnknown,       // imported, not said
  kGood,          // spread within its target
  kSettledNoisy,  // spread stopped falling
  kOutOfBudget,
};

struct Statistics {
  double median_seconds = 0;
  double iqr_seconds = -1;  // negative: not recorded
  double p99_seconds = -1;  // negative: not recorded
  int64_t samples = 0;      // 0: not recorded
  int64_t discarded = 0;
  std::string discard_reason;
  StopReason stop_reason = StopReason::kUnknown;
  bool verified = false;
  double sm_clock_hertz = -1;  // negative: not recorded
};

struct Measurement {
  MeasurementKey key;
  Statistics statistics;
  ExpertsObserved experts;  // for an ExpertsKey
  Origin origin = Origin::kMeasured;
  std::string source;          // tool and version, or file, it came from
  std::string fingerprint_id;  // empty: imported without one
  absl::Time start_time = absl::UnixEpoch();
};

}  // namespace fabricwise
