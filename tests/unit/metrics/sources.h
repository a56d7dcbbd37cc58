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
  m.start_time = absl::FromUnixSeconds(start_unix_seconds);
  return m;
}

inline std::shared_ptr<const Profile> BuildProfile(
    std::vector<Measurement> measurements) {
  ProfileData data;
  data.name = "bench \"one\"";
  data.fingerprint.fabric = "nvlink";
  data.fingerprint.gpus.resize(8, Gpu{.name = "NVIDIA H200"});
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
  sources.measuring = [] {
    MeasuringFacts facts;
    facts.worker_installed = true;
    facts.measuring = true;
    facts.runs = {{{"quick", "kept"}, 7}, {{"full", "failed"}, 0}};
    facts.skips = {{"busy", 5}};
    facts.faults = {{"died", 2}};
    facts.gpu_time = absl::Milliseconds(2500);
    facts.node_fingerprint = "0123456789abcdef";
    return facts;
  };
  return sources;
}

}  // namespace fabricwise
