// SPDX-License-Identifier: Apache-2.0
//
// Measured tables over more than one size: matrix products, routed experts,
// attention. Each answers like a curve: value, spread, standing, or nothing.
// Immutable after Build; safe to read from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "server/domain/measurement.h"
#include "server/profile/curve.h"

namespace fabricwise {

// C[m,n] = A[m,k] x W[k,n], measured on any set of (n, k), each with a curve
// over m.
class GemmTable {
 public:
  // Uses the GemmKey measurements among `measurements`, skips others.
  static GemmTable Build(const std::vector<Measurement>& measurements);

  // The product with a fixed weight [k,n] as a curve over m. nullopt: no
  // product of this format measured, or (n, k) outside the table's reach.
  std::optional<Curve> ForWeight(NumberFormat format, double n, double k) const;

  bool Has(NumberFormat format) const { return grids_.contains(format); }
  bool empty() const { return grids_.empty(); }
  // All measured weights of a format: (n, k) -> curve over m.
  using Grid = std::map<std::pair<int64_t, int64_t>, Curve>;
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
  bool empty() const { return runs_.empty(); }

  // A shard prepared for many questions about its load.
  class Prepared {
   public:
    // `rows`: token copies on this GPU; `experts_hit`: distinct experts among
    // them; both may be expectations. 0 rows cost nothing. nullopt outside the
    // reach of the table.
    std::optional<Estimate> At(double rows, double experts_hit) const;

   private:
    friend class ExpertsTable;
    struct Sample {
      double log_rows = 0, log_hit = 0, log_ratio = 0, relative_sigma = 0;
    };
    ExpertShard shard_;
    bool exact_ = false;
    Origin origin_ = Origin::kMeasured;
    std::vector<Sample> samples_;
  };
  // nullopt: no run of this format, or the shard is outside the reach.
  std::optional<Prepared> For(const ExpertShard& shard) const;

 private:
  struct Run {
    ExpertShard shard;
    double rows = 0, experts_hit = 0, seconds = 0, relative_sigma = 0;
    Origin origin = Origin::kMeasured;
  };
  std::vector<Run> runs_;
};

// Decode and prefill attention of one layer on one GPU.
class AttentionTable {
 public:
  static AttentionTable Build(const std::vector<Measurement>& measurements);

  bool empty() const { return runs_.empty(); }
  // nullopt: no run of this kind, or outside the reach.
  std::optional<Estimate> At(const AttentionKey& key) const;

 private:
  struct Run {
    AttentionKey key;
    double seconds = 0, relative_sigma = 0;
    Origin origin = Origin::kMeasured;
  };
  std::vector<Run> runs_;
};

}  // namespace fabricwise
