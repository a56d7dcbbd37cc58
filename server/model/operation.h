// SPDX-License-Identifier: Apache-2.0
//
// One kind of work, bound to the curve or table that prices it. Internal to
// the cost model.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "server/domain/recipe.h"
#include "server/model/routing.h"
#include "server/profile/profile.h"

namespace fabricwise {

// The price of one occurrence.
struct Price {
  bool known = false;
  double seconds = 0;
  double relative_sigma = 0;
  Standing standing = Standing::kMeasured;
  bool upper_bound = false;  // how much less it takes is not known
  absl::string_view note;    // a literal; empty: none
  // Of a collective: how many groups were busy at once when it was measured,
  // and whether on GPUs that its key does not name.
  int groups = 0;
  bool of_any_group = false;
};

// What one occurrence is asked for: bytes of a message or of memory, or tokens
// of a product; attention also has its context.
struct Argument {
  double size = 0;
  double sequences = 0;
  double context = 0;
  Launch launch = Launch::kGraph;

  friend bool operator==(const Argument&, const Argument&) = default;
};

class Operation {
 public:
  virtual ~Operation() = default;

  // Remembers some answers: plans have much in common. The reference is good
  // until the next call.
  const Price& At(const Argument& argument);

  // Whether anything could be priced at all.
  virtual bool Measured() const = 0;
  // The curve or table asked, "all_reduce/n8/nccl/graph".
  virtual std::string Source(const Argument& argument) const = 0;
  // The measurements that At would need but has not.
  virtual std::vector<std::string> Missing(const Argument& argument) const = 0;

 private:
  virtual Price Evaluate(const Argument& argument) const = 0;

  struct Remembered {
    Argument argument{.size = kNoSize};
    Price price;
  };
  static constexpr double kNoSize = -1;  // sizes are >= 0
  static constexpr int kRememberedBits = 4;
  // By a hash of the size.
  std::array<Remembered, size_t{1} << kRememberedBits> remembered_;
};

// A product with a fixed weight. Where its format was not measured, the nearest
// measured one of more bytes stands in, marked as an upper bound.
class GemmOperation final : public Operation {
 public:
  GemmOperation(const Profile& profile, const WeightFormat& format, int64_t n,
                int64_t k);
  bool Is(const WeightFormat& format, int64_t n, int64_t k) const {
    return format_ == format && n_ == n && k_ == k;
  }
  bool Measured() const override { return prepared_.has_value(); }
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  Price Evaluate(const Argument& argument) const override;
  WeightFormat format_;
  int64_t n_, k_;
  NumberFormat priced_as_ = NumberFormat::kBf16;
  std::optional<GemmTable::Prepared> prepared_;
};

// ExpectedRouting of one model and skew, remembered: plans share it.
class RoutingMemo {
 public:
  explicit RoutingMemo(double skew) : skew_(skew) {}
  // Good until the next call.
  const RoutingLoad& At(const ExpertsUse& use, int64_t tokens);
  double skew() const { return skew_; }

 private:
  static constexpr size_t kMost = 4096;
  double skew_;
  absl::flat_hash_map<std::pair<int, int64_t>, RoutingLoad> known_;
};

// Routed experts of the fullest rank; argument: tokens of the stage. Borrows
// `routing`, which is of the same model.
class ExpertsOperation final : public Operation {
 public:
  ExpertsOperation(const Profile& profile, const ExpertsUse& use,
                   RoutingMemo& routing);
  bool Is(const ExpertsUse& use, const RoutingMemo& routing) const;
  bool Measured() const override { return prepared_.has_value(); }
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  Price Evaluate(const Argument& argument) const override;
  ExpertsKey Key(const WeightFormat& format, double tokens) const;
  ExpertsUse use_;
  RoutingMemo& routing_;
  WeightFormat priced_as_;
  std::optional<ExpertsTable::Prepared> prepared_;
};

// Reading or copying memory; argument: bytes.
class MemoryOperation final : public Operation {
 public:
  MemoryOperation(const Profile& profile, MemoryOp op);
  bool Measured() const override { return curve_ != nullptr; }
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  Price Evaluate(const Argument& argument) const override;
  const Curve* curve_;
  MemoryOp op_;
};

// Decode attention of `sequences` at `context`; argument: KV bytes read. From
// the attention table where it has the shape, else the time to read the bytes.
class AttentionOperation final : public Operation {
 public:
  AttentionOperation(const Profile& profile, const AttentionUse& use);
  bool Is(const AttentionUse& use) const;
  bool Measured() const override;
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  Price Evaluate(const Argument& argument) const override;
  AttentionKey Key(const Argument& argument) const;
  const Profile& profile_;
  AttentionUse use_;
};

// Prefill attention of `size` tokens over `context`. From the attention table,
// else two products of equal operations, marked.
class PromptAttentionOperation final : public Operation {
 public:
  PromptAttentionOperation(const Profile& profile, const AttentionUse& use);
  bool Is(const AttentionUse& use) const;
  bool Measured() const override;
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  Price Evaluate(const Argument& argument) const override;
  PromptWork WorkOf(const Argument& argument) const;
  std::optional<Estimate> FromTable(const Argument& argument) const;
  const Profile& profile_;
  AttentionUse use_;
  // The two products for the context last asked.
  mutable double context_ = 0;
  mutable std::array<std::optional<GemmTable::Prepared>, 2> products_;
};

// One collective on a group, while `at_once` of its kind are busy; argument:
// bytes as its curve counts them. A curve of the very members comes before one
// of any, and one of as many groups before one of a single group.
class CollectiveOperation final : public Operation {
 public:
  CollectiveOperation(const Profile& profile, CollectiveOp op,
                      const GpuGroup& group, int at_once,
                      const CollectivePaths& paths);
  bool Is(CollectiveOp op, const GpuGroup& group, int at_once,
          const CollectivePaths& paths) const;
  bool Measured() const override;
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  struct Choice {
    std::optional<Estimate> estimate;
    const Profile::KeyedCurve* curve = nullptr;
    absl::string_view note;
    bool upper_bound = false;
  };
  Price Evaluate(const Argument& argument) const override;
  Choice Choose(const Argument& argument) const;
  Choice Read(CollectiveImpl implementation, const Argument& argument,
              absl::string_view note) const;
  size_t Wanted(double bytes) const;

  CollectiveOp op_;
  GpuGroup group_;
  int at_once_;
  CollectivePaths paths_;
  // Of one implementation and launch: with as many groups at once, then of one
  // alone; null: not measured, or not asked for.
  using Curves = std::array<const Profile::KeyedCurve*, 2>;
  Curves& CurvesOf(CollectiveImpl implementation, Launch launch) {
    return curves_[static_cast<size_t>(implementation)]
                  [static_cast<size_t>(launch)];
  }
  const Curves& CurvesOf(CollectiveImpl implementation, Launch launch) const {
    return curves_[static_cast<size_t>(implementation)]
                  [static_cast<size_t>(launch)];
  }
  static constexpr size_t kImplementations =
      static_cast<size_t>(CollectiveImpl::kTrtllm) + 1;
  std::array<std::array<Curves, 2>, kImplementations> curves_ = {};
};

// Dispatch and combine by a library; argument: tokens of a rank.
class ExchangeOperation final : public Operation {
 public:
  ExchangeOperation(const Profile& profile, const ExchangeUse& use);
  bool Is(const ExchangeUse& use) const;
  bool Measured() const override {
    return dispatch_ != nullptr && combine_ != nullptr;
  }
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  ExchangeCurveKey Key(ExchangeStage stage) const;
  Price Evaluate(const Argument& argument) const override;
  ExchangeUse use_;
  const Curve *dispatch_, *combine_;
};

// One more small kernel in a CUDA graph; argument: the message of an all-reduce
// that does its work along up to `fused_max_bytes`, 0 where there is none.
class KernelNodeOperation final : public Operation {
 public:
  // As far as nothing is fused.
  static constexpr double kNeverFused = -1;
  explicit KernelNodeOperation(const Profile& profile,
                               double fused_max_bytes = kNeverFused);
  bool Is(double fused_max_bytes) const {
    return fused_max_bytes_ == fused_max_bytes;
  }
  bool Measured() const override {
    return node_.has_value() || fused_max_bytes_ > 0;
  }
  std::string Source(const Argument& argument) const override;
  std::vector<std::string> Missing(const Argument& argument) const override;

 private:
  Price Evaluate(const Argument& argument) const override;
  std::optional<Estimate> node_;
  double fused_max_bytes_;
};

}  // namespace fabricwise
