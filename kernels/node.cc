// SPDX-License-Identifier: Apache-2.0
#include "kernels/node.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fabricwise {

absl::StatusOr<std::unique_ptr<Communicators>> Communicators::Create(
    const std::vector<int>& devices) {
  auto made = std::make_unique<Communicators>();
  made->comms_.resize(devices.size());
  RETURN_IF_CUDA_ERROR(ncclCommInitAll(
      made->comms_.data(), static_cast<int>(devices.size()), devices.data()));
  return made;
}

Communicators::~Communicators() {
  if (aborted_) return;
  for (ncclComm_t comm : comms_) ncclCommDestroy(comm);
}

void Communicators::Abort() {
  if (aborted_.exchange(true)) return;
  for (ncclComm_t comm : comms_) ncclCommAbort(comm);
}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(std::vector<int> devices) {
  int count = 0;
  RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count));
  if (devices.empty()) {
    for (int i = 0; i < count; ++i) devices.push_back(i);
  }
  auto node = std::unique_ptr<Node>(new Node);
  for (int device : devices) {
    if (device < 0 || device >= count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "GPU ", device, " is not one of the ", count, " of this node"));
    }
    RETURN_IF_CUDA_ERROR(
        cudaGetDeviceProperties(&node->properties_[device], device));
    ASSIGN_OR_RETURN(Stream stream, MakeStream(device));
    node->streams_[device] = std::move(stream);
  }
  node->devices_ = std::move(devices);
  return node;
}

int Node::multiprocessors(int device) const {
  return properties_.at(device).multiProcessorCount;
}

size_t Node::l2_bytes(int device) const {
  return static_cast<size_t>(properties_.at(device).l2CacheSize);
}

int Node::compute_capability(int device) const {
  const cudaDeviceProp& properties = properties_.at(device);
  return properties.major * 10 + properties.minor;
}

cudaStream_t Node::stream(int device) const {
  return streams_.at(device).get();
}

absl::StatusOr<std::vector<int>> Node::DevicesOf(const GpuGroup& group) const {
  std::vector<int> members;
  if (group.members.empty()) {
    members = devices_;
    members.resize(std::min(members.size(), static_cast<size_t>(group.size)));
  } else {
    for (absl::string_view text : absl::StrSplit(group.members, ',')) {
      int device = 0;
      if (!absl::SimpleAtoi(text, &device) ||
          std::find(devices_.begin(), devices_.end(), device) ==
              devices_.end()) {
        return absl::FailedPreconditionError(
            absl::StrCat("group member '", std::string(text),
                         "' is not one of the GPUs in use"));
      }
      members.push_back(device);
    }
  }
  if (members.size() != static_cast<size_t>(group.size)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a group of ", group.size, " GPUs; there are ", members.size()));
  }
  return members;
}

absl::StatusOr<Communicators*> Node::CommunicatorsOf(
    const std::vector<int>& devices) {
  auto& known = communicators_[devices];
  if (known == nullptr) {
    ASSIGN_OR_RETURN(known, Communicators::Create(devices));
  }
  return known.get();
}

absl::StatusOr<Peers*> Node::PeersOf(const std::vector<int>& devices,
                                     size_t max_bytes) {
  auto& known = peers_[devices];
  if (known != nullptr && known->by_rank.front().max_bytes >= max_bytes) {
    return known.get();
  }
  if (devices.size() > static_cast<size_t>(kMaxPeers)) {
    return absl::FailedPreconditionError(absl::StrCat(
        devices.size(), " ranks; our kernels take at most ", kMaxPeers));
  }
  auto peers = std::make_unique<Peers>();
  const int ranks = static_cast<int>(devices.size());
  for (int device : devices) {
    CurrentDevice current(device);
    for (int other : devices) {
      if (other == device) continue;
      int access = 0;
      RETURN_IF_CUDA_ERROR(cudaDeviceCanAccessPeer(&access, device, other));
      if (access == 0) {
        return absl::FailedPreconditionError(
            absl::StrCat("GPU ", device, " has no peer access to GPU ", other));
      }
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
      if (enabled != cudaErrorPeerAccessAlreadyEnabled) {
        RETURN_IF_CUDA_ERROR(enabled);
      }
      cudaGetLastError();  // "already enabled" would stick
    }
    ASSIGN_OR_RETURN(
        DeviceBuffer mailbox,
        DeviceBuffer::Create(device, MailboxBytes(ranks, max_bytes)));
    RETURN_IF_CUDA_ERROR(cudaMemset(mailbox.data(), 0, mailbox.size()));
    ASSIGN_OR_RETURN(
        DeviceBuffer epochs,
        DeviceBuffer::Create(device, kMaxExchangeBlocks * sizeof(uint32_t)));
    RETURN_IF_CUDA_ERROR(cudaMemset(epochs.data(), 0, epochs.size()));
    RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    peers->mailboxes.push_back(std::move(mailbox));
    peers->epochs.push_back(std::move(epochs));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    PeerBuffers& buffers = peers->by_rank.emplace_back();
    for (int i = 0; i < ranks; ++i) {
      buffers.mailbox[i] = peers->mailboxes[static_cast<size_t>(i)].data();
    }
    buffers.epochs = peers->epochs[static_cast<size_t>(rank)].as<uint32_t>();
    buffers.rank = rank;
    buffers.ranks = ranks;
    buffers.max_bytes = max_bytes;
  }
  known = std::move(peers);
  return known.get();
}

absl::StatusOr<cublasLtHandle_t> Node::CublasLt(int device) {
  auto& known = cublas_[device];
  if (known == nullptr) {
    CurrentDevice current(device);
    cublasLtHandle_t handle = nullptr;
    if (const cublasStatus_t status = cublasLtCreate(&handle);
        status != CUBLAS_STATUS_SUCCESS) {
      return absl::InternalError(
          absl::StrCat("cublasLtCreate: ", cublasLtGetStatusString(status)));
    }
    known.reset(handle);
  }
  return known.get();
}

void Node::Abort() {
  for (auto& [devices, communicators] : communicators_) {
    if (communicators != nullptr) communicators->Abort();
  }
}

}  // namespace fabricwise
