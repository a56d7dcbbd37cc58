// SPDX-License-Identifier: Apache-2.0
#include "server/profile/tables.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace fabricwise {
namespace {

// Spreads from predicting what was measured on a node of two H200 but kept
// from the tables (tests/unit/profile/tables_held_out_test.cc prints them).
//
// One sigma of a product between measured n and k: every second n and k left
// out.
constexpr double kGridSigma = 0.09;

// One sigma of a product beyond the largest or below the smallest n or k.
constexpr double kBeyondGridSigma = 0.15;

// One sigma of routed experts taken from another shard at equal work: shard
// against shard, and model against model.
constexpr double kOtherShardSigma = 0.11;

// One sigma of routed experts in the middle between runs a factor of 16 apart,
// every second number of tokens left out; it goes with the logarithm of the
// factor.
constexpr double kBetweenRunsSigma = 0.075;
constexpr double kBetweenRunsFactor = 16;

// One sigma of routed experts below the first run by a factor of 4 and more.
constexpr double kBelowRunsSigma = 0.25;
constexpr double kBelowRunsFactor = 4;

// One sigma of attention scaled from the nearest measured shape.
constexpr double kOtherAttentionSigma = 0.2;

// One sigma of attention of prompts between measured sizes: on an H200
// (docs/measured/h200-2026-11-30) every second number of tokens, or of what
// they see, left out.
constexpr double kPromptGridSigma = 0.1;

double Hypot(double a, double b) { return std::sqrt(a * a + b * b); }

// Index i with v[i] <= x < v[i + 1], clamped to [0, size - 2]; size >= 2.
template <typename T>
size_t SegmentOf(const std::vector<T>& v, double x) {
  const auto above =
      std::upper_bound(v.begin(), v.end(), x, [](double value, T element) {
        return value < static_cast<double>(element);
      });
  const auto index = static_cast<size_t>(above - v.begin());
  return std::clamp<size_t>(index, 1, v.size() - 1) - 1;
}

// Where `x` lies on an ascending axis: the two neighbours, the weight of the
// upper one in log space, and by how much x is beyond the last (>= 1).
struct Place {
  int64_t low = 0, high = 0;
  double high_weight = 0;
  double beyond = 1;
  bool exact = true;
};

Place Locate(const std::vector<int64_t>& axis, double x) {
  const auto first = static_cast<double>(axis.front());
  const auto last = static_cast<double>(axis.back());
  if (x <= first) return {axis.front(), axis.front(), 0, 1, x == first};
  if (x >= last) return {axis.back(), axis.back(), 0, x / last, x == last};
  const size_t i = SegmentOf(axis, x);
  const auto low = static_cast<double>(axis[i]);
  const auto high = static_cast<double>(axis[i + 1]);
  const double weight = std::log(x / low) / std::log(high / low);
  return {axis[i], axis[i + 1], weight, 1, x == low};
}

}  // namespace

GemmTable GemmTable::Build(const std::vector<Measurement>& measurements) {
  using Weight = std::tuple<NumberFormat, int64_t, int64_t>;
  struct Draft {
    Origin origin = Origin::kReference;
    std::vector<CurvePoint> points;
  };
  std::map<Weight, Draft> drafts;
  for (const Measurement& measurement : measurements) {
    const auto* key = std::get_if<GemmKey>(&measurement.key);
    if (key == nullptr) continue;
    Draft& draft = drafts[{key->format, key->n, key->k}];
    // A curve that has any point of this node keeps none of another's.
    if (measurement.origin != draft.origin) {
      if (measurement.origin == Origin::kReference) continue;
      draft = {.origin = Origin::kMeasured};
    }
    draft.points.push_back({static_cast<double>(key->m),
                            measurement.statistics.median_seconds,
                            RelativeSigma(measurement.statistics)});
  }
  GemmTable table;
  for (auto& [weight, draft] : drafts) {
    const auto& [format, n, k] = weight;
    auto curve = Curve::Create(std::move(draft.points), draft.origin);
    if (!curve.ok()) continue;  // Profile::Build has refused such points
    Grid& grid = table.grids_[format];
    grid.n.push_back(n);
    grid.k.push_back(k);
    grid.curve.emplace(std::pair(n, k), *std::move(curve));
  }
  for (auto& [format, grid] : table.grids_) {
    for (auto* axis : {&grid.n, &grid.k}) {
      std::sort(axis->begin(), axis->end());
      axis->erase(std::unique(axis->begin(), axis->end()), axis->end());
    }
  }
  return table;
}

std::optional<GemmTable::Prepared> GemmTable::ForWeight(NumberFormat format,
                                                        double n,
                                                        double k) const {
  const auto found = grids_.find(format);
  if (found == grids_.end()) return std::nullopt;
  const Grid& grid = found->second;
  Prepared prepared;

  const Place at_n = Locate(grid.n, n), at_k = Locate(grid.k, k);
  const std::array<std::tuple<int64_t, int64_t, double>, 4> corners = {{
      {at_n.low, at_k.low, (1 - at_n.high_weight) * (1 - at_k.high_weight)},
      {at_n.low, at_k.high, (1 - at_n.high_weight) * at_k.high_weight},
      {at_n.high, at_k.low, at_n.high_weight * (1 - at_k.high_weight)},
      {at_n.high, at_k.high, at_n.high_weight * at_k.high_weight},
  }};
  bool complete = true;
  for (size_t i = 0; i < corners.size(); ++i) {
    const auto& [corner_n, corner_k, weight] = corners[i];
    if (weight == 0) continue;
    const auto curve = grid.curve.find({corner_n, corner_k});
    complete = complete && curve != grid.curve.end();
    if (!complete) break;
    prepared.corner_[i] = &curve->second;
    prepared.weight_[i] = weight;
  }
  prepared.log_scale_ = std::log(at_n.beyond * at_k.beyond);
  const bool outside = at_n.beyond > 1 || at_k.beyond > 1 ||
                       n < static_cast<double>(grid.n.front()) ||
                       k < static_cast<double>(grid.k.front());
  if (!complete) {
    // The grid has holes: the measured weight nearest in n and k, in
    // proportion to the work.
    const auto distance = [&](const auto& entry) {
      return std::abs(std::log(n / static_cast<double>(entry.first.first))) +
             std::abs(std::log(k / static_cast<double>(entry.first.second)));
    };
    const auto nearest = std::min_element(grid.curve.begin(), grid.curve.end(),
                                          [&](const auto& a, const auto& b) {
                                            return distance(a) < distance(b);
                                          });
    prepared.corner_ = {&nearest->second, nullptr, nullptr, nullptr};
    prepared.weight_ = {1, 0, 0, 0};
    prepared.log_scale_ =
        std::max(0.0, std::log(n / static_cast<double>(nearest->first.first) *
                               k / static_cast<double>(nearest->first.second)));
    prepared.standing_ = Standing::kExtrapolated;
    prepared.sigma_ = kBeyondGridSigma;
  } else if (outside) {
    prepared.standing_ = Standing::kExtrapolated;
    prepared.sigma_ = kBeyondGridSigma;
  } else if (at_n.exact && at_k.exact) {
    prepared.standing_ = Standing::kMeasured;
  } else {
    prepared.standing_ = Standing::kInterpolated;
    prepared.sigma_ = kGridSigma;
  }
  std::vector<const Curve*> curves;
  std::vector<double> weights;
  for (size_t i = 0; i < prepared.corner_.size(); ++i) {
    if (prepared.weight_[i] == 0) continue;
    curves.push_back(prepared.corner_[i]);
    weights.push_back(prepared.weight_[i]);
  }
  if (curves.size() > 1 || prepared.log_scale_ != 0) {
    prepared.blend_ =
        Curve::Blend(curves, weights, std::exp(prepared.log_scale_));
  }
  return prepared;
}

std::optional<Estimate> GemmTable::Prepared::At(double m) const {
  const bool exact = weight_[0] == 1 && log_scale_ == 0;
  if (exact || blend_.has_value()) {
    std::optional<Estimate> at = exact ? corner_[0]->At(m) : blend_->At(m);
    if (!at.has_value()) return std::nullopt;
    at->standing = Worse(at->standing, standing_);
    at->relative_sigma = Hypot(at->relative_sigma, sigma_);
    return at;
  }
  Estimate result{.seconds = 0, .relative_sigma = 0, .standing = standing_};
  double log_seconds = log_scale_;
  for (size_t i = 0; i < corner_.size(); ++i) {
    if (corner_[i] == nullptr) continue;
    const std::optional<Estimate> at = corner_[i]->At(m);
    if (!at.has_value()) return std::nullopt;
    log_seconds += weight_[i] * std::log(at->seconds);
    result.relative_sigma = std::max(result.relative_sigma, at->relative_sigma);
    result.standing = Worse(result.standing, at->standing);
  }
  result.seconds = std::exp(log_seconds);
  result.relative_sigma = Hypot(result.relative_sigma, sigma_);
  return result;
}

namespace {

// Weight values of one expert on the shard.
double ExpertSize(const ExpertShard& shard) {
  return shard.hidden_size * shard.intermediate_local;
}

bool SameShard(const ExpertShard& a, const ExpertShard& b) {
  return a.format == b.format && a.hidden_size == b.hidden_size &&
         a.intermediate_local == b.intermediate_local &&
         a.experts_local == b.experts_local;
}

double BelowSigma(double log_distance) {
  return kBelowRunsSigma *
         std::min(1.0, log_distance / std::log(kBelowRunsFactor));
}

// Expected distinct experts of `experts`, after `tokens` choose `top_k` each
// of all `num_experts` alike.
double ExpectedHit(double experts, double num_experts, double top_k,
                   double tokens) {
  return experts * -std::expm1(tokens * std::log1p(-top_k / num_experts));
}

}  // namespace

ExpertsTable ExpertsTable::Build(const std::vector<Measurement>& measurements) {
  ExpertsTable table;
  for (const Measurement& measurement : measurements) {
    const auto* key = std::get_if<ExpertsKey>(&measurement.key);
    if (key == nullptr) continue;
    const auto experts = static_cast<double>(key->num_experts);
    const auto top_k = static_cast<double>(key->experts_per_token);
    const auto ranks = static_cast<double>(key->expert_parallel);
    const auto tokens = static_cast<double>(key->tokens);
    const ExpertShard shard{
        .format = key->format,
        .hidden_size = static_cast<double>(key->hidden_size),
        .intermediate_local = static_cast<double>(key->intermediate_size) /
                              static_cast<double>(key->moe_tp),
        .experts_local = experts / ranks};
    const ExpertsObserved& seen = measurement.experts;
    const double rows = seen.rows_local > 0
                            ? static_cast<double>(seen.rows_local)
                            : tokens * top_k / ranks;
    const double hit =
        seen.experts_hit > 0
            ? static_cast<double>(seen.experts_hit)
            : ExpectedHit(shard.experts_local, experts, top_k, tokens);
    auto series = std::find_if(table.series_.begin(), table.series_.end(),
                               [&](const Series& other) {
                                 return SameShard(other.shard, shard) &&
                                        other.origin == measurement.origin;
                               });
    if (series == table.series_.end()) {
      table.series_.push_back({.shard = shard, .origin = measurement.origin});
      series = table.series_.end() - 1;
    }
    series->runs.push_back({std::log(rows), std::log(hit),
                            std::log(measurement.statistics.median_seconds),
                            RelativeSigma(measurement.statistics)});
  }
  for (Series& series : table.series_) {
    // Of runs with equal rows the first stays: they differ in routing only.
    std::stable_sort(series.runs.begin(), series.runs.end(),
                     [](const Series::Run& a, const Series::Run& b) {
                       return a.log_rows < b.log_rows;
                     });
    series.runs.erase(
        std::unique(series.runs.begin(), series.runs.end(),
                    [](const Series::Run& a, const Series::Run& b) {
                      return a.log_rows == b.log_rows;
                    }),
        series.runs.end());
  }
  return table;
}

bool ExpertsTable::Has(const WeightFormat& format) const {
  return std::any_of(series_.begin(), series_.end(), [&](const Series& series) {
    return series.shard.format == format;
  });
}

std::optional<ExpertsTable::Prepared> ExpertsTable::For(
    const ExpertShard& shard) const {
  const Series* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Series& series : series_) {
    if (series.shard.format != shard.format) continue;
    double distance =
        std::abs(std::log(ExpertSize(shard) / ExpertSize(series.shard))) +
        std::abs(std::log(shard.experts_local / series.shard.experts_local));
    // A measured run before one from another node, where both fit alike.
    if (series.origin == Origin::kReference) distance += 1e-9;
    if (distance < least) {
      least = distance;
      nearest = &series;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  Prepared prepared;
  prepared.series_ = nearest;
  prepared.experts_local_ = shard.experts_local;
  prepared.work_ = ExpertSize(shard) / ExpertSize(nearest->shard);
  const bool exact = SameShard(nearest->shard, shard);
  prepared.standing_ = nearest->origin == Origin::kReference
                           ? Standing::kReference
                       : exact ? Standing::kInterpolated
                               : Standing::kExtrapolated;
  prepared.sigma_ = exact ? 0 : kOtherShardSigma;
  return prepared;
}

std::optional<Estimate> ExpertsTable::Prepared::At(double rows,
                                                   double experts_hit) const {
  if (rows <= 0) return Estimate{.standing = standing_};
  const std::vector<Series::Run>& runs = series_->runs;
  // The same weight bytes and the same operations on the measured shard. What
  // exceeds all of its experts is added in proportion.
  const double most = series_->shard.experts_local;
  const double hit = std::max(experts_hit * work_, 1e-9);
  const double excess = std::max(1.0, hit / most);
  const double log_rows = std::log(rows * work_ / excess);
  const double log_hit = std::log(std::min(hit, most));

  Estimate result{.relative_sigma = sigma_, .standing = standing_};
  if (runs.size() == 1 || log_rows <= runs.front().log_rows) {
    // No less than the smallest run: the kernels' own cost.
    const Series::Run& run = runs.front();
    if (runs.size() == 1 && log_rows > run.log_rows) return std::nullopt;
    // A load a little below the first run costs in proportion to the experts
    // that it reads, as between the first two; the floor is at the first run's
    // time for one expert.
    double log_seconds = run.log_seconds;
    if (runs.size() > 1 && runs[1].log_hit > run.log_hit) {
      const double slope = std::clamp((runs[1].log_seconds - run.log_seconds) /
                                          (runs[1].log_hit - run.log_hit),
                                      0.0, 1.0);
      log_seconds += slope * std::clamp(log_hit - run.log_hit, -run.log_hit,
                                        runs[1].log_hit - run.log_hit);
    }
    result.seconds = excess * std::exp(log_seconds);
    result.relative_sigma = Hypot(sigma_, run.relative_sigma);
    if (log_rows < run.log_rows) {
      result.relative_sigma =
          Hypot(result.relative_sigma, BelowSigma(run.log_rows - log_rows));
      result.standing = Worse(standing_, Standing::kExtrapolated);
    }
    return result;
  }
  size_t i = 0;
  while (i + 2 < runs.size() && runs[i + 1].log_rows <= log_rows) ++i;
  const Series::Run &low = runs[i], &high = runs[i + 1];
  double weight = (log_rows - low.log_rows) / (high.log_rows - low.log_rows);
  const double slope = std::clamp(
      (high.log_seconds - low.log_seconds) / (high.log_rows - low.log_rows),
      0.0, 1.0);
  double beyond = 0, spread = 0;
  if (weight > 1) {
    // Beyond the largest run the rise is between that of the last runs, where
    // reading weights may still hide the operations, and one in proportion:
    // the middle, and one sigma of a uniform spread between the two.
    const double distance = log_rows - high.log_rows;
    if (distance > std::log(Curve::kReachAbove * Curve::kReachAbove)) {
      return std::nullopt;
    }
    weight = 1;
    beyond = distance * (1 + slope) / 2;
    spread = distance * (1 - slope) / std::sqrt(12.0);
    result.standing = Worse(result.standing, Standing::kExtrapolated);
  } else {
    spread = kBetweenRunsSigma * 4 * weight * (1 - weight) *
             (high.log_rows - low.log_rows) / std::log(kBetweenRunsFactor);
  }
  const double path_hit = low.log_hit + weight * (high.log_hit - low.log_hit);
  const double path_seconds =
      low.log_seconds + weight * (high.log_seconds - low.log_seconds);
  // Beside the runs' own path, time follows the experts hit as far as it did
  // from the one run to the other; where the same are hit by both, as far as
  // it did not follow the rows: what does not go to operations goes to weights.
  constexpr double kHitChanges = 0.05;  // 5 %: else the slope is noise
  const double hit_change = high.log_hit - low.log_hit;
  const double elasticity =
      hit_change > kHitChanges
          ? std::clamp((high.log_seconds - low.log_seconds) / hit_change, 0.0,
                       1.0)
          : 1 - slope;
  result.seconds = excess * std::exp(path_seconds + beyond +
                                     elasticity * (log_hit - path_hit));
  result.relative_sigma = Hypot(
      Hypot(sigma_, std::max(low.relative_sigma, high.relative_sigma)), spread);
  return result;
}

PromptWork PromptWorkOf(const AttentionKey& key) {
  const auto queries = static_cast<double>(key.query_tokens);
  return {.tokens = static_cast<double>(key.batch) * queries,
          .seen = static_cast<double>(key.context_tokens) - queries / 2};
}

AttentionKey PromptKey(const AttentionKey& heads, const PromptWork& work) {
  AttentionKey key = heads;
  const double whole = 2 * work.seen;
  key.batch = static_cast<int64_t>(std::ceil(work.tokens / whole));
  key.query_tokens = std::max<int64_t>(
      2, std::llround(work.tokens / static_cast<double>(key.batch)));
  key.context_tokens = std::max<int64_t>(
      key.query_tokens,
      std::llround(work.seen + static_cast<double>(key.query_tokens) / 2));
  return key;
}

namespace {

AttentionKey WithoutSizes(AttentionKey key) {
  key.batch = key.query_tokens = key.context_tokens = 0;
  return key;
}

// Query heads of a KV head: products for each value that is read.
double HeadGroup(const AttentionKey& key) {
  return static_cast<double>(key.q_heads) / static_cast<double>(key.kv_heads);
}

// Of the logarithms.
double Apart(double a, double b) { return std::abs(std::log(a / b)); }

}  // namespace

AttentionTable AttentionTable::Build(
    const std::vector<Measurement>& measurements) {
  AttentionTable table;
  for (const Measurement& measurement : measurements) {
    const auto* key = std::get_if<AttentionKey>(&measurement.key);
    if (key == nullptr) continue;
    const double seconds = measurement.statistics.median_seconds;
    const double sigma = RelativeSigma(measurement.statistics);
    if (key->query_tokens == 1) {
      table.runs_.push_back({*key, seconds, sigma, measurement.origin});
      continue;
    }
    const AttentionKey heads = WithoutSizes(*key);
    auto prompts = std::find_if(
        table.prompts_.begin(), table.prompts_.end(), [&](const Prompts& of) {
          return of.heads == heads && of.origin == measurement.origin;
        });
    if (prompts == table.prompts_.end()) {
      table.prompts_.push_back({.heads = heads, .origin = measurement.origin});
      prompts = table.prompts_.end() - 1;
    }
    const PromptWork work = PromptWorkOf(*key);
    prompts->runs[work.tokens][work.seen] = {seconds, sigma};
  }
  return table;
}

namespace {

// KV values read: what decode attention is made of.
double DecodeWork(const AttentionKey& key) {
  return static_cast<double>(key.batch) *
         static_cast<double>(key.context_tokens) *
         static_cast<double>(key.kv_heads) * static_cast<double>(key.head_dim);
}

}  // namespace

std::optional<Estimate> AttentionTable::At(const AttentionKey& key) const {
  if (key.query_tokens > 1) return AtPrompts(key, PromptWorkOf(key));
  const Run* nearest = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const Run& run : runs_) {
    if (run.key.latent != key.latent || run.key.kv_format != key.kv_format) {
      continue;
    }
    if (run.key == key) {
      nearest = &run;
      break;
    }
    const double apart = Apart(DecodeWork(key), DecodeWork(run.key));
    if (apart > std::log(Curve::kReachAbove)) continue;
    const double distance = apart + Apart(HeadGroup(key), HeadGroup(run.key));
    if (distance < least) {
      least = distance;
      nearest = &run;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  const bool exact = nearest->key == key;
  return Estimate{
      .seconds = nearest->seconds * DecodeWork(key) / DecodeWork(nearest->key),
      .relative_sigma =
          exact ? nearest->relative_sigma
                : Hypot(nearest->relative_sigma, kOtherAttentionSigma),
      .standing = nearest->origin == Origin::kReference ? Standing::kReference
                  : exact                               ? Standing::kMeasured
                          : Standing::kExtrapolated};
}

namespace {

// Where `x` lies among the keys of a map: the neighbours, the weight of the
// upper one in log space; beyond the ends the end.
template <typename Value>
struct Between {
  const std::pair<const double, Value>* low = nullptr;
  const std::pair<const double, Value>* high = nullptr;
  double high_weight = 0;
  double beyond = 1;  // x over the largest, at least 1
  Standing standing = Standing::kMeasured;
};

// nullopt: further above the largest than a curve reaches.
template <typename Value>
std::optional<Between<Value>> Find(const std::map<double, Value>& points,
                                   double x) {
  const auto above = points.lower_bound(x);
  if (above == points.end()) {
    const auto& last = *points.rbegin();
    const double beyond = x / last.first;
    if (beyond > Curve::kReachAbove) return std::nullopt;
    return Between<Value>{&last, &last, 0, beyond, Standing::kExtrapolated};
  }
  if (above->first == x) return Between<Value>{&*above, &*above};
  if (above == points.begin()) {
    return Between<Value>{&*above, &*above, 0, 1, Standing::kExtrapolated};
  }
  const auto below = std::prev(above);
  const double weight =
      std::log(x / below->first) / std::log(above->first / below->first);
  return Between<Value>{&*below, &*above, weight, 1, Standing::kInterpolated};
}

}  // namespace

std::optional<Estimate> AttentionTable::Read(const Prompts& prompts,
                                             const PromptWork& work) {
  const auto rows = Find(prompts.runs, work.tokens);
  if (!rows.has_value()) return std::nullopt;
  Estimate result{.standing = rows->standing};
  double log_seconds = std::log(rows->beyond);
  for (const auto& [row, weight] : {std::pair(rows->low, 1 - rows->high_weight),
                                    std::pair(rows->high, rows->high_weight)}) {
    if (weight == 0) continue;
    const auto at = Find(row->second, work.seen);
    if (!at.has_value()) return std::nullopt;
    const Prompts::Point &low = at->low->second, &high = at->high->second;
    log_seconds += weight * (std::log(at->beyond) +
                             (1 - at->high_weight) * std::log(low.seconds) +
                             at->high_weight * std::log(high.seconds));
    result.relative_sigma = std::max(
        {result.relative_sigma, low.relative_sigma, high.relative_sigma});
    result.standing = Worse(result.standing, at->standing);
  }
  if (result.standing != Standing::kMeasured) {
    result.relative_sigma = Hypot(result.relative_sigma, kPromptGridSigma);
  }
  result.seconds = std::exp(log_seconds);
  return result;
}

std::optional<Estimate> AttentionTable::AtPrompts(
    const AttentionKey& heads, const PromptWork& work) const {
  const AttentionKey asked = WithoutSizes(heads);
  const auto width = [](const AttentionKey& of) {
    return static_cast<double>(of.head_dim);
  };
  const auto count = [](const AttentionKey& of) {
    return static_cast<double>(of.q_heads);
  };
  std::optional<Estimate> nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const Prompts& prompts : prompts_) {
    const AttentionKey& of = prompts.heads;
    if (of.latent != asked.latent || of.kv_format != asked.kv_format) continue;
    // The width of a head decides how well products go, their number and what
    // they share little. A measured run before one from another node, where
    // both fit alike.
    constexpr double kWidthCounts = 100, kOtherNode = 1e-9;
    const double distance =
        kWidthCounts * Apart(width(of), width(asked)) +
        Apart(HeadGroup(of), HeadGroup(asked)) +
        Apart(count(of), count(asked)) +
        (prompts.origin == Origin::kReference ? kOtherNode : 0);
    if (distance >= least) continue;
    const double heads_ratio = count(asked) / count(of);
    std::optional<Estimate> at =
        Read(prompts, {.tokens = work.tokens * heads_ratio, .seen = work.seen});
    if (!at.has_value()) continue;
    if (of != asked) {
      at->seconds *= width(asked) / width(of);
      at->relative_sigma = Hypot(at->relative_sigma, kOtherAttentionSigma);
      at->standing = Worse(at->standing, Standing::kExtrapolated);
    }
    if (prompts.origin == Origin::kReference) {
      at->standing = Worse(at->standing, Standing::kReference);
    }
    least = distance;
    nearest = at;
  }
  return nearest;
}

}  // namespace fabricwise
