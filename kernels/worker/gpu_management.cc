// SPDX-License-Identifier: Apache-2.0
#include "kernels/worker/gpu_management.h"

#include <dlfcn.h>
#include <nvml.h>

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace fabricwise {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";

}  // namespace

// One pointer a function that is used; null where the driver has it not.
struct Nvml::Functions {
#define FABRICWISE_NVML_FUNCTIONS(use)            \
  use(nvmlInit_v2);                               \
  use(nvmlShutdown);                              \
  use(nvmlSystemGetDriverVersion);                \
  use(nvmlDeviceGetHandleByPciBusId_v2);          \
  use(nvmlDeviceGetUUID);                         \
  use(nvmlDeviceGetCurrPcieLinkGeneration);       \
  use(nvmlDeviceGetCurrPcieLinkWidth);            \
  use(nvmlDeviceGetMaxPcieLinkGeneration);        \
  use(nvmlDeviceGetMaxPcieLinkWidth);             \
  use(nvmlDeviceGetEccMode);                      \
  use(nvmlDeviceGetMigMode);                      \
  use(nvmlDeviceGetEnforcedPowerLimit);           \
  use(nvmlDeviceGetClockInfo);                    \
  use(nvmlDeviceGetCurrentClocksThrottleReasons); \
  use(nvmlDeviceGetComputeRunningProcesses_v3);   \
  use(nvmlDeviceGetNvLinkState);                  \
  use(nvmlDeviceGetNvLinkRemotePciInfo_v2)
#define FABRICWISE_DECLARE(name) decltype(&::name) name = nullptr
  FABRICWISE_NVML_FUNCTIONS(FABRICWISE_DECLARE);
#undef FABRICWISE_DECLARE
  void* library = nullptr;
};

Nvml::Nvml(std::unique_ptr<Functions> functions)
    : functions_(std::move(functions)) {}

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Load() {
  auto functions = std::make_unique<Functions>();
  functions->library = dlopen(kLibrary, RTLD_NOW);
  if (functions->library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no NVIDIA driver: ", kLibrary, " cannot be loaded"));
  }
#define FABRICWISE_LOAD(name) \
  functions->name =           \
      reinterpret_cast<decltype(&::name)>(dlsym(functions->library, #name))
  FABRICWISE_NVML_FUNCTIONS(FABRICWISE_LOAD);
#undef FABRICWISE_LOAD
  if (functions->nvmlInit_v2 == nullptr ||
      functions->nvmlInit_v2() != NVML_SUCCESS) {
    return absl::UnavailableError("the NVIDIA driver does not answer");
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

Nvml::~Nvml() {
  if (functions_->nvmlShutdown != nullptr) functions_->nvmlShutdown();
  dlclose(functions_->library);
}

void* Nvml::Handle(const std::string& bus_id) const {
  nvmlDevice_t device = nullptr;
  if (functions_->nvmlDeviceGetHandleByPciBusId_v2 == nullptr ||
      functions_->nvmlDeviceGetHandleByPciBusId_v2(bus_id.c_str(), &device) !=
          NVML_SUCCESS) {
    return nullptr;
  }
  return device;
}

// Calls `function` of the device and returns its first output; T{} on failure.
#define FABRICWISE_ASK(T, function, ...)                                    \
  [&]() -> std::optional<T> {                                               \
    auto* const device = static_cast<nvmlDevice_t>(Handle(bus_id));         \
    T value{};                                                              \
    if (device == nullptr || functions_->function == nullptr ||             \
        functions_->function(device, __VA_ARGS__ __VA_OPT__(, ) & value) != \
            NVML_SUCCESS) {                                                 \
      return std::nullopt;                                                  \
    }                                                                       \
    return value;                                                           \
  }()

std::string Nvml::DriverVersion() const {
  std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> text{};
  if (functions_->nvmlSystemGetDriverVersion == nullptr ||
      functions_->nvmlSystemGetDriverVersion(
          text.data(), static_cast<unsigned>(text.size())) != NVML_SUCCESS) {
    return "";
  }
  return text.data();
}

std::string Nvml::Uuid(const std::string& bus_id) const {
  auto* const device = static_cast<nvmlDevice_t>(Handle(bus_id));
  std::array<char, NVML_DEVICE_UUID_V2_BUFFER_SIZE> text{};
  if (device == nullptr || functions_->nvmlDeviceGetUUID == nullptr ||
      functions_->nvmlDeviceGetUUID(device, text.data(),
                                    static_cast<unsigned>(text.size())) !=
          NVML_SUCCESS) {
    return "";
  }
  return text.data();
}

PcieState Nvml::Pcie(const std::string& bus_id) const {
  return {
      .generation =
          FABRICWISE_ASK(unsigned, nvmlDeviceGetCurrPcieLinkGeneration)
              .value_or(0),
      .width =
          FABRICWISE_ASK(unsigned, nvmlDeviceGetCurrPcieLinkWidth).value_or(0),
      .best_generation =
          FABRICWISE_ASK(unsigned, nvmlDeviceGetMaxPcieLinkGeneration)
              .value_or(0),
      .best_width =
          FABRICWISE_ASK(unsigned, nvmlDeviceGetMaxPcieLinkWidth).value_or(0)};
}

std::optional<bool> Nvml::Ecc(const std::string& bus_id) const {
  auto* const device = static_cast<nvmlDevice_t>(Handle(bus_id));
  nvmlEnableState_t current{}, pending{};
  if (device == nullptr || functions_->nvmlDeviceGetEccMode == nullptr ||
      functions_->nvmlDeviceGetEccMode(device, &current, &pending) !=
          NVML_SUCCESS) {
    return std::nullopt;
  }
  return current == NVML_FEATURE_ENABLED;
}

std::optional<bool> Nvml::Mig(const std::string& bus_id) const {
  auto* const device = static_cast<nvmlDevice_t>(Handle(bus_id));
  unsigned current = 0, pending = 0;
  if (device == nullptr || functions_->nvmlDeviceGetMigMode == nullptr ||
      functions_->nvmlDeviceGetMigMode(device, &current, &pending) !=
          NVML_SUCCESS) {
    return std::nullopt;
  }
  return current == NVML_DEVICE_MIG_ENABLE;
}

double Nvml::PowerCapWatts(const std::string& bus_id) const {
  constexpr double kMilliwatts = 1e-3;
  return kMilliwatts *
         FABRICWISE_ASK(unsigned, nvmlDeviceGetEnforcedPowerLimit).value_or(0);
}

double Nvml::SmClockHertz(const std::string& bus_id) const {
  constexpr double kMegahertz = 1e6;
  const auto clock =
      FABRICWISE_ASK(unsigned, nvmlDeviceGetClockInfo, NVML_CLOCK_SM);
  return clock.has_value() ? kMegahertz * *clock : -1;
}

std::string Nvml::Throttled(const std::string& bus_id) const {
  const unsigned long long reasons =
      FABRICWISE_ASK(unsigned long long,
                     nvmlDeviceGetCurrentClocksThrottleReasons)
          .value_or(0);
  if ((reasons & nvmlClocksThrottleReasonHwThermalSlowdown) != 0 ||
      (reasons & nvmlClocksThrottleReasonSwThermalSlowdown) != 0) {
    return "throttled by heat";
  }
  if ((reasons & nvmlClocksThrottleReasonHwPowerBrakeSlowdown) != 0 ||
      (reasons & nvmlClocksThrottleReasonHwSlowdown) != 0) {
    return "throttled by the power supply";
  }
  return "";
}

int Nvml::ProcessCount(const std::string& bus_id) const {
  auto* const device = static_cast<nvmlDevice_t>(Handle(bus_id));
  if (device == nullptr ||
      functions_->nvmlDeviceGetComputeRunningProcesses_v3 == nullptr) {
    return 0;
  }
  unsigned count = 0;
  const nvmlReturn_t result =
      functions_->nvmlDeviceGetComputeRunningProcesses_v3(device, &count,
                                                          nullptr);
  return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE
             ? static_cast<int>(count)
             : 0;
}

std::vector<std::string> Nvml::NvlinkPeers(const std::string& bus_id) const {
  auto* const device = static_cast<nvmlDevice_t>(Handle(bus_id));
  std::vector<std::string> peers;
  if (device == nullptr || functions_->nvmlDeviceGetNvLinkState == nullptr ||
      functions_->nvmlDeviceGetNvLinkRemotePciInfo_v2 == nullptr) {
    return peers;
  }
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    nvmlEnableState_t state{};
    nvmlPciInfo_t remote{};
    if (functions_->nvmlDeviceGetNvLinkState(device, link, &state) ==
            NVML_SUCCESS &&
        state == NVML_FEATURE_ENABLED &&
        functions_->nvmlDeviceGetNvLinkRemotePciInfo_v2(
            device, link, &remote) == NVML_SUCCESS) {
      peers.emplace_back(remote.busId);
    }
  }
  return peers;
}

int Nvml::NvlinksDown(const std::string& bus_id) const {
  auto* const device = static_cast<nvmlDevice_t>(Handle(bus_id));
  int down = 0;
  if (device == nullptr || functions_->nvmlDeviceGetNvLinkState == nullptr) {
    return down;
  }
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    nvmlEnableState_t state{};
    if (functions_->nvmlDeviceGetNvLinkState(device, link, &state) ==
            NVML_SUCCESS &&
        state != NVML_FEATURE_ENABLED) {
      ++down;
    }
  }
  return down;
}

#undef FABRICWISE_ASK

}  // namespace fabricwise
