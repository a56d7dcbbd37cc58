// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/rpc/sample_profile.h"

#include <cstdlib>
#include <iostream>
#include <utility>

namespace fabricwise {
namespace {

constexpr int64_t kH200MemoryBytes = 150'754'820'096;

const absl::Time kMeasuredAt = absl::FromUnixSeconds(1'795'910'400);

Measurement Point(MeasurementKey key, double median_seconds) {
  Measurement measurement;
  measurement.key = std::move(key);
  measurement.statistics.median_seconds = median_seconds;
  measurement.statistics.iqr_seconds = median_seconds / 50;
  measurement.statistics.samples = 100;
  measurement.source = "sample";
  measurement.start_time = kMeasuredAt;
  return measurement;
}

CollectiveKey Collective(CollectiveOp op, int64_t size_bytes) {
  CollectiveKey key;
  key.op = op;
  key.group.size = 2;
  key.size_bytes = size_bytes;
  return key;
}

}  // namespace

ProfileData SampleProfileData(std::string name) {
  ProfileData data;
  data.name = std::move(name);
  const Gpu gpu = {"NVIDIA H200", "", kH200MemoryBytes, 90};
  data.fingerprint.gpus = {gpu, gpu};
  data.fingerprint.driver_version = "580.82.07";
  data.fingerprint.cuda_version = "13.0";
  data.fingerprint.nccl_version = "2.28.3";
  data.fingerprint.nccl_environment = {"NCCL_NVLS_ENABLE=0"};
  data.fingerprint.fabric = "nvlink";
  data.fingerprint.facts = {"ecc=on"};
  data.as_of = kMeasuredAt;
  data.notes = {"a sample for tests"};

  for (int64_t size = 1024; size <= 1 << 24; size *= 2) {
    const double bytes = static_cast<double>(size);
    data.measurements.push_back(Point(
        Collective(CollectiveOp::kAllReduce, size), 9e-6 + bytes / 200e9));
    // Four times dearer beyond 64 KiB.
    const double factor = size > 65536 ? 4 : 1;
    data.measurements.push_back(Point(Collective(CollectiveOp::kAllToAll, size),
                                      factor * (12e-6 + bytes / 200e9)));
  }
  GemmKey gemm;
  gemm.m = 16, gemm.n = 4096, gemm.k = 2048;
  data.measurements.push_back(Point(gemm, 6e-6));
  ExpertsKey experts;
  experts.hidden_size = 2048, experts.intermediate_size = 768;
  experts.num_experts = 128, experts.experts_per_token = 8;
  experts.tokens = 16;
  data.measurements.push_back(Point(experts, 60e-6));
  AttentionKey attention;
  attention.batch = 16, attention.context_tokens = 2048;
  attention.q_heads = 32, attention.kv_heads = 4, attention.head_dim = 128;
  data.measurements.push_back(Point(attention, 20e-6));
  data.measurements.push_back(Point(MemoryKey{MemoryOp::kRead, 1 << 20}, 1e-6));
  data.measurements.push_back(Point(MemoryKey{MemoryOp::kCopy, 1 << 20}, 2e-6));
  Measurement launch = Point(LaunchKey(), 1.5e-6);
  launch.origin = Origin::kReference;
  data.measurements.push_back(launch);
  return data;
}

std::shared_ptr<const Profile> SampleProfile(std::string name) {
  auto profile = Profile::Build(SampleProfileData(std::move(name)));
  if (!profile.ok()) {
    std::cerr << profile.status() << "\n";
    std::abort();
  }
  return *std::move(profile);
}

}  // namespace fabricwise
