// SPDX-License-Identifier: Apache-2.0
#include "server/model/pricer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/strings/str_cat.h"
#include "server/model/operation.h"
#include "server/model/overlap.h"

namespace fabricwise {
namespace {

constexpr absl::string_view kLinkedOtherwise =
    "measured on GPUs that are linked otherwise";
constexpr absl::string_view kMeasuredAlone =
    "measured with no other group busy at once";
constexpr absl::string_view kHidden =
    "but for one turn hidden behind the other half batch; what the two take "
    "from each other is not measured, and not counted";

double Tokens(const StepLoad& load, TokenBasis basis) {
  switch (basis) {
    case TokenBasis::kRank:
      return load.rank_tokens;
    case TokenBasis::kRankSlice:
      return load.slice_tokens;
    case TokenBasis::kStage:
      return load.stage_tokens;
    case TokenBasis::kOutput:
      return load.output_rows;
  }
  return load.rank_tokens;
}

// What an item asks of its operation.
enum class Asks {
  kTokens,       // tokens of its basis, times `factor`
  kDecode,       // the decoding sequences at their context
  kPrompt,       // the prompt tokens at theirs
  kPerSequence,  // `factor` bytes for each decoding sequence
  kNothing,
};

constexpr std::array kSections = {Section::kEmbedding, Section::kLayers,
                                  Section::kHead, Section::kBoundary};

// How often what stands in a section is waited for in one step of all micro-
// batches. Layers split evenly; the extra ones of an uneven split are on all
// stages but the last.
struct Multiplicity {
  double embedding = 1, layers = 1, head = 1, boundary = 0;

  double Of(Section section) const {
    switch (section) {
      case Section::kEmbedding:
        return embedding;
      case Section::kLayers:
        return layers;
      case Section::kHead:
        return head;
      case Section::kBoundary:
        return boundary;
    }
    return 1;
  }
};

struct SectionTimes {
  double embedding = 0, layers = 0, head = 0, boundary = 0;

  double& Of(Section section) {
    switch (section) {
      case Section::kEmbedding:
        return embedding;
      case Section::kLayers:
        return layers;
      case Section::kHead:
        return head;
      case Section::kBoundary:
        return boundary;
    }
    return layers;
  }
};

}  // namespace

namespace {

// A recipe's use, bound to what prices it.
struct Item {
  Operation* operation = nullptr;
  absl::string_view name;
  Asks asks = Asks::kNothing;
  TokenBasis basis = TokenBasis::kRank;
  double factor = 1;
  double count = 0;
  Section section = Section::kLayers;
  bool communication = false;
  bool exchange = false;          // of expert tokens, by a library
  int groups = 1;                 // of a replica that do it at once
  bool linked_otherwise = false;  // than where curves of any group come from
  absl::string_view note;
  bool upper_bound = false;  // beside what its price is
  std::optional<Launch> only;

  bool Runs(Launch launch) const { return only.value_or(launch) == launch; }

  // The same work, however often.
  bool SameWork(const Item& other) const {
    return operation == other.operation && asks == other.asks &&
           basis == other.basis && factor == other.factor && only == other.only;
  }
};

Argument ArgumentOf(const Item& item, const StepLoad& load, Launch launch) {
  switch (item.asks) {
    case Asks::kTokens:
      return {.size = Tokens(load, item.basis) * item.factor, .launch = launch};
    case Asks::kDecode:
      return {.size = static_cast<double>(load.rank_sequences) *
                      load.context_tokens * item.factor,
              .sequences = static_cast<double>(load.rank_sequences),
              .context = load.context_tokens};
    case Asks::kPrompt:
      return {.size = load.prompt_tokens, .context = load.prompt_context};
    case Asks::kPerSequence:
      return {.size = static_cast<double>(load.rank_sequences) * item.factor};
    case Asks::kNothing:
      break;
  }
  return {};
}

// The same in a step of `load` that is divided into halves: what runs in layers
// sees one of them.
Argument ArgumentInHalves(const Item& item, const StepLoad& load,
                          const StepLoad& half, Launch launch) {
  return ArgumentOf(item, item.section == Section::kLayers ? half : load,
                    launch);
}

// Of some items in one step.
struct Subtotal {
  double seconds = 0, variance = 0;
  Standing standing = Standing::kMeasured;
  bool known = true;
  bool upper_bound = false;

  void Add(const Item& item, const Price& price) {
    const double of_item = price.seconds * item.count;
    const double sigma = of_item * price.relative_sigma;
    seconds += of_item;
    variance += sigma * sigma;
    if (of_item > 0) {
      standing = Worse(standing, price.standing);
      upper_bound |= price.upper_bound || item.upper_bound;
    }
  }
};

// Adds what `item` lacks to `missing`, each measurement once.
void AddMissing(const Item& item, const Argument& argument,
                std::vector<std::string>& missing) {
  if (item.operation->At(argument).known) return;
  for (std::string& one : item.operation->Missing(argument)) {
    if (std::find(missing.begin(), missing.end(), one) == missing.end()) {
      missing.push_back(std::move(one));
    }
  }
}

// Adds `item` to `items`, or its count to the same work there.
void Merge(const Item& item, std::vector<Item>& items) {
  const auto same =
      std::find_if(items.begin(), items.end(),
                   [&](const Item& other) { return other.SameWork(item); });
  if (same != items.end()) {
    same->count += item.count;
    same->upper_bound |= item.upper_bound;
  } else {
    items.push_back(item);
  }
}

// The parts of a step, by what of a load decides them: tokens of a rank, which
// plans of equal tensor parallelism have in common however many ranks there
// are; rows that need logits; sequences and prompts at their contexts; other
// communication; and tokens of all ranks. The first three are a rank's own.
enum Part : size_t {
  kOfTokens,
  kOfRows,
  kOfSequences,
  kCommunication,
  kOfStage
};
static_assert(kOfStage + 1 == kStepParts);
constexpr std::array kParts = {kOfTokens, kOfRows, kOfSequences, kCommunication,
                               kOfStage};
bool IsOwn(Part part) { return part <= kOfSequences; }

Part PartOf(const Item& item) {
  switch (item.asks) {
    case Asks::kDecode:
    case Asks::kPrompt:
    case Asks::kPerSequence:
      return kOfSequences;
    case Asks::kNothing:
      return kOfTokens;
    case Asks::kTokens:
      break;
  }
  if (item.basis == TokenBasis::kOutput) return kOfRows;
  if (item.communication) return kCommunication;
  return item.basis == TokenBasis::kRank ? kOfTokens : kOfStage;
}

// Items that several plans may have in common, priced once for each load, as
// long as that is remembered.
class PartWork {
 public:
  PartWork(Part part, const std::vector<Item>& items)
      : items_(items), part_(part) {}

  bool Is(Part part, const std::vector<Item>& items) const {
    return part == part_ &&
           std::equal(items.begin(), items.end(), items_.begin(), items_.end(),
                      [](const Item& a, const Item& b) {
                        return a.count == b.count && a.SameWork(b) &&
                               a.upper_bound == b.upper_bound;
                      });
  }

  void AddMissing(const StepLoad& load, Launch launch,
                  std::vector<std::string>& missing) const {
    for (const Item& item : items_) {
      if (!item.Runs(launch)) continue;
      fabricwise::AddMissing(item, ArgumentOf(item, load, launch), missing);
    }
  }

  // Good until the next call.
  const Subtotal& At(const StepLoad& load, Launch launch) {
    const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
    switch (part_) {
      case kOfTokens:
        return Find(load, launch, bits(load.rank_tokens));
      case kOfRows:
        return Find(load, launch, bits(load.output_rows));
      case kCommunication:
        return Find(load, launch, bits(load.rank_tokens),
                    bits(load.slice_tokens), bits(load.stage_tokens));
      case kOfStage:
        return Find(load, launch, bits(load.slice_tokens),
                    bits(load.stage_tokens));
      case kOfSequences:
        break;
    }
    return Find(load, launch, static_cast<uint64_t>(load.rank_sequences),
                bits(load.context_tokens), bits(load.prompt_tokens),
                bits(load.prompt_context));
  }

 private:
  static constexpr size_t kMostWords = 4;
  struct Remembered {
    // What of a load decides, bit by bit.
    std::array<uint64_t, kMostWords> key = {~uint64_t{0}};  // of no load
    Launch launch = Launch::kGraph;
    Subtotal subtotal;
  };
  static constexpr int kRememberedBits = 8;  // about what a question asks for

  // The one of `words`, priced now where it is not remembered.
  template <typename... Words>
  const Subtotal& Find(const StepLoad& load, Launch launch, Words... words) {
    // Multiplicative hashing; a collision only forgets.
    constexpr std::array<uint64_t, kMostWords> kOdd = {
        0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
        0x27D4EB2F165667C5};
    if (remembered_.empty()) remembered_.resize(size_t{1} << kRememberedBits);
    uint64_t hash = static_cast<uint64_t>(launch) << 60;
    size_t i = 0;
    ((hash += words * kOdd[i++]), ...);
    Remembered& place = remembered_[hash >> (64 - kRememberedBits)];
    uint64_t differ = 0;
    i = 0;
    ((differ |= words ^ place.key[i++]), ...);
    if (differ != 0 || place.launch != launch) {
      place.key = {words...};
      place.launch = launch;
      Evaluate(load, launch, place.subtotal);
    }
    return place.subtotal;
  }

  // Apart, so that finding stays short.
  ABSL_ATTRIBUTE_NOINLINE void Evaluate(const StepLoad& load, Launch launch,
                                        Subtotal& subtotal) const {
    subtotal = {};
    for (const Item& item : items_) {
      if (!item.Runs(launch)) continue;
      if (item.asks == Asks::kPrompt && load.prompt_tokens <= 0) continue;
      const Price& price = item.operation->At(ArgumentOf(item, load, launch));
      if (!price.known) {
        subtotal.known = false;
        break;
      }
      subtotal.Add(item, price);
    }
  }

  std::vector<Item> items_;
  Part part_;
  std::vector<Remembered> remembered_;  // none before the first price
};

}  // namespace

class Pricer::Bound {
 public:
  std::vector<Item> items;
  // The same for pricing alone. Without a pipeline all stands in kLayers.
  struct Piece {
    Section section;
    Part part;
    PartWork* work;

    friend bool operator==(const Piece&, const Piece&) = default;
  };
  absl::InlinedVector<Piece, 6> own, other;
  int pipeline = 1;
  int64_t num_layers = 1;
  double host_seconds = 0;
  std::optional<TwoBatchOverlap> overlap;
  int attention_tp = 1;

  // Whether a step of `load` runs in two halves.
  bool Divides(const StepLoad& load) const {
    if (!overlap.has_value()) return false;
    const int64_t least = load.prompt_tokens > 0 ? overlap->least_prompt_tokens
                                                 : overlap->least_decode_tokens;
    return load.rank_tokens >= static_cast<double>(least);
  }
};

struct Pricer::State {
  const Profile& profile;
  CostScope scope;
  std::vector<std::unique_ptr<GemmOperation>> gemms;
  std::vector<std::unique_ptr<ExpertsOperation>> experts;
  std::vector<std::unique_ptr<AttentionOperation>> attention;
  std::vector<std::unique_ptr<PromptAttentionOperation>> prompt_attention;
  std::vector<std::unique_ptr<CollectiveOperation>> collectives;
  std::vector<std::unique_ptr<ExchangeOperation>> exchanges;
  std::vector<std::unique_ptr<KernelNodeOperation>> fused;
  std::array<std::vector<std::unique_ptr<PartWork>>, kStepParts> parts;
  RoutingMemo routing;
  MemoryOperation copy;
  KernelNodeOperation node;

  State(const Profile& of, CostScope what, double skew)
      : profile(of),
        scope(what),
        routing(skew),
        copy(of, MemoryOp::kCopy),
        node(of) {}

  // The one of `known` that is of `what`; null: none yet.
  template <typename T, typename... What>
  static T* Find(const std::vector<std::unique_ptr<T>>& known,
                 const What&... what) {
    for (const auto& one : known) {
      if (one->Is(what...)) return one.get();
    }
    return nullptr;
  }

  // The operation of `what`, made when first asked for.
  template <typename T, typename... What>
  T* Intern(std::vector<std::unique_ptr<T>>& known, What&... what) {
    if (T* operation = Find(known, what...)) return operation;
    return known.emplace_back(std::make_unique<T>(profile, what...)).get();
  }

  // What `bound.items` is priced by.
  void Divide(Bound& bound) {
    for (const Part part : kParts) {
      for (const Section section : kSections) {
        chosen.clear();
        for (const Item& item : bound.items) {
          const Section at =
              bound.pipeline == 1 ? Section::kLayers : item.section;
          if (PartOf(item) == part && at == section) Merge(item, chosen);
        }
        if (chosen.empty()) continue;
        PartWork* work = Find(parts[part], part, chosen);
        if (work == nullptr) {
          work = parts[part]
                     .emplace_back(std::make_unique<PartWork>(part, chosen))
                     .get();
        }
        (IsOwn(part) ? bound.own : bound.other)
            .push_back({section, part, work});
      }
    }
  }
  std::vector<Item> chosen;  // in Divide

  void BindCollective(const CollectiveUse& use, const Plan& plan,
                      const Site& site, Bound& bound) {
    const bool across = use.section == Section::kBoundary &&
                        use.steps.front().op == CollectiveOp::kSendRecv;
    const int replica_gpus = plan.pipeline * plan.stage_gpus();
    // All GPUs are in such a group; all but one stage's have a successor.
    const int groups = across ? replica_gpus - plan.stage_gpus()
                              : std::max(1, replica_gpus / use.group_size);
    const int at_once =
        profile.MeasuresContention() ? groups * site.replicas : 1;
    const Site::Group* at = nullptr;
    if (across) {
      at = &site.neighbours;
    } else if (use.group_size == plan.stage_gpus()) {
      at = &site.stage;
    } else if (use.group_size == plan.attention_tp) {
      at = &site.tensor_group;
    }
    GpuGroup group{.size = use.group_size};
    if (at != nullptr) group.members = at->members;
    const auto operation = [&](CollectiveOp op) {
      return Intern(collectives, op, group, at_once, use.paths);
    };
    const auto add = [&](const CollectiveStep& step, absl::string_view note,
                         bool upper_bound) {
      bound.items.push_back(
          {.operation = operation(step.op),
           .name = use.name,
           .asks = Asks::kTokens,
           .basis = step.tokens,
           .factor = step.bytes_per_token,
           .count = use.count,
           .section = use.section,
           .communication = true,
           .groups = groups,
           .linked_otherwise = at != nullptr && at->linked_otherwise,
           .note = note,
           .upper_bound = upper_bound,
           .only = use.only});
    };
    const bool measured = std::all_of(use.steps.begin(), use.steps.end(),
                                      [&](const CollectiveStep& step) {
                                        return operation(step.op)->Measured();
                                      });
    if (!measured && use.stand_in.has_value() &&
        operation(use.stand_in->step.op)->Measured()) {
      add(use.stand_in->step, use.stand_in->note,
          use.upper_bound || use.stand_in->upper_bound);
      return;
    }
    for (const CollectiveStep& step : use.steps) {
      add(step, use.note, use.upper_bound);
    }
  }
};

Pricer::Pricer(const Profile& profile, CostScope scope, double routing_skew)
    : state_(std::make_unique<State>(profile, scope, routing_skew)) {}

Pricer::~Pricer() = default;

std::shared_ptr<const Pricer::Bound> Pricer::Bind(const Recipe& recipe,
                                                  const Site& site) {
  State& state = *state_;
  auto bound = std::make_shared<Bound>();
  constexpr size_t kUsualItems = 24;
  bound->items.reserve(kUsualItems);
  bound->pipeline = recipe.plan.pipeline;
  bound->num_layers = recipe.num_layers;
  for (const CollectiveUse& use : recipe.collectives) {
    state.BindCollective(use, recipe.plan, site, *bound);
  }
  for (const ExchangeUse& use : recipe.exchanges) {
    bound->items.push_back({.operation = state.Intern(state.exchanges, use),
                            .name = use.name,
                            .asks = Asks::kTokens,
                            .basis = use.tokens,
                            .count = use.count,
                            .communication = true,
                            .exchange = true,
                            .note = use.note,
                            .only = use.only});
  }
  if (state.scope == CostScope::kCommunication) {
    state.Divide(*bound);
    return bound;
  }

  bound->host_seconds = recipe.host_seconds;
  // Of collectives alone nothing is known to hide behind.
  bound->overlap = recipe.overlap;
  bound->attention_tp = recipe.plan.attention_tp;
  for (const GemmUse& use : recipe.gemms) {
    bound->items.push_back(
        {.operation = state.Intern(state.gemms, use.format, use.n, use.k),
         .name = use.name,
         .asks = Asks::kTokens,
         .basis = use.rows,
         .factor = use.row_factor,
         .count = use.count,
         .section = use.section});
  }
  for (const AttentionUse& use : recipe.attention) {
    bound->items.push_back({.operation = state.Intern(state.attention, use),
                            .name = use.name,
                            .asks = Asks::kDecode,
                            .factor = use.kv_bytes_per_token,
                            .count = use.count});
    bound->items.push_back(
        {.operation = state.Intern(state.prompt_attention, use),
         .name = "attention of prompts",
         .asks = Asks::kPrompt,
         .count = use.count});
  }
  for (const StateUse& use : recipe.states) {
    // A copy reads and writes; so does an update in place.
    bound->items.push_back({.operation = &state.copy,
                            .name = use.name,
                            .asks = Asks::kPerSequence,
                            .factor = use.bytes_per_sequence / 2,
                            .count = use.count});
  }
  for (const ExpertsUse& use : recipe.experts) {
    bound->items.push_back(
        {.operation = state.Intern(state.experts, use, state.routing),
         .name = "experts",
         .asks = Asks::kTokens,
         .basis = TokenBasis::kStage,
         .count = use.count});
  }
  bound->items.push_back({.operation = &state.node,
                          .name = "small kernels",
                          .count = recipe.small_kernels});
  if (recipe.eager_small_kernels > 0) {
    bound->items.push_back({.operation = &state.node,
                            .name = "small kernels of eager steps",
                            .count = recipe.eager_small_kernels,
                            .only = Launch::kEager});
  }
  if (recipe.fused.count > 0) {
    bound->items.push_back(
        {.operation = state.Intern(state.fused, recipe.fused.max_bytes),
         .name = "norms after long all-reduces",
         .asks = Asks::kTokens,
         .factor = recipe.fused.bytes_per_token,
         .count = recipe.fused.count});
  }
  state.Divide(*bound);
  return bound;
}

bool Pricer::MayBeAnswerable(const Bound& bound, Launch launch) {
  return std::none_of(
      bound.items.begin(), bound.items.end(), [&](const Item& item) {
        // Of sequences and prompts there may be none, which costs nothing.
        const bool always =
            item.asks == Asks::kTokens || item.asks == Asks::kNothing;
        return always && item.Runs(launch) && !item.operation->Measured();
      });
}

Pricer::PartIds Pricer::Parts(const Bound& bound) {
  PartIds ids = {};
  for (const auto* pieces : {&bound.own, &bound.other}) {
    for (const Bound::Piece& piece : *pieces) ids[piece.part] = piece.work;
  }
  return ids;
}

bool Pricer::SameOwnWork(const Bound& a, const Bound& b) {
  return a.own == b.own && a.overlap == b.overlap;
}

namespace {

// A pipeline's timing: what is waited for, how often.
struct Pipeline {
  Multiplicity multiplicity;
  double seconds = 0, slowest_stage = 0, through = 0;
};

Pipeline Time(const SectionTimes& times, int pipeline, int64_t num_layers,
              int64_t micro_batches) {
  Pipeline result;
  if (pipeline == 1) {
    result.seconds = times.embedding + times.layers + times.head;
    result.slowest_stage = result.through = result.seconds;
    return result;
  }
  const auto layers = static_cast<double>(num_layers);
  const int64_t base = num_layers / pipeline;
  const double last_share = static_cast<double>(base) / layers;
  const double other_share =
      static_cast<double>(base + (num_layers % pipeline > 0 ? 1 : 0)) / layers;
  const double first =
      times.layers * other_share + times.embedding + times.boundary;
  const double last = times.layers * last_share + times.head + times.boundary;
  const auto batches = static_cast<double>(micro_batches);
  result.slowest_stage = std::max(first, last);
  result.through = times.embedding + times.layers + times.head +
                   times.boundary * (pipeline - 1);
  const double period = batches * result.slowest_stage;
  if (period >= result.through) {
    const bool first_slowest = first >= last;
    result.multiplicity = {
        .embedding = first_slowest ? batches : 0,
        .layers = batches * (first_slowest ? other_share : last_share),
        .head = first_slowest ? 0 : batches,
        .boundary = batches};
    result.seconds = period;
  } else {
    result.multiplicity = {.boundary = static_cast<double>(pipeline - 1)};
    result.seconds = result.through;
  }
  return result;
}

}  // namespace

namespace {

template <typename Pieces>
void AddPieces(const Pieces& pieces, const StepLoad& load, Launch launch,
               StepSums& sums) {
  for (const auto& [section, part, work] : pieces) {
    const Subtotal& subtotal = work->At(load, launch);
    if (!subtotal.known) {
      sums.known = false;
      return;
    }
    sums.part_seconds[part] += subtotal.seconds;
    sums.seconds[static_cast<size_t>(section)] += subtotal.seconds;
    sums.variances[static_cast<size_t>(section)] += subtotal.variance;
    sums.standing = Worse(sums.standing, subtotal.standing);
    sums.upper_bound |= subtotal.upper_bound;
  }
}

}  // namespace

StepSums Pricer::PriceOwn(const Bound& bound, const StepLoad& load,
                          Launch launch) {
  StepSums sums;
  if (!bound.Divides(load)) AddPieces(bound.own, load, launch, sums);
  return sums;
}

StepPrice Pricer::Price(const Bound& bound, const StepLoad& load, Launch launch,
                        StepSums sums) {
  if (sums.known) AddPieces(bound.other, load, launch, sums);
  if (!sums.known) return {.answerable = false};
  StepPrice result{.standing = sums.standing,
                   .upper_bound = sums.upper_bound,
                   .part_seconds = sums.part_seconds};
  if (bound.pipeline == 1) {
    constexpr auto kAll = static_cast<size_t>(Section::kLayers);
    result.seconds = sums.seconds[kAll] + bound.host_seconds;
    result.sigma_seconds = std::sqrt(sums.variances[kAll]);
    result.slowest_stage_seconds = result.through_seconds = result.seconds;
    return result;
  }
  SectionTimes times;
  for (const Section section : kSections) {
    times.Of(section) = sums.seconds[static_cast<size_t>(section)];
  }
  const Pipeline pipeline =
      Time(times, bound.pipeline, bound.num_layers, load.micro_batches);
  double variance = 0;
  for (const Section section : kSections) {
    const double waited = pipeline.multiplicity.Of(section);
    variance += sums.variances[static_cast<size_t>(section)] * waited * waited;
  }
  result.sigma_seconds = std::sqrt(variance);
  result.seconds = pipeline.seconds + bound.host_seconds;
  result.slowest_stage_seconds = pipeline.slowest_stage + bound.host_seconds;
  result.through_seconds = pipeline.through + bound.host_seconds;
  return result;
}

namespace {

// `count` occurrences of an item that cost `price` each.
Term TermOf(const Item& item, const Argument& argument, const Price& price,
            double count, absl::string_view note) {
  return {.name = std::string(item.name),
          .seconds = price.seconds * count,
          .count = count,
          .standing = price.standing,
          .source = item.operation->Source(argument),
          .size = argument.size,
          .relative_sigma = price.relative_sigma,
          .upper_bound = price.upper_bound || item.upper_bound,
          .note = std::string(note),
          .communication = item.communication};
}

Term HostTerm(double seconds) {
  return {.name = "host",
          .seconds = seconds,
          .count = 1,
          .stated = true,
          .source = "stated"};
}

}  // namespace

StepPrice Pricer::PriceHalves(const Bound& bound, const StepLoad& load,
                              Launch launch, std::vector<Term>* explained) {
  const StepLoad half = HalfOf(load, bound.attention_tp);
  const auto argument_of = [&](const Item& item) {
    return ArgumentInHalves(item, load, half, launch);
  };
  // Of one half its exchanges and its other work in layers, and what runs once.
  Subtotal exchange, rest, whole;
  double exchanges = 0;
  const auto subtotal_of = [&](const Item& item) -> Subtotal& {
    if (item.section != Section::kLayers) return whole;
    return item.exchange ? exchange : rest;
  };
  StepPrice result;
  for (const Item& item : bound.items) {
    if (!item.Runs(launch)) continue;
    const fabricwise::Price& price = item.operation->At(argument_of(item));
    if (!price.known) {
      result.answerable = false;
      return result;
    }
    subtotal_of(item).Add(item, price);
    if (item.exchange) exchanges += item.count;
  }
  const Overlapped layers = Overlap(exchange.seconds, rest.seconds, exchanges);
  result.seconds = layers.seconds + whole.seconds + bound.host_seconds;
  result.slowest_stage_seconds = result.through_seconds = result.seconds;
  constexpr double kHalves = 2;
  const double exchange_counts = kHalves * layers.exchange_shown;
  const double rest_counts = kHalves * layers.rest_shown;
  // Both halves read the same curves: their errors go together.
  result.sigma_seconds =
      std::sqrt(exchange.variance * exchange_counts * exchange_counts +
                rest.variance * rest_counts * rest_counts + whole.variance);
  for (const Subtotal* subtotal : {&exchange, &rest, &whole}) {
    result.standing = Worse(result.standing, subtotal->standing);
    result.upper_bound |= subtotal->upper_bound;
  }
  // That the two do not slow each other down is beyond what was measured.
  result.standing = Worse(result.standing, Standing::kExtrapolated);
  if (explained == nullptr) return result;

  for (const Item& item : bound.items) {
    if (!item.Runs(launch)) continue;
    const Argument argument = argument_of(item);
    const fabricwise::Price& price = item.operation->At(argument);
    double count = item.count, shown = 1;
    if (item.section == Section::kLayers) {
      count *= kHalves;
      shown = item.exchange ? layers.exchange_shown : layers.rest_shown;
    }
    if (price.seconds * count == 0) continue;
    absl::string_view note = item.note.empty() ? price.note : item.note;
    Term term = TermOf(item, argument, price, count, note);
    if (shown < 1) {
      term.seconds *= shown;
      term.standing = Worse(term.standing, Standing::kExtrapolated);
      term.note = absl::StrCat(kHidden, note.empty() ? "" : "; ", note);
    }
    explained->push_back(std::move(term));
  }
  if (bound.host_seconds > 0) {
    explained->push_back(HostTerm(bound.host_seconds));
  }
  return result;
}

StepPrice Pricer::Price(const Bound& bound, const StepLoad& load,
                        Launch launch) {
  return Price(bound, load, launch, PriceOwn(bound, load, launch));
}

std::vector<std::string> Pricer::Missing(const Bound& bound,
                                         const StepLoad& load, Launch launch) {
  std::vector<std::string> missing;
  if (bound.Divides(load)) {
    const StepLoad half = HalfOf(load, bound.attention_tp);
    for (const Item& item : bound.items) {
      if (!item.Runs(launch)) continue;
      AddMissing(item, ArgumentInHalves(item, load, half, launch), missing);
    }
    return missing;
  }
  for (const auto* pieces : {&bound.own, &bound.other}) {
    for (const Bound::Piece& piece : *pieces) {
      if (piece.work->At(load, launch).known) continue;
      piece.work->AddMissing(load, launch, missing);
    }
  }
  return missing;
}

ExplainedPrice Pricer::Explain(const Bound& bound, const StepLoad& load,
                               Launch launch, int replicas) {
  if (bound.Divides(load)) {
    ExplainedPrice halves;
    halves.price = PriceHalves(bound, load, launch, &halves.terms);
    if (!halves.price.answerable) halves.missing = Missing(bound, load, launch);
    return halves;
  }
  ExplainedPrice result{.price = Price(bound, load, launch)};
  if (!result.price.answerable) {
    result.missing = Missing(bound, load, launch);
    return result;
  }
  SectionTimes times;
  for (const Item& item : bound.items) {
    if (!item.Runs(launch)) continue;
    times.Of(item.section) +=
        item.operation->At(ArgumentOf(item, load, launch)).seconds * item.count;
  }
  const Multiplicity multiplicity =
      Time(times, bound.pipeline, bound.num_layers, load.micro_batches)
          .multiplicity;
  for (const Item& item : bound.items) {
    if (!item.Runs(launch)) continue;
    const Argument argument = ArgumentOf(item, load, launch);
    const fabricwise::Price& price = item.operation->At(argument);
    const double count = item.count * multiplicity.Of(item.section);
    if (price.seconds * count == 0) continue;
    absl::string_view note = item.note.empty() ? price.note : item.note;
    if (note.empty() && price.groups > 0) {
      if (price.of_any_group && item.linked_otherwise) {
        note = kLinkedOtherwise;
      } else if (item.groups * replicas > price.groups) {
        note = kMeasuredAlone;
      }
    }
    result.terms.push_back(TermOf(item, argument, price, count, note));
  }
  if (bound.host_seconds > 0) {
    result.terms.push_back(HostTerm(bound.host_seconds));
  }
  return result;
}

}  // namespace fabricwise
