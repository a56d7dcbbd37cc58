// SPDX-License-Identifier: Apache-2.0
//
// Values for the store's tests.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "server/domain/measurement.h"
#include "server/store/store.h"

namespace fabricwise {

inline Measurement AllReduce(int64_t size_bytes, double median_seconds,
                             int64_t start_unix_seconds = 1'700'000'000) {
  CollectiveKey key;
  key.op = CollectiveOp::kAllReduce;
  key.group.size = 2;
  key.size_bytes = size_bytes;
  Measurement m;
  m.key = key;
  m.statistics.median_seconds = median_seconds;
  m.start_time = absl::FromUnixSeconds(start_unix_seconds);
  return m;
}

inline Measurement Gemm(int64_t rows, double median_seconds) {
  Measurement m;
  m.key = GemmKey{.m = rows, .n = 4096, .k = 2048};
  m.statistics.median_seconds = median_seconds;
  m.start_time = absl::FromUnixSeconds(1'700'000'001);
  return m;
}

// Every field set to something of its own.
inline StoredProfile FullProfile() {
  StoredProfile p;
  p.name = "two \"GPUs\"; üñí";
  p.fingerprint.gpus = {{"NVIDIA H200", "GPU-1", 141'000'000'000, 90},
                        {"NVIDIA H200", "GPU-2", 140'000'000'000, 90}};
  p.fingerprint.driver_version = "580.1";
  p.fingerprint.cuda_version = "13.0";
  p.fingerprint.nccl_version = "2.28.3";
  p.fingerprint.nccl_environment = {"NCCL_NVLS_ENABLE=0", "NCCL_P2P_DISABLE=1"};
  p.fingerprint.fabric = "nvlink";
  p.fingerprint.peer_access = {{true, false}, {true, true}};
  p.fingerprint.nvlinks = {{0, 18}, {17, 0}};
  p.fingerprint.facts = {"ecc=on", "iommu=off"};
  p.as_of = absl::FromUnixNanos(1'764'400'000'123'456'789);
  p.notes = {"first", "", "third"};
  p.measurements = {AllReduce(1024, 7e-6), AllReduce(2048, 7.25e-6),
                    Gemm(16, 1e-5)};

  Measurement full;
  full.key = ExpertsKey{.format = {NumberFormat::kInt4Group, 32},
                        .hidden_size = 7168,
                        .intermediate_size = 2048,
                        .num_experts = 384,
                        .experts_per_token = 8,
                        .moe_tp = 2,
                        .expert_parallel = 4,
                        .skew_alpha = 1.2,
                        .tokens = 64};
  full.statistics = {.median_seconds = 0.1 + 0.2,  // has no short decimal form
                     .iqr_seconds = 0,
                     .p99_seconds = 5e-324,
                     .samples = 120,
                     .discarded = 3,
                     .discard_reason = "clock fell",
                     .stop_reason = StopReason::kSettledNoisy,
                     .verified = true,
                     .sm_clock_hertz = 1.98e9};
  full.experts = {.rows_local = 512, .experts_hit = 0};
  full.origin = Origin::kReference;
  full.source = "worker 1.0";
  full.fingerprint_id = "00112233aabbccdd";
  full.start_time = absl::FromUnixNanos(1'764'300'000'000'000'001);
  p.measurements.push_back(full);
  return p;
}

}  // namespace fabricwise
