// SPDX-License-Identifier: Apache-2.0
//
// What the collector's tests have it read.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/metrics/collector.h"

namespace fabricwise {

inline Measurement AllReduce(int group_size, int64_t size_bytes, double seconds,
                             int64_t start_unix_seconds) {
  CollectiveKey key;
  key.group.size = group_size;
  key.size_bytes = size_bytes;
  Measurement m;
  m.key = key;
  m.statistics.median_seconds = seconds;
  m.statistics.p99_seconds = 2 * seconds;
  m.start_time = absl::FromUnixSeconds(start_unix_seconds);
  return m;
}

inline std::shared_ptr<const Profile> BuildProfile(
    std::vector<Measurement> measurements) {
  ProfileData data;
  data.name = "bench \"one\"";
  data.fingerprint.fabric = "nvlink";
  data.fingerprint.gpus.resize(
      2, Gpu{.name = "NVIDIA H200", .uuid = "GPU-1", .memory_bytes = 141});
  data.fingerprint.nccl_version = "2.28.3";
  data.fingerprint.peer_access = {{true, false}, {true, true}};
  data.fingerprint.nvlinks = {{0, 18}, {17, 0}};
  data.as_of = absl::FromUnixSeconds(2000);
  data.measurements = std::move(measurements);
  auto profile = Profile::Build(std::move(data));
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *profile;
}

inline MetricSources Sources(const RequestMetrics* requests,
                             std::shared_ptr<const Profile> profile) {
  MetricSources sources;
  sources.version = "1.2.3";
  sources.start_time = absl::FromUnixSeconds(1000);
  sources.profile = [profile] {
    return ProfileInUse{profile, profile == nullptr ? 0 : 3};
  };
  sources.stored_measurements = [] { return int64_t{42}; };
  sources.requests = requests;
  sources.config_read_well = [] { return true; };
  sources.certificates = [] {
    return std::vector<CertificateFacts>{
        {.option = "tls-cert",
         .not_before = absl::FromUnixSeconds(3000),
         .not_after = absl::FromUnixSeconds(4000)}};
  };
  sources.measuring = [] {
    MeasuringFacts facts;
    facts.worker_installed = true;
    facts.measuring = true;
    facts.runs = {{{"quick", "kept"}, 7}, {{"full", "failed"}, 0}};
    facts.skips = {{"busy", 5}};
    facts.faults = {{"died", 2}};
    facts.gpu_time = absl::Milliseconds(2500);
    facts.node_fingerprint = "0123456789abcdef";
    facts.fingerprint_changes = 3;
    return facts;
  };
  sources.outlook = [profile]() -> std::shared_ptr<const Outlook> {
    if (profile == nullptr) return nullptr;
    Outlook outlook;
    outlook.drifts = {{.subject = "all_reduce/n2/nccl/graph",
                       .band = SizeBand::kSmall,
                       .ratio = 1.25,
                       .drifted = true}};
    outlook.reference_ratios = {{CurveKey{.group = {.size = 2}}, 1.5}};
    outlook.scenarios = {{.name = "chat",
                          .model = "Llama-3.1-8B",
                          .hidden_size = 4096,
                          .phase = "steady",
                          .concurrency = 64,
                          .flips = 2,
                          .answered = true,
                          .engine = "vllm",
                          .mode = "TP2",
                          .tpot_seconds = 0.02,
                          .output_tokens_per_second = 3200,
                          .margin_ratio = 0.125,
                          .within_limits = true},
                         {.name = "batch",
                          .model = "Qwen3-8B",
                          .hidden_size = 4096,
                          .phase = "decode",
                          .concurrency = 512}};
    return std::make_shared<const Outlook>(std::move(outlook));
  };
  return sources;
}

}  // namespace fabricwise
