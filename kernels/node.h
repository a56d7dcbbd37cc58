// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of this node and what measurements share: streams, communicators,
// peer mailboxes, the way to abort.
#pragma once

#include <cublasLt.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda.h"
#include "kernels/device/all_reduce.h"
#include "server/domain/measurement.h"

namespace fabricwise {

// NCCL communicators of one group, one a rank. Aborted, not destroyed, once
// Abort was called.
class Communicators {
 public:
  static absl::StatusOr<std::unique_ptr<Communicators>> Create(
      const std::vector<int>& devices);
  ~Communicators();

  ncclComm_t at(size_t rank) const { return comms_[rank]; }
  // From any thread; ends what hangs.
  void Abort();

 private:
  std::vector<ncclComm_t> comms_;
  std::atomic<bool> aborted_ = false;
};

// Mailboxes of one group for our own kernels.
struct Peers {
  std::vector<DeviceBuffer> mailboxes, epochs;
  std::vector<PeerBuffers> by_rank;
};

class Node {
 public:
  // The GPUs `devices` as CUDA counts them; empty: all. UNAVAILABLE where there
  // is no driver or no GPU.
  static absl::StatusOr<std::unique_ptr<Node>> Create(std::vector<int> devices);

  const std::vector<int>& devices() const { return devices_; }
  int multiprocessors(int device) const;
  size_t l2_bytes(int device) const;
  int compute_capability(int device) const;
  cudaStream_t stream(int device) const;

  // The devices of `group`: its members, else the first `size` of the node.
  // FAILED_PRECONDITION where the node has them not.
  absl::StatusOr<std::vector<int>> DevicesOf(const GpuGroup& group) const;

  // Made when first asked for, kept.
  absl::StatusOr<Communicators*> CommunicatorsOf(
      const std::vector<int>& devices);
  // FAILED_PRECONDITION where two of them have no peer access.
  absl::StatusOr<Peers*> PeersOf(const std::vector<int>& devices,
                                 size_t max_bytes);
  absl::StatusOr<cublasLtHandle_t> CublasLt(int device);

  // From any thread: ends collectives that hang.
  void Abort();

 private:
  Node() = default;

  struct CublasDestroy {
    void operator()(cublasLtContext* handle) const { cublasLtDestroy(handle); }
  };

  std::vector<int> devices_;
  std::map<int, cudaDeviceProp> properties_;
  std::map<int, Stream> streams_;
  std::map<std::vector<int>, std::unique_ptr<Communicators>> communicators_;
  std::map<std::vector<int>, std::unique_ptr<Peers>> peers_;
  std::map<int, std::unique_ptr<cublasLtContext, CublasDestroy>> cublas_;
};

}  // namespace fabricwise
