// SPDX-License-Identifier: Apache-2.0
#include "server/model/operation.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/model/routing.h"

namespace fabricwise {
namespace {

constexpr absl::string_view kWiderFormat =
    "not measured in its format: a wider format stands in, an upper bound";
constexpr absl::string_view kOtherFormat =
    "not measured in its format: another of that width stands in";
constexpr absl::string_view kOtherLaunch =
    "measured with the other kind of launch";
constexpr absl::string_view kOursOfTheKind =
    "the engine's own kernel is not measured: ours of its kind stands in";
constexpr absl::string_view kPassedOverFor =
    "the engine's own kernel is not measured: an upper bound, what it passes "
    "over for it";
constexpr absl::string_view kOtherPath =
    "not measured: another kernel of the engine stands in";
constexpr absl::string_view kAsProducts =
    "attention not measured: two products of equal operations stand in";
constexpr absl::string_view kAsRead =
    "attention not measured: the time to read its KV";
constexpr absl::string_view kLinearBeyond = "in proportion beyond the largest";

// A stand-in format is an upper bound, and the ratio of the bytes a lower one;
// one sigma of a uniform spread between the two is their distance / sqrt(12).
double BoundSigma(double bytes_ratio) {
  return (1 - std::min(1.0, bytes_ratio)) / std::sqrt(12.0);
}

// One sigma of a kernel priced as what the engine passes over for it: public
// pairs of custom all-reduce and NCCL on one node (4 to 512 KiB, 4 GPUs on
// PCIe) take 0.2 to 1 of its time; one sigma of a uniform spread between.
constexpr double kPassedOverSigma = 0.23;

// One sigma of attention priced as something else: a good attention kernel
// reaches 60 to 80 % of what a plain read or product does.
constexpr double kAttentionStandInSigma = 0.2;

double Hypot(double a, double b) { return std::sqrt(a * a + b * b); }

Price ToPrice(const Estimate& estimate, absl::string_view note = {}) {
  return {.known = true,
          .seconds = estimate.seconds,
          .relative_sigma = estimate.relative_sigma,
          .standing = estimate.standing,
          .note = note};
}

// `price` is of `priced_as`, asked was `format`.
void MarkFormat(const WeightFormat& format, const WeightFormat& priced_as,
                Price& price) {
  const double bytes_ratio = BytesPerWeight(format) / BytesPerWeight(priced_as);
  price.upper_bound = bytes_ratio < 1;
  price.note = price.upper_bound ? kWiderFormat : kOtherFormat;
  price.standing = Worse(price.standing, Standing::kExtrapolated);
  price.relative_sigma = Hypot(price.relative_sigma, BoundSigma(bytes_ratio));
}

// Formats to try for `format`, itself first, then ever wider ones.
absl::Span<const NumberFormat> Candidates(NumberFormat format) {
  using enum NumberFormat;
  static constexpr std::array kOfBf16 = {kBf16};
  static constexpr std::array kOfFp8Block = {kFp8Block, kFp8, kBf16};
  static constexpr std::array kOfFp8 = {kFp8, kFp8Block, kBf16};
  static constexpr std::array kOfInt4 = {kInt4Group, kBf16};
  static constexpr std::array kOfMxfp4 = {kMxfp4, kBf16};
  static constexpr std::array kOfNvfp4 = {kNvfp4, kBf16};
  switch (format) {
    case kBf16:
      return kOfBf16;
    case kFp8Block:
      return kOfFp8Block;
    case kFp8:
      return kOfFp8;
    case kInt4Group:
      return kOfInt4;
    case kMxfp4:
      return kOfMxfp4;
    case kNvfp4:
      return kOfNvfp4;
  }
  return kOfBf16;
}

int64_t CeilSize(double size) { return static_cast<int64_t>(std::ceil(size)); }

// What a key names less its last part, the size.
std::string WithoutSize(const MeasurementKey& key) {
  const std::string text = ToString(key);
  return text.substr(0, text.rfind('/'));
}

}  // namespace

const Price& Operation::At(const Argument& argument) {
  // Fibonacci hashing of the size's bits; a collision only forgets.
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  const auto bits = std::bit_cast<uint64_t>(argument.size);
  Remembered& place = remembered_[(bits * kGolden) >> (64 - kRememberedBits)];
  if (place.argument != argument) place = {argument, Evaluate(argument)};
  return place.price;
}

GemmOperation::GemmOperation(const Profile& profile, const WeightFormat& format,
                             int64_t n, int64_t k)
    : format_(format), n_(n), k_(k), priced_as_(format.number) {
  for (NumberFormat candidate : Candidates(format.number)) {
    prepared_ = profile.gemm().ForWeight(candidate, static_cast<double>(n),
                                         static_cast<double>(k));
    if (prepared_.has_value()) {
      priced_as_ = candidate;
      break;
    }
  }
}

Price GemmOperation::Evaluate(const Argument& argument) const {
  if (!prepared_.has_value()) return {};
  const std::optional<Estimate> at = prepared_->At(argument.size);
  if (!at.has_value()) return {};
  Price price = ToPrice(*at);
  if (priced_as_ != format_.number) {
    MarkFormat(format_, {.number = priced_as_}, price);
  }
  return price;
}

std::string GemmOperation::Source(const Argument&) const {
  return absl::StrCat("gemm/", ToString(priced_as_), "/n", n_, "k", k_);
}

std::vector<std::string> GemmOperation::Missing(
    const Argument& argument) const {
  return {ToString(MeasurementKey(
      GemmKey{format_.number, CeilSize(argument.size), n_, k_}))};
}

const RoutingLoad& RoutingMemo::At(const ExpertsUse& use, int64_t tokens) {
  if (known_.size() >= kMost) known_.clear();
  const auto [entry, inserted] =
      known_.try_emplace({use.expert_parallel, tokens});
  if (inserted) {
    entry->second = ExpectedRouting(use.num_experts, use.experts_per_token,
                                    use.expert_parallel, tokens, skew_);
  }
  return entry->second;
}

ExpertsOperation::ExpertsOperation(const Profile& profile,
                                   const ExpertsUse& use, RoutingMemo& routing)
    : use_(use), routing_(routing), priced_as_(use.format) {
  ExpertShard shard{.format = use.format,
                    .hidden_size = static_cast<double>(use.hidden_size),
                    .intermediate_local =
                        static_cast<double>(use.intermediate_size) / use.moe_tp,
                    .experts_local = static_cast<double>(use.num_experts) /
                                     use.expert_parallel};
  for (NumberFormat candidate : Candidates(use.format.number)) {
    shard.format = candidate == use.format.number
                       ? use.format
                       : WeightFormat{.number = candidate};
    prepared_ = profile.experts().For(shard);
    if (prepared_.has_value()) {
      priced_as_ = shard.format;
      break;
    }
  }
}

bool ExpertsOperation::Is(const ExpertsUse& use,
                          const RoutingMemo& routing) const {
  return &routing_ == &routing && use_.format == use.format &&
         use_.hidden_size == use.hidden_size &&
         use_.intermediate_size == use.intermediate_size &&
         use_.num_experts == use.num_experts &&
         use_.experts_per_token == use.experts_per_token &&
         use_.moe_tp == use.moe_tp &&
         use_.expert_parallel == use.expert_parallel;
}

Price ExpertsOperation::Evaluate(const Argument& argument) const {
  if (!prepared_.has_value()) return {};
  const RoutingLoad& load =
      routing_.At(use_, static_cast<int64_t>(std::ceil(argument.size)));
  const std::optional<Estimate> at = prepared_->At(load.max_rows, load.max_hit);
  if (!at.has_value()) return {};
  Price price = ToPrice(*at);
  price.relative_sigma = Hypot(price.relative_sigma, load.relative_error);
  if (priced_as_ != use_.format) MarkFormat(use_.format, priced_as_, price);
  return price;
}

ExpertsKey ExpertsOperation::Key(const WeightFormat& format,
                                 double tokens) const {
  return {.format = format,
          .hidden_size = use_.hidden_size,
          .intermediate_size = use_.intermediate_size,
          .num_experts = use_.num_experts,
          .experts_per_token = use_.experts_per_token,
          .moe_tp = use_.moe_tp,
          .expert_parallel = use_.expert_parallel,
          .skew_alpha = routing_.skew(),
          .tokens = CeilSize(tokens)};
}

std::string ExpertsOperation::Source(const Argument& argument) const {
  return WithoutSize(Key(priced_as_, argument.size));
}

std::vector<std::string> ExpertsOperation::Missing(
    const Argument& argument) const {
  return {ToString(MeasurementKey(Key(use_.format, argument.size)))};
}

MemoryOperation::MemoryOperation(const Profile& profile, MemoryOp op)
    : curve_(op == MemoryOp::kRead ? profile.memory_read()
                                   : profile.memory_copy()),
      op_(op) {}

namespace {

Price PriceOfBytes(const Curve* curve, double bytes) {
  if (bytes <= 0) return {.known = true};
  if (curve == nullptr) return {};
  const double smallest = curve->points().front().size;
  const double largest = curve->points().back().size;
  // Reading streams: beyond the largest size time goes with the bytes; below
  // the smallest no read is slower than that one.
  const double asked = std::clamp(bytes, smallest, largest);
  const std::optional<Estimate> at = curve->At(asked);
  if (!at.has_value()) return {};
  Price price = ToPrice(*at);
  if (bytes > largest) {
    price.seconds *= bytes / largest;
    price.note = kLinearBeyond;
  }
  if (bytes != asked) {
    price.standing = Worse(price.standing, Standing::kExtrapolated);
  }
  return price;
}

}  // namespace

Price MemoryOperation::Evaluate(const Argument& argument) const {
  return PriceOfBytes(curve_, argument.size);
}

std::string MemoryOperation::Source(const Argument&) const {
  return absl::StrCat("memory/", ToString(op_));
}

std::vector<std::string> MemoryOperation::Missing(
    const Argument& argument) const {
  return {ToString(MeasurementKey(MemoryKey{op_, CeilSize(argument.size)}))};
}

namespace {

bool SameAttention(const AttentionUse& a, const AttentionUse& b) {
  return a.latent == b.latent && a.kv_format == b.kv_format &&
         a.q_heads == b.q_heads && a.kv_heads == b.kv_heads &&
         a.head_dim == b.head_dim && a.window == b.window &&
         a.index_bytes_per_token == b.index_bytes_per_token;
}

double SeenContext(const AttentionUse& use, double context) {
  return use.window > 0 ? std::min(context, static_cast<double>(use.window))
                        : context;
}

// Less its sizes.
AttentionKey HeadsOf(const AttentionUse& use) {
  return {.latent = use.latent,
          .kv_format = use.kv_format,
          .q_heads = use.q_heads,
          .kv_heads = use.kv_heads,
          .head_dim = use.head_dim};
}

}  // namespace

AttentionOperation::AttentionOperation(const Profile& profile,
                                       const AttentionUse& use)
    : profile_(profile), use_(use) {}

bool AttentionOperation::Is(const AttentionUse& use) const {
  return SameAttention(use_, use);
}

bool AttentionOperation::Measured() const {
  return !profile_.attention().empty() || profile_.memory_read() != nullptr;
}

AttentionKey AttentionOperation::Key(const Argument& argument) const {
  AttentionKey key = HeadsOf(use_);
  key.batch = static_cast<int64_t>(std::ceil(argument.sequences));
  key.context_tokens =
      static_cast<int64_t>(std::max(1.0, SeenContext(use_, argument.context)));
  return key;
}

Price AttentionOperation::Evaluate(const Argument& argument) const {
  if (!profile_.attention().empty() && argument.sequences > 0) {
    if (const auto at = profile_.attention().At(Key(argument))) {
      return ToPrice(*at);
    }
  }
  const double seen = SeenContext(use_, argument.context);
  const double bytes =
      argument.sequences * (seen * use_.kv_bytes_per_token +
                            argument.context * use_.index_bytes_per_token);
  Price price = PriceOfBytes(profile_.memory_read(), bytes);
  if (price.known) {
    price.note = kAsRead;
    price.standing = Worse(price.standing, Standing::kInterpolated);
    price.relative_sigma = Hypot(price.relative_sigma, kAttentionStandInSigma);
  }
  return price;
}

std::string AttentionOperation::Source(const Argument& argument) const {
  if (!profile_.attention().empty() &&
      profile_.attention().At(Key(argument)).has_value()) {
    return "attention";
  }
  return absl::StrCat("memory/", ToString(MemoryOp::kRead));
}

std::vector<std::string> AttentionOperation::Missing(
    const Argument& argument) const {
  return {ToString(MeasurementKey(Key(argument)))};
}

PromptAttentionOperation::PromptAttentionOperation(const Profile& profile,
                                                   const AttentionUse& use)
    : profile_(profile), use_(use) {}

bool PromptAttentionOperation::Is(const AttentionUse& use) const {
  return SameAttention(use_, use) && use_.qk_dim == use.qk_dim &&
         use_.v_dim == use.v_dim;
}

bool PromptAttentionOperation::Measured() const {
  return !profile_.attention().empty() ||
         profile_.gemm().Has(NumberFormat::kBf16);
}

PromptWork PromptAttentionOperation::WorkOf(const Argument& argument) const {
  return {.tokens = argument.size,
          .seen = std::max(1.0, SeenContext(use_, argument.context))};
}

std::optional<Estimate> PromptAttentionOperation::FromTable(
    const Argument& argument) const {
  if (profile_.attention().empty()) return std::nullopt;
  std::optional<Estimate> at =
      profile_.attention().AtPrompts(HeadsOf(use_), WorkOf(argument));
  if (!at.has_value()) return at;
  // The widths that were measured are not always the model's.
  const int64_t measured =
      use_.latent ? kExpandedKeyDim + kExpandedValueDim : 2 * use_.head_dim;
  if (const int64_t width = use_.qk_dim + use_.v_dim; width != measured) {
    at->seconds *= static_cast<double>(width) / static_cast<double>(measured);
    at->relative_sigma = Hypot(at->relative_sigma, kAttentionStandInSigma);
    at->standing = Worse(at->standing, Standing::kExtrapolated);
  }
  return at;
}

Price PromptAttentionOperation::Evaluate(const Argument& argument) const {
  if (argument.size <= 0) return {.known = true};
  if (const auto at = FromTable(argument)) return ToPrice(*at);
  if (context_ != argument.context) {
    const double seen = std::max(1.0, SeenContext(use_, argument.context));
    const auto heads = static_cast<double>(use_.q_heads);
    products_ = {
        profile_.gemm().ForWeight(NumberFormat::kBf16, seen,
                                  heads * static_cast<double>(use_.qk_dim)),
        profile_.gemm().ForWeight(NumberFormat::kBf16, seen,
                                  heads * static_cast<double>(use_.v_dim))};
    context_ = argument.context;
  }
  Price price{.known = true,
              .relative_sigma = kAttentionStandInSigma,
              .standing = Standing::kExtrapolated,
              .note = kAsProducts};
  for (const auto& product : products_) {
    if (!product.has_value()) return {};
    const auto at = product->At(argument.size);
    if (!at.has_value()) return {};
    price.seconds += at->seconds;
    price.standing = Worse(price.standing, at->standing);
  }
  return price;
}

std::string PromptAttentionOperation::Source(const Argument& argument) const {
  return FromTable(argument).has_value() ? "attention" : "gemm/bf16";
}

std::vector<std::string> PromptAttentionOperation::Missing(
    const Argument& argument) const {
  return {ToString(MeasurementKey(PromptKey(HeadsOf(use_), WorkOf(argument))))};
}

namespace {

constexpr std::array kLaunches = {Launch::kGraph, Launch::kEager};

// Our own kernel that moves data in the same way.
std::optional<CollectiveImpl> OfSameKind(CollectiveKernel kernel) {
  switch (kernel) {
    case CollectiveKernel::kLibrary:
      return std::nullopt;
    case CollectiveKernel::kOneShot:
      return CollectiveImpl::kOneShot;
    case CollectiveKernel::kTwoShot:
      return CollectiveImpl::kTwoShot;
    case CollectiveKernel::kMulticast:
      return CollectiveImpl::kNcclSymmetric;
  }
  return std::nullopt;
}

// What an engine that takes its own kernel could have taken instead.
constexpr std::array kPassedOver = {CollectiveImpl::kTwoShot,
                                    CollectiveImpl::kNccl};

}  // namespace

CollectiveOperation::CollectiveOperation(const Profile& profile,
                                         CollectiveOp op, const GpuGroup& group,
                                         int at_once,
                                         const CollectivePaths& paths)
    : op_(op), group_(group), at_once_(at_once), paths_(paths) {
  const auto find = [&](CollectiveImpl implementation) {
    for (Launch launch : kLaunches) {
      Curves& curves = CurvesOf(implementation, launch);
      if (curves[0] != nullptr || curves[1] != nullptr) continue;
      CurveKey key{.op = op,
                   .group = group,
                   .implementation = implementation,
                   .launch = launch};
      curves[1] = profile.FindKeyedCurve(key);
      if (at_once == 1) continue;
      key.concurrent_groups = at_once;
      curves[0] = profile.FindKeyedCurve(key);
    }
  };
  for (const CollectivePath& path : paths_) {
    find(path.implementation);
    if (path.kernel == CollectiveKernel::kLibrary) continue;
    find(*OfSameKind(path.kernel));
    for (CollectiveImpl implementation : kPassedOver) find(implementation);
  }
}

bool CollectiveOperation::Is(CollectiveOp op, const GpuGroup& group,
                             int at_once, const CollectivePaths& paths) const {
  return op_ == op && group_ == group && at_once_ == at_once && paths_ == paths;
}

bool CollectiveOperation::Measured() const {
  return std::any_of(curves_.begin(), curves_.end(), [](const auto& launches) {
    return std::any_of(launches.begin(), launches.end(),
                       [](const Curves& curves) {
                         return curves[0] != nullptr || curves[1] != nullptr;
                       });
  });
}

size_t CollectiveOperation::Wanted(double bytes) const {
  size_t i = 0;
  while (i + 1 < paths_.size() && bytes > paths_[i].max_bytes) ++i;
  return i;
}

CollectiveOperation::Choice CollectiveOperation::Read(
    CollectiveImpl implementation, const Argument& argument,
    absl::string_view note) const {
  const Launch other =
      argument.launch == Launch::kGraph ? Launch::kEager : Launch::kGraph;
  for (Launch launch : {argument.launch, other}) {
    for (const Profile::KeyedCurve* curve : CurvesOf(implementation, launch)) {
      if (curve == nullptr) continue;
      std::optional<Estimate> at = curve->second.At(argument.size);
      if (!at.has_value()) continue;
      const bool meant = launch == argument.launch || !note.empty();
      return {.estimate = std::move(at),
              .curve = curve,
              .note = meant ? note : kOtherLaunch};
    }
  }
  return {};
}

CollectiveOperation::Choice CollectiveOperation::Choose(
    const Argument& argument) const {
  const CollectivePath& path = paths_[Wanted(argument.size)];
  Choice choice = Read(path.implementation, argument, {});
  if (choice.estimate.has_value()) return choice;
  if (path.kernel != CollectiveKernel::kLibrary) {
    choice = Read(*OfSameKind(path.kernel), argument, kOursOfTheKind);
    if (choice.estimate.has_value()) return choice;
    for (CollectiveImpl implementation : kPassedOver) {
      Choice bound = Read(implementation, argument, kPassedOverFor);
      if (!bound.estimate.has_value()) continue;
      if (!choice.estimate.has_value() ||
          bound.estimate->seconds < choice.estimate->seconds) {
        choice = std::move(bound);
      }
    }
    if (choice.estimate.has_value()) {
      Estimate& estimate = *choice.estimate;
      estimate.relative_sigma =
          Hypot(estimate.relative_sigma, kPassedOverSigma);
      estimate.standing = Worse(estimate.standing, Standing::kExtrapolated);
      choice.upper_bound = true;
      return choice;
    }
  }
  for (const CollectivePath& other : paths_) {
    choice = Read(other.implementation, argument, kOtherPath);
    if (choice.estimate.has_value()) return choice;
  }
  return {};
}

Price CollectiveOperation::Evaluate(const Argument& argument) const {
  const Choice choice = Choose(argument);
  if (!choice.estimate.has_value()) return {};
  Price price = ToPrice(*choice.estimate, choice.note);
  price.upper_bound = choice.upper_bound;
  price.groups = choice.curve->first.concurrent_groups;
  price.of_any_group = choice.curve->first.group.members.empty();
  return price;
}

std::string CollectiveOperation::Source(const Argument& argument) const {
  const Choice choice = Choose(argument);
  return choice.curve == nullptr ? "" : ToString(choice.curve->first);
}

std::vector<std::string> CollectiveOperation::Missing(
    const Argument& argument) const {
  // The last path is what a node can always measure.
  return {ToString(MeasurementKey(
      CollectiveKey{.op = op_,
                    .group = {.size = group_.size},
                    .implementation = paths_.back().implementation,
                    .launch = argument.launch,
                    .size_bytes = CeilSize(argument.size)}))};
}

ExchangeOperation::ExchangeOperation(const Profile& profile,
                                     const ExchangeUse& use)
    : use_(use),
      dispatch_(profile.FindExchange(Key(ExchangeStage::kDispatch))),
      combine_(profile.FindExchange(Key(ExchangeStage::kCombine))) {}

ExchangeCurveKey ExchangeOperation::Key(ExchangeStage stage) const {
  return {.implementation = use_.implementation,
          .stage = stage,
          .group = {.size = use_.group_size},
          .hidden_size = use_.hidden_size,
          .num_experts = use_.num_experts,
          .experts_per_token = use_.experts_per_token};
}

bool ExchangeOperation::Is(const ExchangeUse& use) const {
  return use_.implementation == use.implementation &&
         use_.group_size == use.group_size &&
         use_.hidden_size == use.hidden_size &&
         use_.num_experts == use.num_experts &&
         use_.experts_per_token == use.experts_per_token &&
         use_.dispatch_ratio == use.dispatch_ratio;
}

Price ExchangeOperation::Evaluate(const Argument& argument) const {
  Price price{.known = true, .upper_bound = use_.dispatch_ratio > 1};
  for (const Curve* curve : {dispatch_, combine_}) {
    if (curve == nullptr) return {};
    const std::optional<Estimate> at = curve->At(argument.size);
    if (!at.has_value()) return {};
    price.seconds +=
        at->seconds * (curve == dispatch_ ? use_.dispatch_ratio : 1);
    price.relative_sigma = std::max(price.relative_sigma, at->relative_sigma);
    price.standing = Worse(price.standing, at->standing);
  }
  return price;
}

std::string ExchangeOperation::Source(const Argument&) const {
  return ToString(Key(ExchangeStage::kDispatch));
}

std::vector<std::string> ExchangeOperation::Missing(
    const Argument& argument) const {
  std::vector<std::string> missing;
  for (ExchangeStage stage :
       {ExchangeStage::kDispatch, ExchangeStage::kCombine}) {
    const Curve* curve =
        stage == ExchangeStage::kDispatch ? dispatch_ : combine_;
    if (curve != nullptr && curve->At(argument.size).has_value()) continue;
    missing.push_back(
        ToString(MeasurementKey(ExchangeKey{use_.implementation,
                                            stage,
                                            {.size = use_.group_size},
                                            use_.hidden_size,
                                            use_.num_experts,
                                            use_.experts_per_token,
                                            CeilSize(argument.size)})));
  }
  return missing;
}

KernelNodeOperation::KernelNodeOperation(const Profile& profile,
                                         double fused_max_bytes)
    : node_(profile.graph_node()), fused_max_bytes_(fused_max_bytes) {}

Price KernelNodeOperation::Evaluate(const Argument& argument) const {
  if (argument.size <= fused_max_bytes_) return {.known = true};
  if (!node_.has_value()) return {};
  return ToPrice(*node_);
}

std::string KernelNodeOperation::Source(const Argument&) const {
  return ToString(MeasurementKey(LaunchKey{}));
}

std::vector<std::string> KernelNodeOperation::Missing(const Argument&) const {
  return {ToString(MeasurementKey(LaunchKey{}))};
}

}  // namespace fabricwise
