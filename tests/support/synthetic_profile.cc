// SPDX-License-Identifier: Apache-2.0
#include "tests/support/synthetic_profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <utility>
#include <variant>

#include "absl/time/civil_time.h"
#include "absl/time/time.h"

namespace fabricwise {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kGiB = kKiB * kKiB * kKiB;
// Of the median; an IQR of a normal distribution is 1.349 sigma.
constexpr double kIqrRatio = 0.01349;

class Maker {
 public:
  explicit Maker(const SyntheticNode& node) : node_(node) {}

  void AddCollectives() {
    using enum CollectiveOp;
    for (int group = 2; group <= node_.gpus; ++group) {
      for (CollectiveOp op :
           {kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSendRecv}) {
        if (op == kSendRecv && group > 2) continue;
        for (Launch launch : {Launch::kGraph, Launch::kEager}) {
          for (int64_t size = kKiB; size <= 4 * kGiB; size *= 4) {
            AddCollective(op, group, launch, size);
          }
        }
      }
    }
  }

  void AddProducts() {
    for (NumberFormat format : {NumberFormat::kBf16, NumberFormat::kFp8Block}) {
      for (int64_t n = 256; n <= 256 * kKiB; n *= 4) {
        for (int64_t k = 256; k <= 64 * kKiB; k *= 4) {
          for (int64_t m = 1; m <= 64 * kKiB; m *= 4) {
            const auto weights = static_cast<double>(n * k);
            Add(GemmKey{format, m, n, k},
                Kernel(weights * BytesPerWeight({.number = format}),
                       2 * weights * static_cast<double>(m)));
          }
        }
      }
    }
  }

  void AddExperts() {
    const std::array<WeightFormat, 4> formats = {
        WeightFormat{}, WeightFormat{NumberFormat::kFp8Block},
        WeightFormat{NumberFormat::kInt4Group, 32},
        WeightFormat{NumberFormat::kMxfp4}};
    for (const WeightFormat& format : formats) {
      AddShard({format, 2048, 768, 128, 8, 1, 1});
      AddShard({format, 7168, 2048, 256, 8, 1, 8});
      AddShard({format, 4096, 14336, 8, 2, 1, 1});
    }
  }

  void AddMemory() {
    for (int64_t size = 64 * kKiB; size <= 16 * kGiB; size *= 4) {
      const auto bytes = static_cast<double>(size);
      Add(MemoryKey{MemoryOp::kRead, size}, Kernel(bytes, 0));
      Add(MemoryKey{MemoryOp::kCopy, size}, Kernel(2 * bytes, 0));
    }
    Add(LaunchKey{}, node_.graph_node_seconds);
  }

  std::vector<Measurement> Take() { return std::move(measurements_); }

 private:
  void Add(MeasurementKey key, double median_seconds) {
    if (!node_.keep(key)) return;
    Measurement& measurement = measurements_.emplace_back();
    measurement.key = std::move(key);
    measurement.statistics.median_seconds = median_seconds;
    measurement.statistics.iqr_seconds = kIqrRatio * median_seconds;
    measurement.source = "formula";
  }

  double Kernel(double bytes, double operations) const {
    return node_.kernel_seconds +
           std::max(bytes / node_.memory_bytes_per_second,
                    operations / node_.operations_per_second);
  }

  void AddCollective(CollectiveOp op, int group, Launch launch, int64_t size) {
    const auto bytes = static_cast<double>(size);
    double seconds = node_.fabric_latency_seconds * std::log2(2.0 * group) +
                     (op == CollectiveOp::kAllReduce ? 2 : 1) * bytes /
                         node_.fabric_bytes_per_second;
    if (op == CollectiveOp::kAllToAll && bytes > node_.all_to_all_cliff_bytes) {
      seconds *= node_.all_to_all_cliff;
    }
    if (launch == Launch::kEager) seconds += node_.eager_seconds;
    CollectiveKey key{.op = op,
                      .group = {.size = group},
                      .launch = launch,
                      .size_bytes = size};
    Add(key, seconds);
    if (op != CollectiveOp::kAllReduce) return;
    for (CollectiveImpl peer_kernel :
         {CollectiveImpl::kOneShot, CollectiveImpl::kTwoShot,
          CollectiveImpl::kNcclSymmetric}) {
      key.implementation = peer_kernel;
      Add(key, seconds);
    }
  }

  void AddShard(ExpertsKey key) {
    const auto experts = static_cast<double>(key.num_experts);
    const auto ranks = static_cast<double>(key.expert_parallel);
    const auto top_k = static_cast<double>(key.experts_per_token);
    const double weights = 3 * static_cast<double>(key.hidden_size) *
                           static_cast<double>(key.intermediate_size);
    for (key.tokens = 1; key.tokens <= 64 * kKiB; key.tokens *= 4) {
      const auto tokens = static_cast<double>(key.tokens);
      const double hit =
          experts / ranks * -std::expm1(tokens * std::log1p(-top_k / experts));
      Add(key, Kernel(hit * weights * BytesPerWeight(key.format),
                      2 * weights * tokens * top_k / ranks));
    }
  }

  const SyntheticNode& node_;
  std::vector<Measurement> measurements_;
};

}  // namespace

ProfileData SyntheticProfileData(const SyntheticNode& node) {
  ProfileData data;
  data.name = node.name;
  const auto count = static_cast<size_t>(node.gpus);
  Fingerprint& fingerprint = data.fingerprint;
  fingerprint.gpus.assign(count, {"NVIDIA H200", "", node.memory_bytes, 90});
  fingerprint.peer_access.assign(count, std::vector<bool>(count, node.nvlink));
  fingerprint.nvlinks.assign(count,
                             std::vector<int>(count, node.nvlink ? 18 : 0));
  fingerprint.fabric = node.nvlink ? "nvlink" : "pcie";
  Maker maker(node);
  maker.AddCollectives();
  maker.AddProducts();
  maker.AddExperts();
  maker.AddMemory();
  data.measurements = maker.Take();
  return data;
}

std::shared_ptr<const Profile> SyntheticProfile(const SyntheticNode& node) {
  return BuildOrDie(SyntheticProfileData(node));
}

ProfileData SampleProfileData(const std::string& name, int gpus) {
  SyntheticNode node;
  node.name = name;
  node.gpus = gpus;
  node.all_to_all_cliff_bytes = 64 * kKiB;
  node.all_to_all_cliff = 10;
  node.keep = [](const MeasurementKey& key) {
    const auto* product = std::get_if<GemmKey>(&key);
    const auto* experts = std::get_if<ExpertsKey>(&key);
    return (product == nullptr || product->format == NumberFormat::kBf16) &&
           (experts == nullptr ||
            experts->format.number == NumberFormat::kBf16);
  };
  ProfileData data = SyntheticProfileData(node);
  data.fingerprint.driver_version = "580.82.07";
  data.fingerprint.cuda_version = "13.0";
  data.fingerprint.nccl_version = "2.28.3";
  data.fingerprint.nccl_environment = {"NCCL_NVLS_ENABLE=0"};
  data.fingerprint.facts = {"ecc=on"};
  data.as_of =
      absl::FromCivil(absl::CivilDay(2026, 11, 29), absl::UTCTimeZone());
  data.notes = {"made up for tests"};
  for (Measurement& measurement : data.measurements) {
    measurement.start_time = data.as_of;
    measurement.statistics.samples = 100;
    if (std::holds_alternative<LaunchKey>(measurement.key)) {
      measurement.origin = Origin::kReference;
    }
  }
  return data;
}

std::shared_ptr<const Profile> SampleProfile(const std::string& name,
                                             int gpus) {
  return BuildOrDie(SampleProfileData(name, gpus));
}

std::shared_ptr<const Profile> BuildOrDie(ProfileData data) {
  auto profile = Profile::Build(std::move(data));
  if (!profile.ok()) {
    std::cerr << profile.status() << "\n";
    std::abort();
  }
  return *std::move(profile);
}

}  // namespace fabricwise
