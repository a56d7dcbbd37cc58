// SPDX-License-Identifier: Apache-2.0
#include "server/measure/plans.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fabricwise {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;

// Where serving lives: tokens of a decode step times a hidden state.
constexpr int64_t kServingLow = 4 * kKiB, kServingHigh = 4 * kMiB;
// Coarse sizes of a quick run, and the sizes of a full one.
constexpr int64_t kQuickFactor = 4, kFullFactor = 2;
constexpr int64_t kLowest = kKiB;
constexpr int64_t kQuickHighest = 64 * kMiB, kFullHighest = 256 * kMiB;
// Kernels over peer memory are for small messages.
constexpr int64_t kPeerHighest = 8 * kMiB;
// Enough for latency, for where bandwidth sets in, and for bandwidth.
constexpr int64_t kPairSizes[] = {4 * kKiB, kMiB, 64 * kMiB};
// A skew at which, of 8 receivers, the first gets three times the mean.
constexpr double kSkewAlpha = 1;

// Hidden and intermediate widths of today's models, whole and sharded.
constexpr int64_t kQuickWidths[] = {1024, 4096, 16384};
constexpr int64_t kFullWidths[] = {512, 1024, 2048, 4096, 7168, 8192, 16384};
constexpr int64_t kQuickRows[] = {1, 16, 64, 256, 1024, 4096};
constexpr int64_t kFullRows[] = {1,   4,    16,   64,   128, 256,
                                 512, 1024, 2048, 4096, 8192};
// Routed experts from many small to few large ones, as today's models have:
// hidden and intermediate width, experts, experts of a token.
struct ExpertsShape {
  int64_t hidden, intermediate, experts, per_token;
};
constexpr ExpertsShape kQuickExperts[] = {
    {2048, 768, 128, 8}, {7168, 2048, 256, 8}, {4096, 14336, 8, 2}};
constexpr ExpertsShape kFullExperts[] = {{2048, 768, 128, 8},
                                         {2880, 2880, 128, 4},
                                         {4096, 1536, 128, 8},
                                         {7168, 2048, 256, 8},
                                         {4096, 14336, 8, 2}};
// Models that are served in blocks of fp8, in that of their weights.
constexpr ExpertsShape kQuickFp8Experts[] = {{7168, 2048, 256, 8}};
constexpr ExpertsShape kFullFp8Experts[] = {
    {2048, 768, 128, 8}, {4096, 1536, 128, 8}, {7168, 2048, 256, 8}};
constexpr int64_t kQuickTokens[] = {1, 16, 256, 4096};
constexpr int64_t kFullTokens[] = {1, 4, 16, 64, 256, 1024, 4096};
// Kernels copy eight bf16 at a time; a scale is of so many fp8.
constexpr int64_t kWidthUnit = 8, kFp8WidthUnit = 128;

// Attention: query heads, KV heads, width of a head.
struct HeadsShape {
  bool latent;
  int64_t q_heads, kv_heads, head_dim;
};
constexpr HeadsShape kQuickHeads[] = {{false, 32, 8, 128}, {true, 16, 1, 576}};
constexpr HeadsShape kFullHeads[] = {{false, 32, 8, 128}, {false, 64, 8, 64},
                                     {false, 16, 1, 128}, {false, 8, 8, 128},
                                     {true, 16, 1, 576},  {true, 128, 1, 576}};
// A fourfold step in what is read reaches everything between.
constexpr int64_t kBatches[] = {1, 4, 16, 64, 256};
constexpr int64_t kQuickContexts[] = {2048};
constexpr int64_t kFullContexts[] = {512, 2048, 8192, 32768};
// More than this fills a GPU's memory and takes long to fill.
constexpr int64_t kMostKvTokens = int64_t{1} << 20;
// Attention of prompts: tokens of a step, from a tile of a kernel's to the
// budgets of engines, and how many each of them sees, of prompts from 512 to
// 32,768 tokens.
constexpr HeadsShape kQuickPromptHeads[] = {{false, 32, 8, 128},
                                            {true, 16, 1, 576}};
constexpr HeadsShape kFullPromptHeads[] = {{false, 32, 8, 128},
                                           {false, 64, 8, 64},
                                           {false, 16, 2, 256},
                                           {true, 16, 1, 576},
                                           {true, 128, 1, 576}};
constexpr int64_t kQuickPromptTokens[] = {512, 8192};
constexpr int64_t kFullPromptTokens[] = {128, 512, 2048, 8192, 16384};
constexpr int64_t kQuickSeen[] = {512, 4096};
constexpr int64_t kFullSeen[] = {256, 512, 1024, 4096, 16384};

constexpr int64_t kMemorySizes[] = {kMiB,      4 * kMiB,   16 * kMiB,
                                    64 * kMiB, 256 * kMiB, 1024 * kMiB};

// Relative time that a key takes: collectives need their ranks in step, and
// long ones their time.
double Cost(const MeasurementKey& key) {
  return std::holds_alternative<CollectiveKey>(key) ? 3 : 1;
}

// Collectives of one part over all groups: serving sizes of every curve come
// before the rest of any.
class Sweep {
 public:
  explicit Sweep(bool full) : full_(full) {}

  void Add(const CollectiveKey& curve, int64_t highest) {
    for (int64_t size = kLowest; size <= std::min(highest, Highest());
         size *= Factor()) {
      CollectiveKey key = curve;
      key.size_bytes = size;
      const bool first =
          size >= kServingLow && size <= kServingHigh && IsCoarse(size);
      (first ? first_ : then_).emplace_back(key);
    }
  }
  void AddPoint(const CollectiveKey& key) { then_.emplace_back(key); }

  std::vector<MeasurementKey> Take() {
    first_.insert(first_.end(), then_.begin(), then_.end());
    return std::move(first_);
  }

 private:
  int64_t Factor() const { return full_ ? kFullFactor : kQuickFactor; }
  int64_t Highest() const { return full_ ? kFullHighest : kQuickHighest; }
  static bool IsCoarse(int64_t size) {
    int64_t coarse = kLowest;
    while (coarse < size) coarse *= kQuickFactor;
    return coarse == size;
  }

  const bool full_;
  std::vector<MeasurementKey> first_, then_;
};

// Group sizes that plans use: powers of two, and the whole node.
std::vector<int> GroupSizes(int gpu_count) {
  std::vector<int> sizes;
  for (int size = 2; size < gpu_count; size *= 2) sizes.push_back(size);
  if (gpu_count > 1) sizes.push_back(gpu_count);
  return sizes;
}

constexpr CollectiveOp kOps[] = {
    CollectiveOp::kAllReduce, CollectiveOp::kAllToAll, CollectiveOp::kAllGather,
    CollectiveOp::kReduceScatter, CollectiveOp::kSendRecv};

std::vector<PlanPart> Collectives(bool full, int gpu_count) {
  const std::vector<int> sizes = GroupSizes(gpu_count);
  Sweep graph(full), eager(full), peer(full), symmetric(full), special(full);
  for (const int size : sizes) {
    const GpuGroup group = {.size = size};
    for (const CollectiveOp op : kOps) {
      // A message has two ends, however large the node.
      if (op == CollectiveOp::kSendRecv && size > 2) continue;
      graph.Add({.op = op, .group = group}, kFullHighest);
      // Prompts run eagerly; a quick run leaves that to graph figures.
      if (full) {
        eager.Add({.op = op, .group = group, .launch = Launch::kEager},
                  kFullHighest);
      }
    }
    for (const CollectiveImpl implementation :
         {CollectiveImpl::kOneShot, CollectiveImpl::kTwoShot}) {
      peer.Add({.group = group, .implementation = implementation},
               kPeerHighest);
    }
    if (!full) continue;
    for (const CollectiveOp op :
         {CollectiveOp::kAllReduce, CollectiveOp::kAllGather,
          CollectiveOp::kReduceScatter}) {
      symmetric.Add({.op = op,
                     .group = group,
                     .implementation = CollectiveImpl::kNcclSymmetric},
                    kFullHighest);
    }
    if (const int groups = gpu_count / size; groups > 1) {
      for (const CollectiveOp op :
           {CollectiveOp::kAllReduce, CollectiveOp::kAllToAll}) {
        special.Add({.op = op, .group = group, .concurrent_groups = groups},
                    kServingHigh);
      }
    }
    for (const CollectiveImpl implementation :
         {CollectiveImpl::kNccl, CollectiveImpl::kOneShot}) {
      special.Add({.group = group,
                   .implementation = implementation,
                   .launch = Launch::kGraphInterleaved},
                  kServingHigh);
    }
    if (size == gpu_count) {
      special.Add({.op = CollectiveOp::kAllToAll,
                   .group = group,
                   .skew_alpha = kSkewAlpha},
                  kQuickHighest);
    }
  }
  // The island, the bad link: on two GPUs there is one pair, measured above.
  for (int i = 0; full && gpu_count > 2 && i < gpu_count; ++i) {
    for (int j = i + 1; j < gpu_count; ++j) {
      for (const int64_t size : kPairSizes) {
        special.AddPoint(
            {.op = CollectiveOp::kSendRecv,
             .group = {.size = 2, .members = absl::StrCat(i, ",", j)},
             .size_bytes = size});
      }
    }
  }
  return {
      {.name = "collectives in graphs", .keys = graph.Take()},
      {.name = "own collectives", .keys = peer.Take()},
      {.name = "collectives, launched one by one", .keys = eager.Take()},
      {.name = "collectives over symmetric memory", .keys = symmetric.Take()},
      {.name = "skew, contention, pairs and turns", .keys = special.Take()}};
}

template <typename Widths, typename Rows>
std::vector<MeasurementKey> Products(NumberFormat format, const Widths& widths,
                                     const Rows& rows) {
  std::vector<MeasurementKey> keys;
  // Rows outermost: a table that is cut short still reaches every width.
  for (const int64_t m : rows) {
    for (const int64_t n : widths) {
      for (const int64_t k : widths) {
        keys.emplace_back(GemmKey{.format = format, .m = m, .n = n, .k = k});
      }
    }
  }
  return keys;
}

template <typename Shapes, typename Tokens>
std::vector<MeasurementKey> Experts(NumberFormat format, const Shapes& shapes,
                                    const Tokens& tokens, int gpu_count) {
  const int64_t unit =
      format == NumberFormat::kFp8Block ? kFp8WidthUnit : kWidthUnit;
  std::vector<MeasurementKey> keys;
  // Tokens outermost, as rows of products are.
  for (const int64_t count : tokens) {
    for (const ExpertsShape& shape : shapes) {
      ExpertsKey key = {.format = {.number = format},
                        .hidden_size = shape.hidden,
                        .intermediate_size = shape.intermediate,
                        .num_experts = shape.experts,
                        .experts_per_token = shape.per_token,
                        .tokens = count};
      keys.emplace_back(key);
      if (gpu_count == 1) continue;
      if (shape.experts % gpu_count == 0) {
        key.expert_parallel = gpu_count;
        keys.emplace_back(key);
        key.expert_parallel = 1;
      }
      if (shape.intermediate % (gpu_count * unit) == 0) {
        key.moe_tp = gpu_count;
        keys.emplace_back(key);
      }
    }
  }
  return keys;
}

template <typename Heads, typename Contexts>
std::vector<MeasurementKey> Attention(const Heads& heads,
                                      const Contexts& contexts) {
  std::vector<MeasurementKey> keys;
  for (const int64_t batch : kBatches) {
    for (const int64_t context : contexts) {
      if (batch * context > kMostKvTokens) continue;
      for (const HeadsShape& shape : heads) {
        keys.emplace_back(AttentionKey{.latent = shape.latent,
                                       .batch = batch,
                                       .context_tokens = context,
                                       .q_heads = shape.q_heads,
                                       .kv_heads = shape.kv_heads,
                                       .head_dim = shape.head_dim});
      }
    }
  }
  return keys;
}

template <typename Heads, typename Tokens, typename Seen>
std::vector<MeasurementKey> PromptAttention(const Heads& heads,
                                            const Tokens& tokens,
                                            const Seen& seen) {
  std::vector<MeasurementKey> keys;
  for (const int64_t count : tokens) {
    for (const int64_t sees : seen) {
      for (const HeadsShape& shape : heads) {
        // Whole prompts of twice what their tokens see in the mean, or the
        // last part of one.
        const int64_t prompts = std::max<int64_t>(1, count / (2 * sees));
        keys.emplace_back(
            AttentionKey{.latent = shape.latent,
                         .batch = prompts,
                         .query_tokens = count / prompts,
                         .context_tokens = sees + count / prompts / 2,
                         .q_heads = shape.q_heads,
                         .kv_heads = shape.kv_heads,
                         .head_dim = shape.head_dim});
      }
    }
  }
  return keys;
}

std::vector<PlanPart> OneGpu(bool full, int gpu_count) {
  PlanPart memory = {.name = "memory, launch and products"};
  memory.keys.emplace_back(LaunchKey{});
  for (const MemoryOp op : {MemoryOp::kRead, MemoryOp::kCopy}) {
    for (const int64_t size : kMemorySizes) {
      memory.keys.emplace_back(MemoryKey{.op = op, .size_bytes = size});
    }
  }
  const std::vector<MeasurementKey> products =
      full ? Products(NumberFormat::kBf16, kFullWidths, kFullRows)
           : Products(NumberFormat::kBf16, kQuickWidths, kQuickRows);
  memory.keys.insert(memory.keys.end(), products.begin(), products.end());
  PlanPart fp8 = {.name = "products and experts in fp8"};
  if (full) fp8.keys = Products(NumberFormat::kFp8, kFullWidths, kFullRows);
  PlanPart layers = {.name = "experts and attention"};
  using enum NumberFormat;
  layers.keys = full ? Experts(kBf16, kFullExperts, kFullTokens, gpu_count)
                     : Experts(kBf16, kQuickExperts, kQuickTokens, gpu_count);
  const std::vector<MeasurementKey> attention =
      full ? Attention(kFullHeads, kFullContexts)
           : Attention(kQuickHeads, kQuickContexts);
  layers.keys.insert(layers.keys.end(), attention.begin(), attention.end());
  const std::vector<MeasurementKey> prompts =
      full ? PromptAttention(kFullPromptHeads, kFullPromptTokens, kFullSeen)
           : PromptAttention(kQuickPromptHeads, kQuickPromptTokens, kQuickSeen);
  layers.keys.insert(layers.keys.end(), prompts.begin(), prompts.end());
  const std::vector<MeasurementKey> fp8_experts =
      full ? Experts(kFp8Block, kFullFp8Experts, kFullTokens, gpu_count)
           : Experts(kFp8Block, kQuickFp8Experts, kQuickTokens, gpu_count);
  fp8.keys.insert(fp8.keys.end(), fp8_experts.begin(), fp8_experts.end());
  return {std::move(memory), std::move(layers), std::move(fp8)};
}

bool BeginsAsAsked(const MeasurementKey& key,
                   const std::vector<std::string>& prefixes) {
  if (prefixes.empty()) return true;
  const std::string text = ToString(key);
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) {
                       return absl::StartsWith(text, prefix);
                     });
}

}  // namespace

absl::StatusOr<RunPlan> MakePlan(const RunOrder& order, int gpu_count,
                                 const std::vector<MeasurementKey>& wanted) {
  const bool full = order.kind == RunKind::kFull;
  std::vector<PlanPart> parts = Collectives(full, gpu_count);
  for (PlanPart& part : OneGpu(full, gpu_count))
    parts.push_back(std::move(part));
  // After what every model needs, before what few do.
  constexpr size_t kPlaceOfWanted = 2;
  parts.insert(parts.begin() + kPlaceOfWanted,
               {.name = "of models asked about", .keys = wanted});

  RunPlan plan;
  std::set<std::string> seen;
  double whole_cost = 0;
  std::vector<double> costs;
  for (PlanPart& part : parts) {
    std::erase_if(part.keys, [&](const MeasurementKey& key) {
      return !BeginsAsAsked(key, order.key_prefixes) ||
             !seen.insert(ToString(key)).second;
    });
    if (part.keys.empty()) continue;
    double cost = 0;
    for (const MeasurementKey& key : part.keys) cost += Cost(key);
    costs.push_back(cost);
    whole_cost += cost;
    plan.key_count += std::ssize(part.keys);
    plan.parts.push_back(std::move(part));
  }
  if (plan.parts.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no key of a ", std::string(ToString(order.kind)),
                     " run on ", gpu_count, " GPUs begins with ",
                     absl::StrJoin(order.key_prefixes, " or ")));
  }
  const absl::Duration budget =
      order.budget.value_or(full ? kFullBudget : kQuickBudget);
  for (size_t i = 0; i < costs.size(); ++i) {
    plan.parts[i].budget = budget * (costs[i] / whole_cost);
  }
  return plan;
}

MeasurementKey CurveOf(MeasurementKey key) {
  struct Strip {
    void operator()(CollectiveKey& k) const { k.size_bytes = 1; }
    void operator()(GemmKey& k) const { k.m = 1; }
    void operator()(ExpertsKey& k) const { k.tokens = 1; }
    void operator()(AttentionKey& k) const { k.context_tokens = 1; }
    void operator()(MemoryKey& k) const { k.size_bytes = 1; }
    void operator()(LaunchKey&) const {}
    void operator()(ExchangeKey& k) const { k.tokens_per_rank = 1; }
  };
  std::visit(Strip{}, key);
  return key;
}

}  // namespace fabricwise
