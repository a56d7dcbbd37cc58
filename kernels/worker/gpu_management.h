// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA's management library, loaded when asked for, so that the worker starts
// where there is no driver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace fabricwise {

struct PcieState {
  unsigned generation = 0, width = 0;            // now
  unsigned best_generation = 0, best_width = 0;  // that the two ends can do
};

class Nvml {
 public:
  // UNAVAILABLE where the library or the driver is missing.
  static absl::StatusOr<std::unique_ptr<Nvml>> Load();
  ~Nvml();

  std::string DriverVersion() const;
  // All below take the GPU's PCI bus id, as CUDA gives it. What the driver does
  // not tell is empty, 0, or nullopt.
  std::string Uuid(const std::string& bus_id) const;
  PcieState Pcie(const std::string& bus_id) const;
  std::optional<bool> Ecc(const std::string& bus_id) const;
  std::optional<bool> Mig(const std::string& bus_id) const;
  double PowerCapWatts(const std::string& bus_id) const;
  double SmClockHertz(const std::string& bus_id) const;
  // Why clocks are held back by heat or by the power supply; empty: they are
  // not. (The configured power cap does not count: it is how the GPU is.)
  std::string Throttled(const std::string& bus_id) const;
  int ProcessCount(const std::string& bus_id) const;
  // Bus ids at the other ends of this GPU's active NVLinks; a switch has one
  // too.
  std::vector<std::string> NvlinkPeers(const std::string& bus_id) const;
  // NVLinks that exist but are down.
  int NvlinksDown(const std::string& bus_id) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  void* Handle(const std::string& bus_id) const;

  std::unique_ptr<Functions> functions_;
};

}  // namespace fabricwise
