// SPDX-License-Identifier: Apache-2.0
//
// Measured tables over more than one size: matrix products, routed experts,
// attention. Each answers like a curve: value, spread, standing, or nothing.
// Immutable after Build; safe to read from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "server/domain/measurement.h"
#include "server/profile/curve.h"

namespace fabricwise {

// C[m,n] = A[m,k] x W[k,n], measured on a grid of (n, k), each with a curve
// over m.
class GemmTable {
 public:
  // Uses the GemmKey measurements among `measurements`, skips others.
  static GemmTable Build(const std::vector<Measurement>& measurements);

  // A product with a fixed weight [k,n], ready to be asked for many m. Borrows
  // from the table.
  class Prepared {
   public:
    // nullopt: m is outside the reach of the curves.
    std::optional<Estimate> At(double m) const;

   private:
    friend class GemmTable;
    std::array<const Curve*, 4> corner_ = {};  // null: weight is 0
    std::array<double, 4> weight_ = {};
    double log_scale_ = 0;  // beyond the largest n or k: work over work
    // The corners in one, where they were measured at the same m.
    std::optional<Curve> blend_;
    double sigma_ = 0;
    Standing standing_ = Standing::kInterpolated;
  };
  // Log-linear between measured n and k. Beyond the largest, in proportion to
  // the work; below the smallest, the smallest (a floor that any product pays).
  // nullopt: no product of this format measured.
  std::optional<Prepared> ForWeight(NumberFormat format, double n,
                                    double k) const;

  bool Has(NumberFormat format) const { return grids_.contains(format); }
  bool empty() const { return grids_.empty(); }
  // Measured weights of a format: (n, k) -> curve over m.
  struct Grid {
    std::vector<int64_t> n, k;  // ascending
    std::map<std::pair<int64_t, int64_t>, Curve> curve;
  };
  const std::map<NumberFormat, Grid>& grids() const { return grids_; }

 private:
  std::map<NumberFormat, Grid> grids_;
};

// One GPU's shard of the routed experts of a MoE layer.
struct ExpertShard {
  WeightFormat format;
  double hidden_size = 0;
  double intermediate_local = 0;  // after moe_tp
  double experts_local = 0;       // after expert_parallel
};

// Time of a shard's grouped products as a function of its load.
class ExpertsTable {
 public:
  static ExpertsTable Build(const std::vector<Measurement>& measurements);

  bool Has(const WeightFormat& format) const;
  bool empty() const { return series_.empty(); }

  // All runs of one shard, by rows.
  struct Series {
    struct Run {
      double log_rows = 0, log_hit = 0, log_seconds = 0, relative_sigma = 0;
    };
    ExpertShard shard;
    std::vector<Run> runs;  // ascending rows
    Origin origin = Origin::kMeasured;
  };

  // A shard prepared for many questions about its load. Borrows from the
  // table.
  class Prepared {
   public:
    // `rows`: token copies on this GPU; `experts_hit`: distinct experts among
    // them; both may be expectations. 0 rows cost nothing. nullopt outside the
    // reach of the table.
    std::optional<Estimate> At(double rows, double experts_hit) const;

   private:
    friend class ExpertsTable;
    const Series* series_ = nullptr;
    // Work of one expert of the asked shard over one of the series'.
    double work_ = 1;
    double experts_local_ = 0;
    double sigma_ = 0;
    Standing standing_ = Standing::kMeasured;
  };
  // The runs of the very shard, else those of the shard nearest in work per
  // expert, asked at equal work (same weight bytes, same operations). nullopt:
  // no run of this format.
  std::optional<Prepared> For(const ExpertShard& shard) const;

 private:
  std::vector<Series> series_;
};

// What prompts ask of attention in one step: tokens over all sequences, and how
// many tokens each of them sees, in the mean.
struct PromptWork {
  double tokens = 0;
  double seen = 0;
};
// Of a key of prefill, and a key of that much work with the heads of `heads`:
// whole prompts where `seen` is less than half of the tokens, else the last
// part of one.
PromptWork PromptWorkOf(const AttentionKey& key);
AttentionKey PromptKey(const AttentionKey& heads, const PromptWork& work);

// Decode and prefill attention of one layer on one GPU.
class AttentionTable {
 public:
  static AttentionTable Build(const std::vector<Measurement>& measurements);

  bool empty() const { return runs_.empty() && prompts_.empty(); }
  // Decode: the very run, else one like it in what it reads and in query heads
  // to a KV head, scaled. nullopt: no run of this kind within reach.
  std::optional<Estimate> At(const AttentionKey& key) const;
  // Prefill with the heads of `heads`: between runs over tokens and over what
  // they see, of these heads or of those nearest to them at as many tokens
  // times heads. Beyond the largest in proportion to the products; below the
  // smallest the smallest, as a kernel's tiles are no smaller. nullopt: no run
  // of this kind within reach.
  std::optional<Estimate> AtPrompts(const AttentionKey& heads,
                                    const PromptWork& work) const;

 private:
  struct Run {
    AttentionKey key;
    double seconds = 0, relative_sigma = 0;
    Origin origin = Origin::kMeasured;
  };
  // Prefill with the same heads.
  struct Prompts {
    struct Point {
      double seconds = 0, relative_sigma = 0;
    };
    AttentionKey heads;  // less its sizes
    Origin origin = Origin::kMeasured;
    // By tokens, then by what they see.
    std::map<double, std::map<double, Point>> runs;
  };

  static std::optional<Estimate> Read(const Prompts& prompts,
                                      const PromptWork& work);

  std::vector<Run> runs_;  // of decode
  std::vector<Prompts> prompts_;
};

}  // namespace fabricwise
