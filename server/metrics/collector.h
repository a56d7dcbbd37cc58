// SPDX-License-Identifier: Apache-2.0
//
// Fills the catalogue at each scrape.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "prometheus/collectable.h"
#include "server/metrics/outlook.h"
#include "server/metrics/request_metrics.h"
#include "server/profile/profile.h"

namespace fabricwise {

// The profile in use at the time of a scrape.
struct ProfileInUse {
  std::shared_ptr<const Profile> profile;  // null: none
  int64_t swap_count = 0;
};

// What measuring has done since the start. Labels as the catalogue has them;
// all that can occur are there, at 0.
struct MeasuringFacts {
  bool worker_installed = false;
  bool measuring = false;
  std::vector<std::pair<std::array<std::string, 2>, int64_t>> runs;
  std::vector<std::pair<std::string, int64_t>> skips;
  std::vector<std::pair<std::string, int64_t>> faults;
  absl::Duration gpu_time;
  std::string node_fingerprint;  // empty: not seen
  int64_t fingerprint_changes = 0;
};

// The certificates that an option of the daemon names.
struct CertificateFacts {
  std::string option;
  absl::Time not_before, not_after;
};

// What a scrape reads. The functions are called on the exposer's threads: they
// must be thread-safe, short, and do no I/O.
struct MetricSources {
  std::string version;
  absl::Time start_time;
  std::function<ProfileInUse()> profile;
  std::function<int64_t()> stored_measurements;
  std::function<MeasuringFacts()> measuring;
  std::function<bool()> config_read_well;
  std::function<std::vector<CertificateFacts>()> certificates;
  std::function<std::shared_ptr<const Outlook>()> outlook;  // null: none yet
  const RequestMetrics* requests = nullptr;  // outlives the collector
};

// A collectable is kept by the exposer through a weak pointer only: the caller
// must keep this one as long as it is to be scraped. Thread-safe.
std::shared_ptr<prometheus::Collectable> MakeCollector(MetricSources sources);

}  // namespace fabricwise
