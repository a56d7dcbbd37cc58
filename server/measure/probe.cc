// SPDX-License-Identifier: Apache-2.0
#include "server/measure/probe.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"
#include "server/measure/findings.h"

namespace fabricwise {
namespace {

using worker::v1::Probe;

template <typename T>
bool Complete(const std::vector<std::vector<T>>& matrix) {
  for (size_t i = 0; i < matrix.size(); ++i) {
    for (size_t j = 0; j < matrix.size(); ++j) {
      if (i != j && !matrix[i][j]) return false;
    }
  }
  return matrix.size() > 1;
}

std::string FabricName(const Fingerprint& node) {
  const auto is_set = [&](const char* variable) {
    const auto& environment = node.nccl_environment;
    return std::find(environment.begin(), environment.end(),
                     absl::StrCat(variable, "=1")) != environment.end();
  };
  if (node.gpus.size() == 1) return "single";
  if (is_set("NCCL_P2P_DISABLE")) {
    return is_set("NCCL_SHM_DISABLE") ? "net" : "shm";
  }
  if (Complete(node.nvlinks)) return "nvlink";
  if (Complete(node.peer_access)) return "pcie";
  return is_set("NCCL_SHM_DISABLE") ? "net" : "shm";
}

// Rows of one matrix, as long as there are GPUs; or none at all.
template <typename T, typename Row>
absl::StatusOr<std::vector<std::vector<T>>> Matrix(const Probe& probe,
                                                   const char* name, Row row) {
  std::vector<std::vector<T>> matrix;
  bool any = false;
  for (const Probe::Peers& peers : probe.peers()) {
    matrix.emplace_back(row(peers).begin(), row(peers).end());
    any = any || !matrix.back().empty();
  }
  if (!any) return std::vector<std::vector<T>>();
  const size_t count = static_cast<size_t>(probe.gpus_size());
  bool square = matrix.size() == count;
  for (const auto& each : matrix) square = square && each.size() == count;
  if (square) return matrix;
  return absl::InternalError(absl::StrCat("the probe's ", name, " is not ",
                                          count, " rows of ", count));
}

}  // namespace

absl::StatusOr<Fingerprint> FingerprintOf(const Probe& probe) {
  if (probe.gpus().empty()) {
    return absl::InternalError("the probe names no GPU");
  }
  Fingerprint node;
  for (int i = 0; i < probe.gpus_size(); ++i) {
    const Probe::Gpu& gpu = probe.gpus(i);
    node.gpus.push_back({.name = gpu.name(),
                         .uuid = gpu.uuid(),
                         .memory_bytes = gpu.memory_bytes(),
                         .compute_capability = gpu.compute_capability()});
    for (const std::string& fact : gpu.facts()) {
      node.facts.push_back(absl::StrCat("gpu", i, ".", fact));
    }
  }
  node.driver_version = probe.driver_version();
  node.cuda_version = probe.cuda_version();
  node.nccl_version = probe.nccl_version();
  node.nccl_environment.assign(probe.nccl_environment().begin(),
                               probe.nccl_environment().end());
  std::sort(node.nccl_environment.begin(), node.nccl_environment.end());
  ASSIGN_OR_RETURN(node.peer_access, Matrix<bool>(
                                         probe, "peer access",
                                         [](const Probe::Peers& p) -> auto& {
                                           return p.access();
                                         }));
  ASSIGN_OR_RETURN(node.nvlinks, Matrix<int>(
                                     probe, "NVLink matrix",
                                     [](const Probe::Peers& p) -> auto& {
                                       return p.nvlinks();
                                     }));
  node.facts.insert(node.facts.end(), probe.facts().begin(),
                    probe.facts().end());
  std::sort(node.facts.begin(), node.facts.end());
  node.fabric = FabricName(node);
  return node;
}

absl::StatusOr<NodeProbe> ReadProbe(const Probe& probe, absl::Time time) {
  NodeProbe read = {.time = time};
  ASSIGN_OR_RETURN(read.fingerprint, FingerprintOf(probe));
  read.busy = std::any_of(
      probe.gpus().begin(), probe.gpus().end(),
      [](const Probe::Gpu& gpu) { return gpu.foreign_process_count() > 0; });
  read.findings = Diagnose(probe);
  return read;
}

}  // namespace fabricwise
