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

enum class Launch {
  kGraph,
  kEager,
  // In a graph, in turn with a matrix product, whose own time is taken off.
  kGraphInterleaved,
};

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

  friend bool operator==(const ExpertsKey&, const ExpertsKey&) = default;
};

// What the routing of one ExpertsKey run really put on the measured GPU.
// Negative: not recorded.
struct ExpertsObserved {
  int64_t rows_local = -1;   // token copies
  int64_t experts_hit = -1;  // distinct

  friend bool operator==(const ExpertsObserved&,
                         const ExpertsObserved&) = default;
};

// Decode (query_tokens == 1) or prefill attention of one layer on one GPU, in
// prefill causal: each sequence's query tokens are the last of its context.
// Prefill of latent attention is as engines run it, on keys and values expanded
// for each query head, less the expansion.
struct AttentionKey {
  bool latent = false;  // MLA: kv_heads is 1, head_dim the latent width
  NumberFormat kv_format = NumberFormat::kBf16;
  int64_t batch = 0;
  int64_t query_tokens = 1;
  int64_t context_tokens = 0;  // with the query tokens
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  friend auto operator<=>(const AttentionKey&, const AttentionKey&) = default;
};

// Widths of a key and a value that latent attention expands to in measurements
// of prefill, as DeepSeek-V2 and those after it have them.
inline constexpr int64_t kExpandedKeyDim = 192, kExpandedValueDim = 128;

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

// A canonical one-line form:
//   all_reduce/n2/nccl/graph/16384B
//   all_to_all/n4[0,1,2,3]/nccl/eager/x2/a0.8/16384B   (x: concurrent groups,
//                                         a: skew; left out where 1 and 0)
//   all_reduce/n2/nccl/graph+gemm/16384B
//   gemm/bf16/m16n4096k2048
//   experts/int4_group:32/h7168i2048e384k8/tp1ep8/t64   (/a1.2 before /t)
//   attention/mla/bf16/b8q1c2048/h128kv1d576            (or gqa)
//   memory/read/1048576B
//   launch/graph_node
//   exchange/deepep_low_latency/dispatch/n8/h7168e256k8/t128
// Equal keys have equal text; ParseMeasurementKey is the exact inverse on valid
// keys and answers INVALID_ARGUMENT naming the part that is off.
std::string ToString(const MeasurementKey& key);
absl::StatusOr<MeasurementKey> ParseMeasurementKey(absl::string_view text);

// "n8", or "n2[0,1]" where members are named.
std::string ToString(const GpuGroup& group);

// Largest size in a key: integers up to here are exact in a double and in JSON.
inline constexpr int64_t kMaxKeySize = int64_t{1} << 53;
// Largest group: far above any node, low enough that products stay exact.
inline constexpr int kMaxGroupGpus = 1 << 16;
// Largest power-law exponent: beyond it all goes to one receiver.
inline constexpr double kMaxSkewAlpha = 100;

// Whether every size of `key` is one that a measurement can have: positive,
// within kMaxKeySize, groups of 2 to kMaxGroupGpus whose members, if named, are
// as many, skew within [0, kMaxSkewAlpha]. INVALID_ARGUMENT naming the part.
absl::Status Validate(const MeasurementKey& key);

// "all_reduce", "nccl_symmetric", "graph", ... as in the canonical form; the
// parsers are their inverses and answer INVALID_ARGUMENT naming what is
// allowed.
absl::string_view ToString(CollectiveOp op);
absl::string_view ToString(CollectiveImpl implementation);
absl::string_view ToString(Launch launch);
absl::string_view ToString(MemoryOp op);
absl::string_view ToString(ExchangeImpl implementation);
absl::string_view ToString(ExchangeStage stage);
absl::StatusOr<CollectiveOp> ParseCollectiveOp(absl::string_view text);
absl::StatusOr<CollectiveImpl> ParseCollectiveImpl(absl::string_view text);
absl::StatusOr<Launch> ParseLaunch(absl::string_view text);

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

// "measured", "reference"; "unknown", "good", "settled_noisy",
// "out_of_budget".
absl::string_view ToString(Origin origin);
absl::string_view ToString(StopReason reason);
absl::StatusOr<Origin> ParseOrigin(absl::string_view text);
absl::StatusOr<StopReason> ParseStopReason(absl::string_view text);

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

  friend bool operator==(const Statistics&, const Statistics&) = default;
};

// Standard deviation of one run over the median: from the IQR as for a normal
// distribution; kUnrecordedSigma where no IQR was recorded.
double RelativeSigma(const Statistics& statistics);
// Spread assumed of a point that came without one, as those of nccl-tests do.
// Two runs of one point in one process (out of place and in place, 2x H200,
// three fabrics, 4 KiB and up, 490 pairs) differ by 3.3 % at the 68th
// percentile, hence 2.3 % each; rounded up for runs in other processes.
inline constexpr double kUnrecordedSigma = 0.03;

struct Measurement {
  MeasurementKey key;
  Statistics statistics;
  ExpertsObserved experts;  // for an ExpertsKey
  Origin origin = Origin::kMeasured;
  std::string source;          // tool and version, or file, it came from
  std::string fingerprint_id;  // empty: imported without one
  absl::Time start_time = absl::UnixEpoch();

  friend bool operator==(const Measurement&, const Measurement&) = default;
};

// Whether the key is valid, the median positive and every recorded statistic
// finite and possible. INVALID_ARGUMENT naming the key, the field, its value.
absl::Status Validate(const Measurement& measurement);

}  // namespace fabricwise
