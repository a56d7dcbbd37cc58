// SPDX-License-Identifier: Apache-2.0
#include "server/engines/recipe_builder.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/string_view.h"

namespace fabricwise {
namespace {

constexpr double kActivationBytes = 2;  // bf16, what every engine computes in
constexpr double kStateBytes = 4;       // fp32, linear attention's state
constexpr double kDeepEpHeaderBytes = 16;  // of a token that goes out

// Kernels beside products, attention and collectives, in a fused
// implementation. Every layer: two norms with their residuals, rotary
// embedding with the KV write, combining split attention, activation. A MoE
// layer has, in place of the one activation: routing, sorting, permuting,
// activation, weighted sum.
constexpr double kSmallKernelsPerLayer = 5;
constexpr double kExtraSmallKernelsPerMoeLayer = 4;
// Linear attention: causal convolution and gated norm in addition.
constexpr double kExtraSmallKernelsPerLinearLayer = 2;

// NCCL's default buffer for each channel and direction (NCCL_BUFFSIZE, 4 MiB)
// times the most channels that it opens between two GPUs by itself (32),
// both directions.
constexpr double kNcclBufferBytes = 4.0 * 1024 * 1024 * 32 * 2;

// Tensors of hidden width alive at once in a forward pass of one chunk:
// residual, normed input, attention output, MLP output, and two for the
// allocator's rounding.
constexpr double kLiveHiddenTensors = 6;

constexpr absl::string_view kRounded =
    "tokens are rounded to 8 bits on the way, for the router as well";

constexpr absl::string_view kAsAllReduce =
    "not measured: one all-reduce moves the same bytes and stands in";
constexpr absl::string_view kAsAllToAll =
    "not measured: an all-to-all of two is the same send and receive, both "
    "ways at once and with a copy: an upper bound";

constexpr absl::string_view kAsGather =
    "FlashInfer's exchange is not measured: gathering every token to every "
    "rank "
    "and scattering all sums is an upper bound";

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

double BytesOf(NumberFormat format) {
  return BytesPerWeight({.number = format});
}

// Adds up recipe and weights side by side, so that they cannot differ.
class Builder {
 public:
  Builder(const ModelShape& model, const Plan& plan, const RecipeRules& rules)
      : model_(model), plan_(plan), rules_(rules), t_(plan.attention_tp) {
    recipe_.plan = plan;
    recipe_.num_layers = model.num_layers;
    recipe_.host_seconds = rules.host_seconds;
    recipe_.chunk_tokens = rules.chunk_tokens;
    recipe_.mixed_steps = rules.mixed_steps;
    recipe_.max_rank_sequences = rules.max_rank_sequences;
    recipe_.overlap = rules.overlap;
  }

  Recipe Build() {
    if (SoftmaxLayers() > 0) {
      if (model_.attention_kind == AttentionKind::kMla) {
        LatentAttention();
      } else {
        GroupedAttention();
      }
    }
    if (model_.num_linear_layers > 0) LinearAttention();
    if (model_.num_dense_layers > 0) DenseLayers();
    if (model_.num_moe_layers > 0) MoeLayers();
    AttentionCollectives();
    if (rules_.edges) Edges();
    if (plan_.pipeline > 1) Boundary();
    recipe_.small_kernels =
        kSmallKernelsPerLayer * Count(model_.num_layers) +
        kExtraSmallKernelsPerMoeLayer * Count(model_.num_moe_layers) +
        kExtraSmallKernelsPerLinearLayer * Count(model_.num_linear_layers) -
        recipe_.fused.count;
    Memory();
    return std::move(recipe_);
  }

 private:
  static double Count(int64_t layers) { return static_cast<double>(layers); }
  double HiddenBytes() const {
    return kActivationBytes * static_cast<double>(model_.hidden_size);
  }
  // Tokens of a rank are split over its tensor-parallel ranks in MoE layers.
  bool SequenceParallelExperts() const {
    return rules_.sequence_parallel_experts &&
           plan_.transport != ExpertTransport::kNone && t_ > 1;
  }
  // Feed-forward layers see the tokens of the whole stage.
  bool GathersDense() const {
    return rules_.gather_feed_forward && plan_.attention_dp > 1;
  }
  bool GathersExperts() const {
    return GathersDense() &&
           plan_.transport == ExpertTransport::kAllGatherReduceScatter;
  }
  int64_t GatheredLayers() const {
    return (GathersDense() ? model_.num_dense_layers : 0) +
           (GathersExperts() ? model_.num_moe_layers : 0);
  }
  int64_t SoftmaxLayers() const {
    return model_.num_layers - model_.num_linear_layers;
  }

  void Gemm(absl::string_view name, const WeightFormat& format, int64_t n,
            int64_t k, int64_t count, TokenBasis rows = TokenBasis::kRank,
            Section section = Section::kLayers) {
    recipe_.gemms.push_back({.name = name,
                             .format = format,
                             .n = n,
                             .k = k,
                             .rows = rows,
                             .count = Count(count),
                             .section = section});
    if (section == Section::kLayers) {
      layer_weights_ += Count(count) * static_cast<double>(n) *
                        static_cast<double>(k) * BytesPerWeight(format);
    }
  }

  void AddAttention(AttentionUse use) {
    const int64_t full = model_.num_full_layers();
    const bool sparse = model_.index_topk > 0;
    const double per_token = use.kv_bytes_per_token;
    if (full > 0) {
      use.name = "attention";
      use.count = Count(full);
      if (sparse) {
        use.window = model_.index_topk;
        use.index_bytes_per_token = static_cast<double>(model_.index_head_dim);
      }
      recipe_.attention.push_back(use);
      recipe_.memory.kv_bytes_per_token =
          Count(full) * (per_token + use.index_bytes_per_token);
    }
    if (model_.num_sliding_layers > 0) {
      use.name = "attention in window";
      use.count = Count(model_.num_sliding_layers);
      use.window = model_.sliding_window;
      use.index_bytes_per_token = 0;
      recipe_.attention.push_back(use);
      recipe_.memory.window_kv_bytes_per_token =
          Count(model_.num_sliding_layers) * per_token;
      recipe_.memory.window_tokens =
          model_.sliding_window + rules_.window_slack_tokens;
    }
  }

  void GroupedAttention() {
    const int64_t q = model_.num_attention_heads / t_;
    const int64_t kv = std::max<int64_t>(1, model_.num_key_value_heads / t_);
    const int64_t d = model_.head_dim, v = model_.v_head_dim;
    const int64_t layers = SoftmaxLayers();
    Gemm("qkv projection", model_.attention_weights, q * d + kv * (d + v),
         model_.hidden_size, layers);
    Gemm("output projection", model_.attention_weights, model_.hidden_size,
         q * v, layers);
    AddAttention({.kv_format = model_.kv_cache_format,
                  .q_heads = q,
                  .kv_heads = kv,
                  .head_dim = d,
                  .qk_dim = d,
                  .v_dim = v,
                  .kv_bytes_per_token = static_cast<double>(kv * (d + v)) *
                                        BytesOf(model_.kv_cache_format)});
  }

  void LatentAttention() {
    const int64_t q = model_.num_attention_heads / t_;
    const int64_t nope = model_.qk_nope_head_dim;
    const int64_t rope = model_.qk_rope_head_dim;
    const int64_t latent = model_.kv_lora_rank;
    const int64_t layers = SoftmaxLayers();
    const WeightFormat& format = model_.attention_weights;
    if (model_.q_lora_rank > 0) {
      Gemm("latent down projection", format, model_.q_lora_rank + latent + rope,
           model_.hidden_size, layers);
      Gemm("query up projection", format, q * (nope + rope), model_.q_lora_rank,
           layers);
    } else {
      Gemm("query projection", format, q * (nope + rope), model_.hidden_size,
           layers);
      Gemm("latent down projection", format, latent + rope, model_.hidden_size,
           layers);
    }
    // The key and value halves of kv_b, absorbed into query and output: one
    // small product a head, together the weights and operations of these.
    Gemm("absorbed key projection", format, latent, q * nope, layers);
    Gemm("absorbed value projection", format, q * model_.v_head_dim, latent,
         layers);
    Gemm("output projection", format, model_.hidden_size, q * model_.v_head_dim,
         layers);
    if (model_.index_topk > 0) {
      Gemm("index projection", format,
           model_.index_heads * model_.index_head_dim,
           model_.q_lora_rank > 0 ? model_.q_lora_rank : model_.hidden_size,
           layers);
    }
    AddAttention(
        {.latent = true,
         .kv_format = model_.kv_cache_format,
         .q_heads = q,
         .kv_heads = 1,
         .head_dim = latent + rope,
         .qk_dim = nope + rope,
         .v_dim = model_.v_head_dim,
         .kv_bytes_per_token = rules_.latent_kv_bytes_per_token > 0
                                   ? rules_.latent_kv_bytes_per_token
                                   : static_cast<double>(latent + rope) *
                                         BytesOf(model_.kv_cache_format)});
  }

  void LinearAttention() {
    const int64_t keys =
        CeilDivide(model_.linear_key_heads * model_.linear_key_head_dim, t_);
    const int64_t values = CeilDivide(
        model_.linear_value_heads * model_.linear_value_head_dim, t_);
    const int64_t gates = CeilDivide(2 * model_.linear_value_heads, t_);
    const int64_t layers = model_.num_linear_layers;
    // Query, key, value and output gate, and two gates a head.
    Gemm("linear attention input projection", model_.attention_weights,
         2 * keys + 2 * values + gates, model_.hidden_size, layers);
    Gemm("linear attention output projection", model_.attention_weights,
         model_.hidden_size, values, layers);
    const double state = kStateBytes * static_cast<double>(values) *
                         static_cast<double>(model_.linear_key_head_dim);
    recipe_.states.push_back({.name = "linear attention state",
                              .bytes_per_sequence = 2 * state,
                              .count = Count(layers)});
    recipe_.memory.state_bytes_per_sequence = Count(layers) * state;
  }

  int DenseTp() const {
    if (GathersDense()) return plan_.stage_gpus();
    return rules_.dense_tp > 0 ? rules_.dense_tp : t_;
  }

  void DenseLayers() {
    const int64_t width = CeilDivide(model_.intermediate_size, DenseTp());
    const TokenBasis rows =
        GathersDense() ? TokenBasis::kStage : TokenBasis::kRank;
    Gemm("gate and up projection", model_.dense_weights, 2 * width,
         model_.hidden_size, model_.num_dense_layers, rows);
    Gemm("down projection", model_.dense_weights, model_.hidden_size, width,
         model_.num_dense_layers, rows);
    if (t_ > 1 && !GathersDense()) {
      AllReduce("all_reduce dense layers", Count(model_.num_dense_layers));
    }
  }

  void MoeLayers() {
    const int64_t layers = model_.num_moe_layers;
    const TokenBasis own = GathersExperts()            ? TokenBasis::kStage
                           : SequenceParallelExperts() ? TokenBasis::kRankSlice
                                                       : TokenBasis::kRank;
    Gemm("router", WeightFormat{}, model_.num_experts, model_.hidden_size,
         layers, own);
    recipe_.experts.push_back(
        {.format = model_.expert_weights,
         .hidden_size = model_.hidden_size,
         .intermediate_size = model_.moe_intermediate_size,
         .num_experts = model_.num_experts,
         .experts_per_token = model_.experts_per_token,
         .moe_tp = plan_.moe_tp,
         .expert_parallel = plan_.expert_parallel,
         .count = Count(layers)});
    const int64_t experts_local =
        CeilDivide(model_.num_experts, plan_.expert_parallel);
    layer_weights_ += Count(layers) * 3 * static_cast<double>(experts_local) *
                      static_cast<double>(model_.hidden_size) *
                      static_cast<double>(model_.moe_intermediate_size) /
                      plan_.moe_tp * BytesPerWeight(model_.expert_weights);
    if (model_.shared_intermediate_size > 0) {
      const int64_t width =
          CeilDivide(model_.shared_intermediate_size, SharedTp());
      Gemm("shared expert gate and up projection", model_.shared_expert_weights,
           2 * width, model_.hidden_size, layers, own);
      Gemm("shared expert down projection", model_.shared_expert_weights,
           model_.hidden_size, width, layers, own);
    }
    ExpertCollectives(Count(layers));
  }

  double GatherBytes() const {
    return rules_.gather_bytes_per_token > 0 ? rules_.gather_bytes_per_token
                                             : HiddenBytes();
  }

  int SharedTp() const {
    if (GathersExperts()) return plan_.stage_gpus();
    if (SequenceParallelExperts() || !rules_.shard_shared_experts) return 1;
    return rules_.shared_tp > 0 ? rules_.shared_tp : t_;
  }

  void ExpertCollectives(double layers) {
    const int group = plan_.stage_gpus();
    if (group == 1 || GathersExperts()) return;
    switch (plan_.transport) {
      case ExpertTransport::kNone:
        if (rules_.two_expert_all_reduces && plan_.expert_parallel > 1 &&
            plan_.moe_tp > 1) {
          const CollectiveStep sum{CollectiveOp::kAllReduce, HiddenBytes(),
                                   TokenBasis::kRank};
          Collective("all_reduce experts over EP", plan_.expert_parallel, sum,
                     layers);
          Collective("all_reduce experts over MoE TP", plan_.moe_tp, sum,
                     layers);
          return;
        }
        AllReduce("all_reduce experts", layers);
        return;
      case ExpertTransport::kAllGatherReduceScatter:
        GatherAndScatter(layers, {});
        return;
      case ExpertTransport::kNcclAllToAll: {
        // A rank sends every one of its tokens to every rank, and gets every
        // rank's partial sums of it back: with as many experts a token as
        // ranks, hardly a rank is spared.
        const CollectiveStep exchange{CollectiveOp::kAllToAll,
                                      HiddenBytes() * group,
                                      TokenBasis::kRankSlice};
        Collective("all_to_all dispatch", group, exchange, layers);
        Collective("all_to_all combine", group, exchange, layers);
        return;
      }
      case ExpertTransport::kDeepEpLowLatency: {
        const bool one = !rules_.prompt_exchange && !rules_.gather_prompts;
        Exchange(ExchangeImpl::kDeepEpLowLatency, group, layers,
                 one ? std::nullopt : std::optional(Launch::kGraph));
        if (rules_.prompt_exchange) {
          Exchange(*rules_.prompt_exchange, group, layers, Launch::kEager);
        }
        if (rules_.gather_prompts) GatherAndScatter(layers, {}, Launch::kEager);
        return;
      }
      case ExpertTransport::kDeepEpHighThroughput:
        Exchange(ExchangeImpl::kDeepEpHighThroughput, group, layers);
        return;
      case ExpertTransport::kFlashinferNvlink:
        GatherAndScatter(layers, kAsGather);
        return;
    }
  }

  // `bound`: why the time of these is an upper bound; empty: it is none.
  void GatherAndScatter(double layers, absl::string_view bound,
                        std::optional<Launch> only = std::nullopt) {
    // Where every tensor-parallel rank of a rank has all of its tokens, those
    // of the same place gather.
    const bool repeated = t_ > 1 && !SequenceParallelExperts();
    const int group = repeated ? plan_.attention_dp : plan_.stage_gpus();
    const double routing = rules_.routing_bytes_per_expert *
                           static_cast<double>(model_.experts_per_token);
    Collective(
        "all_gather expert tokens", group,
        {CollectiveOp::kAllGather, GatherBytes() + routing, TokenBasis::kStage},
        layers, Section::kLayers, bound, only);
    Collective(
        "reduce_scatter expert outputs", group,
        {CollectiveOp::kReduceScatter, HiddenBytes(), TokenBasis::kStage},
        layers, Section::kLayers, bound, only);
    if (repeated) AllReduce("all_reduce experts", layers);
  }

  void AttentionCollectives() {
    const int64_t gathered = GatheredLayers();
    const int64_t scattered = SequenceParallelExperts() && !GathersExperts()
                                  ? model_.num_moe_layers
                                  : 0;
    if (gathered > 0) GatherCollectives(Count(gathered));
    if (t_ == 1) return;
    const int64_t whole = model_.num_layers - gathered - scattered;
    if (whole > 0) AllReduce("all_reduce attention", Count(whole));
    if (scattered > 0) ScatterAttention(Count(scattered), std::nullopt);
  }

  // Around each feed-forward layer that sees the whole stage.
  void GatherCollectives(double layers) {
    const int stage = plan_.stage_gpus();
    if (t_ > 1) ScatterAttention(layers, Launch::kGraph);
    Collective("all_gather feed-forward tokens", stage,
               {CollectiveOp::kAllGather, HiddenBytes(), TokenBasis::kStage},
               layers, Section::kLayers, {}, Launch::kGraph);
    const CollectiveStep scatter{CollectiveOp::kReduceScatter, HiddenBytes(),
                                 TokenBasis::kStage};
    Collective("reduce_scatter feed-forward outputs", stage, scatter, layers,
               Section::kLayers, {}, Launch::kGraph);
    if (rules_.prompt_gather_bytes_per_token > 0) {
      constexpr double kPackAndUnpack = 2;
      Collective("all_gather feed-forward tokens", stage,
                 {CollectiveOp::kAllGather,
                  rules_.prompt_gather_bytes_per_token, TokenBasis::kStage},
                 layers, Section::kLayers, {}, Launch::kEager);
      recipe_.collectives.back().note = kRounded;
      recipe_.eager_small_kernels += kPackAndUnpack * layers;
    } else {
      // Attention's partial sums and the gathering of prompts are one
      // all-reduce.
      StageAllReduce("all_reduce feed-forward tokens", layers);
    }
    if (plan_.expert_parallel == stage && t_ == 1) {
      Collective("reduce_scatter feed-forward outputs", stage, scatter, layers,
                 Section::kLayers, {}, Launch::kEager);
    } else {
      StageAllReduce("all_reduce feed-forward outputs", layers);
    }
  }

  void StageAllReduce(absl::string_view name, double layers) {
    recipe_.collectives.push_back(
        {.name = name,
         .group_size = plan_.stage_gpus(),
         .steps = {{CollectiveOp::kAllReduce, HiddenBytes(),
                    TokenBasis::kStage}},
         .paths = rules_.stage_all_reduce_paths,
         .count = layers,
         .only = Launch::kEager});
  }

  // Attention's sums are scattered over the ranks, and its input gathered from
  // them: together the bytes of one all-reduce.
  void ScatterAttention(double layers, std::optional<Launch> only) {
    recipe_.collectives.push_back(
        {.name = "reduce_scatter + all_gather attention",
         .group_size = t_,
         .steps = {{CollectiveOp::kReduceScatter, HiddenBytes(),
                    TokenBasis::kRank},
                   {CollectiveOp::kAllGather, HiddenBytes(),
                    TokenBasis::kRank}},
         .paths = {{CollectiveImpl::kNccl}},
         .stand_in = CollectiveStandIn{{CollectiveOp::kAllReduce, HiddenBytes(),
                                        TokenBasis::kRank},
                                       kAsAllReduce},
         .count = layers,
         .only = only});
  }

  // Ranks over which the output head is split, and ranks whose rows it sees.
  int HeadTp() const {
    return rules_.head_over_stage ? plan_.stage_gpus() : t_;
  }
  double HeadRanks() const {
    return rules_.head_over_stage ? plan_.attention_dp : 1;
  }

  void Edges() {
    Gemm("output head", WeightFormat{}, CeilDivide(model_.vocab_size, HeadTp()),
         model_.hidden_size, 1, TokenBasis::kOutput, Section::kHead);
    recipe_.gemms.back().row_factor = HeadRanks();
    if (t_ > 1 && !rules_.replicate_embedding) {
      AllReduce("all_reduce embedding", 1, Section::kEmbedding);
    }
    if (HeadTp() == 1) return;
    if (HeadRanks() > 1) {
      Collective("all_gather output tokens", HeadTp(),
                 {CollectiveOp::kAllGather, HiddenBytes() * HeadRanks(),
                  TokenBasis::kOutput},
                 1, Section::kHead);
    }
    Collective("all_gather logits", HeadTp(),
               {CollectiveOp::kAllGather,
                kActivationBytes * static_cast<double>(model_.vocab_size) *
                    HeadRanks(),
                TokenBasis::kOutput},
               1, Section::kHead);
  }

  void Boundary() {
    // Every tensor-parallel rank sends its part; the receivers gather.
    const double bytes = HiddenBytes() * rules_.boundary_tensors / t_;
    Collective("send_recv stage boundary", 2,
               {CollectiveOp::kSendRecv, bytes, TokenBasis::kRank}, 1,
               Section::kBoundary);
    // Half of a rank's buffer goes to the other of two.
    recipe_.collectives.back().stand_in = CollectiveStandIn{
        {CollectiveOp::kAllToAll, 2 * bytes, TokenBasis::kRank},
        kAsAllToAll,
        /*upper_bound=*/true};
    if (t_ > 1) {
      Collective("all_gather stage boundary", t_,
                 {CollectiveOp::kAllGather,
                  HiddenBytes() * rules_.boundary_tensors, TokenBasis::kRank},
                 1, Section::kBoundary);
    }
  }

  void AllReduce(absl::string_view name, double count,
                 Section section = Section::kLayers) {
    recipe_.collectives.push_back(
        {.name = name,
         .group_size = t_,
         .steps = {{CollectiveOp::kAllReduce, HiddenBytes(),
                    TokenBasis::kRank}},
         .paths = rules_.all_reduce_paths,
         .note = rules_.all_reduce_bound,
         .upper_bound = !rules_.all_reduce_bound.empty(),
         .count = count,
         .section = section});
    if (section == Section::kLayers && rules_.fused_norm_max_bytes > 0) {
      recipe_.fused.count += count;
      recipe_.fused.bytes_per_token = HiddenBytes();
      recipe_.fused.max_bytes = rules_.fused_norm_max_bytes;
    }
  }

  void Collective(absl::string_view name, int group, const CollectiveStep& step,
                  double count, Section section = Section::kLayers,
                  absl::string_view bound = {},
                  std::optional<Launch> only = std::nullopt) {
    recipe_.collectives.push_back({.name = name,
                                   .group_size = group,
                                   .steps = {step},
                                   .paths = {{CollectiveImpl::kNccl}},
                                   .note = bound,
                                   .upper_bound = !bound.empty(),
                                   .count = count,
                                   .section = section,
                                   .only = only});
  }

  void Exchange(ExchangeImpl implementation, int group, double count,
                std::optional<Launch> only = std::nullopt) {
    const bool repeated = t_ > 1 && !SequenceParallelExperts();
    recipe_.exchanges.push_back(
        {.name = "expert dispatch and combine",
         .implementation = implementation,
         .group_size = group,
         .hidden_size = rules_.exchange_hidden_size > 0
                            ? rules_.exchange_hidden_size
                            : model_.hidden_size,
         .num_experts = model_.num_experts,
         .experts_per_token = model_.experts_per_token,
         .tokens = repeated ? TokenBasis::kRank : TokenBasis::kRankSlice,
         .dispatch_ratio = implementation == ExchangeImpl::kDeepEpLowLatency
                               ? rules_.low_latency_dispatch_ratio
                               : 1,
         .note = implementation == ExchangeImpl::kDeepEpLowLatency
                     ? rules_.low_latency_note
                     : absl::string_view(),
         .count = count,
         .only = only});
    // What is combined is summed up already; the shared expert's parts are not.
    if (repeated && rules_.shard_shared_experts &&
        model_.shared_intermediate_size > 0) {
      AllReduce("all_reduce shared expert", count);
    }
  }

  void Memory() {
    MemoryRecipe& memory = recipe_.memory;
    const int p = plan_.pipeline;
    const double share =
        Count(CeilDivide(model_.num_layers, p)) / Count(model_.num_layers);
    const double hidden = static_cast<double>(model_.hidden_size);
    // Norm weights and biases are left out: under 0.1 %.
    const auto table = [&](int ranks) {
      return kActivationBytes * hidden *
             Count(CeilDivide(model_.vocab_size, ranks));
    };
    const double embedding = table(rules_.replicate_embedding ? 1 : t_);
    const double head = table(HeadTp());
    const bool one_table = p > 1 || model_.tie_word_embeddings;
    memory.weights_bytes =
        layer_weights_ * share +
        (one_table ? std::max(embedding, head) : embedding + head);
    memory.kv_bytes_per_token *= share;
    memory.window_kv_bytes_per_token *= share;
    memory.state_bytes_per_sequence *= share;

    const double tokens = static_cast<double>(rules_.chunk_tokens);
    const double dense = 3.0 * static_cast<double>(model_.intermediate_size) /
                         t_ * (model_.num_dense_layers > 0 ? 1 : 0);
    const double routed = 3.0 * static_cast<double>(model_.experts_per_token) *
                          static_cast<double>(model_.moe_intermediate_size) /
                          plan_.stage_gpus();
    memory.activation_bytes =
        kActivationBytes * tokens *
        (kLiveHiddenTensors * hidden + std::max(dense, routed));
    if (rules_.edges) {
      constexpr double kLogitBytes = 4;  // fp32 for sampling
      memory.activation_bytes += kLogitBytes *
                                 static_cast<double>(rules_.max_sequences) *
                                 Count(model_.vocab_size);
    }
    const int communicators =
        (t_ > 1 ? 1 : 0) + (plan_.attention_dp > 1 ? 1 : 0) + (p > 1 ? 1 : 0);
    memory.communicator_bytes = kNcclBufferBytes * communicators +
                                rules_.exchange_bytes + rules_.startup_bytes;
    if (rules_.reserve_bytes.has_value()) {
      memory.activation_bytes = *rules_.reserve_bytes;
      memory.communicator_bytes = 0;
    }
    memory.usable_fraction = rules_.usable_memory_fraction;
    memory.kv_fraction = rules_.kv_memory_fraction;
  }

  const ModelShape& model_;
  const Plan& plan_;
  const RecipeRules& rules_;
  const int t_;
  Recipe recipe_;
  double layer_weights_ = 0;  // bytes per GPU over all layers, one stage
};

}  // namespace

double Fp8TokenBytes(int64_t hidden_size) {
  constexpr double kScaleBytes = 4, kValuesOfAScale = 128;
  return static_cast<double>(hidden_size) * (1 + kScaleBytes / kValuesOfAScale);
}

double Bf16DispatchRatio(int64_t hidden_size) {
  return (kDeepEpHeaderBytes +
          kActivationBytes * static_cast<double>(hidden_size)) /
         (kDeepEpHeaderBytes + Fp8TokenBytes(hidden_size));
}

double LowLatencyBytes(int64_t hidden_size, int64_t num_experts, int64_t tokens,
                       bool fp8) {
  const auto width = static_cast<double>(hidden_size);
  const double slots =
      static_cast<double>(num_experts) * static_cast<double>(tokens);
  return slots *
         (2 * (kDeepEpHeaderBytes + kActivationBytes * width) +
          2 * kActivationBytes * width + (fp8 ? 1 : kActivationBytes) * width);
}

void AddPath(const CollectivePath& path, CollectivePaths& paths) {
  if (paths.empty() || paths.back().max_bytes < path.max_bytes) {
    paths.push_back(path);
  }
}

Recipe BuildRecipe(const ModelShape& model, const Plan& plan,
                   const RecipeRules& rules) {
  return Builder(model, plan, rules).Build();
}

}  // namespace fabricwise
