// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sample_profile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <utility>

namespace fabricwise {
namespace {

// Round figures in the range of an H200.
constexpr int64_t kMemoryBytes = 150'754'820'096;
constexpr double kMemoryBytesPerSecond = 4e12;
constexpr double kOperationsPerSecond = 600e12;
constexpr double kFabricBytesPerSecond = 200e9;
constexpr double kKernelSeconds = 3e-6;
constexpr double kEagerSeconds = 12e-6;  // more than in a graph

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;

constexpr absl::Time kMeasuredAt = absl::FromUnixSeconds(1'795'910'400);

class Maker {
 public:
  void Add(MeasurementKey key, double median_seconds) {
    Measurement& measurement = measurements_.emplace_back();
    measurement.key = std::move(key);
    measurement.statistics.median_seconds = median_seconds;
    measurement.statistics.iqr_seconds = median_seconds / 50;
    measurement.statistics.samples = 100;
    measurement.source = "sample";
    measurement.start_time = kMeasuredAt;
  }

  void AddCollectives(int group_size) {
    for (const CollectiveOp op :
         {CollectiveOp::kAllReduce, CollectiveOp::kAllGather,
          CollectiveOp::kReduceScatter, CollectiveOp::kAllToAll,
          CollectiveOp::kSendRecv}) {
      for (const Launch launch : {Launch::kGraph, Launch::kEager}) {
        for (int64_t size = kKiB; size <= 256 * kMiB; size *= 2) {
          CollectiveKey key;
          key.op = op;
          key.group.size = group_size;
          key.launch = launch;
          key.size_bytes = size;
          double seconds = 4e-6 * std::log2(2 * group_size) +
                           static_cast<double>(size) / kFabricBytesPerSecond;
          if (op == CollectiveOp::kAllToAll && size > 64 * kKiB) seconds *= 4;
          if (launch == Launch::kEager) seconds += kEagerSeconds;
          Add(key, seconds);
        }
      }
    }
  }

  void AddProducts() {
    for (int64_t n = 256; n <= 256 * kKiB; n *= 4) {
      for (int64_t k = 256; k <= 16 * kKiB; k *= 4) {
        for (int64_t m = 1; m <= 16 * kKiB; m *= 4) {
          GemmKey key;
          key.m = m, key.n = n, key.k = k;
          const double weights = static_cast<double>(n * k);
          Add(key,
              kKernelSeconds + std::max(2 * weights / kMemoryBytesPerSecond,
                                        2 * weights * static_cast<double>(m) /
                                            kOperationsPerSecond));
        }
      }
    }
  }

  void AddExperts() {
    for (int64_t tokens = 1; tokens <= 64 * kKiB; tokens *= 4) {
      ExpertsKey key;
      key.hidden_size = 2048, key.intermediate_size = 768;
      key.num_experts = 128, key.experts_per_token = 8;
      key.tokens = tokens;
      const double expert_weights = 3 * 2048 * 768;
      const double hit = 128 * -std::expm1(static_cast<double>(tokens) *
                                           std::log1p(-8 / 128.));
      Add(key, kKernelSeconds +
                   2 * expert_weights * hit / kMemoryBytesPerSecond +
                   2 * expert_weights * 8 * static_cast<double>(tokens) /
                       kOperationsPerSecond);
    }
  }

  void AddMemory() {
    for (int64_t size = 64 * kKiB; size <= 1024 * kMiB; size *= 4) {
      const double seconds =
          kKernelSeconds + static_cast<double>(size) / kMemoryBytesPerSecond;
      Add(MemoryKey{MemoryOp::kRead, size}, seconds);
      Add(MemoryKey{MemoryOp::kCopy, size}, 2 * seconds);
    }
  }

  void AddLaunch() {
    Add(LaunchKey(), 1.5e-6);
    measurements_.back().origin = Origin::kReference;
  }

  std::vector<Measurement> Take() { return std::move(measurements_); }

 private:
  std::vector<Measurement> measurements_;
};

}  // namespace

ProfileData SampleProfileData(std::string name, int gpu_count) {
  ProfileData data;
  data.name = std::move(name);
  data.fingerprint.gpus.assign(static_cast<size_t>(gpu_count),
                               Gpu{"NVIDIA H200", "", kMemoryBytes, 90});
  data.fingerprint.driver_version = "580.82.07";
  data.fingerprint.cuda_version = "13.0";
  data.fingerprint.nccl_version = "2.28.3";
  data.fingerprint.nccl_environment = {"NCCL_NVLS_ENABLE=0"};
  data.fingerprint.fabric = "nvlink";
  data.fingerprint.facts = {"ecc=on"};
  data.as_of = kMeasuredAt;
  data.notes = {"made up for tests"};
  Maker maker;
  for (int size = 2; size <= gpu_count; size *= 2) maker.AddCollectives(size);
  maker.AddProducts();
  maker.AddExperts();
  maker.AddMemory();
  maker.AddLaunch();
  data.measurements = maker.Take();
  return data;
}

std::shared_ptr<const Profile> SampleProfile(std::string name, int gpu_count) {
  auto profile = Profile::Build(SampleProfileData(std::move(name), gpu_count));
  if (!profile.ok()) {
    std::cerr << profile.status() << "\n";
    std::abort();
  }
  return *std::move(profile);
}

}  // namespace fabricwise
