// SPDX-License-Identifier: Apache-2.0
//
// All curves and tables of a node with their grounds: the one thing that
// advice is made from.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/domain/fingerprint.h"
#include "server/domain/measurement.h"
#include "server/profile/curve.h"
#include "server/profile/tables.h"
#include "server/profile/topology.h"

namespace fabricwise {

// What a profile is built from and is written to a file as.
struct ProfileData {
  std::string name;  // "h200x2-p2p"
  Fingerprint fingerprint;
  absl::Time as_of = absl::UnixEpoch();  // when the newest part was measured
  std::vector<Measurement> measurements;
  std::vector<std::string> notes;  // where it came from, what to know of it
};

// A collective key less its size: names one curve.
struct CurveKey {
  CollectiveOp op = CollectiveOp::kAllReduce;
  GpuGroup group;
  CollectiveImpl implementation = CollectiveImpl::kNccl;
  Launch launch = Launch::kGraph;
  int concurrent_groups = 1;
  double skew_alpha = 0;

  friend auto operator<=>(const CurveKey&, const CurveKey&) = default;
};

// "all_reduce/n2/nccl/graph": the canonical measurement text less its size.
std::string ToString(const CurveKey& key);

// An ExchangeKey less its tokens.
struct ExchangeCurveKey {
  ExchangeImpl implementation = ExchangeImpl::kDeepEpLowLatency;
  ExchangeStage stage = ExchangeStage::kDispatch;
  GpuGroup group;
  int64_t hidden_size = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;

  friend auto operator<=>(const ExchangeCurveKey&,
                          const ExchangeCurveKey&) = default;
};

std::string ToString(const ExchangeCurveKey& key);

// Immutable; safe to read from any thread.
class Profile {
 public:
  // Of several measurements of one key the newest wins (by start_time, then by
  // order); kMeasured beats kReference. A curve that has any measured point
  // keeps only measured ones. INVALID_ARGUMENT naming the first bad
  // measurement.
  static absl::StatusOr<std::shared_ptr<const Profile>> Build(ProfileData data);

  const ProfileData& data() const { return data_; }
  const std::string& name() const { return data_.name; }
  const Fingerprint& fingerprint() const { return data_.fingerprint; }
  const std::string& fingerprint_id() const { return fingerprint_id_; }
  // The start of the oldest measurement in use.
  absl::Time oldest() const { return oldest_; }
  int gpu_count() const {
    return static_cast<int>(data_.fingerprint.gpus.size());
  }

  // The curve of exactly `key`; for a key whose group names members, else the
  // one of any group of that size. Null: not measured.
  const Curve* FindCurve(const CurveKey& key) const;
  // The same with the key that it was found by.
  using KeyedCurve = std::map<CurveKey, Curve>::value_type;
  const KeyedCurve* FindKeyedCurve(const CurveKey& key) const;
  // Whether groups of `size` were measured by their members, and whether any
  // were measured while others were busy.
  bool NamesGroupsOf(int size) const;
  bool MeasuresContention() const { return measures_contention_; }
  const Curve* FindExchange(const ExchangeCurveKey& key) const;
  // By the fingerprint and by what messages between named pairs take.
  const Topology& topology() const { return topology_; }
  const GemmTable& gemm() const { return gemm_; }
  const ExpertsTable& experts() const { return experts_; }
  const AttentionTable& attention() const { return attention_; }
  // Null: not measured.
  const Curve* memory_read() const;
  const Curve* memory_copy() const;
  std::optional<Estimate> graph_node() const { return graph_node_; }

  const std::map<CurveKey, Curve>& curves() const { return curves_; }
  const std::map<ExchangeCurveKey, Curve>& exchanges() const {
    return exchanges_;
  }

 private:
  Profile() = default;
  // Of messages between two named GPUs; null: not measured.
  const Curve* FindPair(int i, int j) const;

  ProfileData data_;
  std::string fingerprint_id_;
  absl::Time oldest_;
  std::map<CurveKey, Curve> curves_;
  std::vector<int> named_sizes_;  // ascending
  bool measures_contention_ = false;
  std::map<ExchangeCurveKey, Curve> exchanges_;
  Topology topology_;
  GemmTable gemm_;
  ExpertsTable experts_;
  AttentionTable attention_;
  std::optional<Curve> memory_read_, memory_copy_;
  std::optional<Estimate> graph_node_;
};

}  // namespace fabricwise
