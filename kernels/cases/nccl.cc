// SPDX-License-Identifier: Apache-2.0
//
// Collectives through NCCL, sizes as nccl-tests counts them. Floors, per rank
// of n: all-reduce 2(n-1)/n of the size over the links, all-gather,
// reduce-scatter and all-to-all (n-1)/n, send/receive all of it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/case.h"
#include "kernels/cases/check.h"
#include "kernels/device/data.h"

namespace fabricwise {
namespace {

constexpr int64_t kElement = sizeof(__nv_bfloat16);

class NcclCase final : public Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const CollectiveKey& key,
                                                      Node& node) {
    auto made = std::unique_ptr<NcclCase>(new NcclCase(key, node));
    RETURN_IF_ERROR(made->Prepare());
    return made;
  }

  const std::vector<int>& devices() const override { return devices_; }

  absl::Status Enqueue(int count) override {
    for (int i = 0; i < count; ++i) RETURN_IF_ERROR(EnqueueOne());
    return absl::OkStatus();
  }

  absl::Status Verify(uint64_t seed) override {
    for (size_t lane = 0; lane < devices_.size(); ++lane) {
      CurrentDevice current(devices_[lane]);
      RETURN_IF_CUDA_ERROR(LaunchFill(in_[lane].as<__nv_bfloat16>(),
                                      in_elements_, seed, Rank(lane), 0,
                                      node_.stream(devices_[lane])));
      RETURN_IF_CUDA_ERROR(cudaMemsetAsync(out_[lane].data(), kPoison,
                                           out_[lane].size(),
                                           node_.stream(devices_[lane])));
    }
    RETURN_IF_ERROR(EnqueueOne());
    WrongCount wrong;
    for (size_t lane = 0; lane < devices_.size(); ++lane) {
      RETURN_IF_ERROR(
          wrong.Check(devices_[lane], node_.stream(devices_[lane]),
                      [&](unsigned long long* count, cudaStream_t stream) {
                        return CheckOutput(lane, seed, count, stream);
                      }));
    }
    return wrong.Verdict(ToString(MeasurementKey(key_)));
  }

  Floor floor() const override {
    const double n = key_.group.size;
    const auto size = static_cast<double>(key_.size_bytes);
    switch (key_.op) {
      case CollectiveOp::kAllReduce:
        return {.link_bytes = 2 * (n - 1) / n * size};
      case CollectiveOp::kAllGather:
      case CollectiveOp::kReduceScatter:
      case CollectiveOp::kAllToAll:
        return {.link_bytes = (n - 1) / n * size};
      case CollectiveOp::kSendRecv:
        return {.link_bytes = size};
    }
    return {};
  }

 private:
  NcclCase(const CollectiveKey& key, Node& node) : key_(key), node_(node) {}

  absl::Status Prepare() {
    const int ranks = key_.group.size;
    if (key_.concurrent_groups > 1 && !key_.group.members.empty()) {
      return absl::InvalidArgumentError(
          "groups at once are taken in order; they cannot be named");
    }
    ASSIGN_OR_RETURN(devices_,
                     node_.DevicesOf({.size = ranks * key_.concurrent_groups,
                                      .members = key_.group.members}));
    for (int group = 0; group < key_.concurrent_groups; ++group) {
      const auto begin = devices_.begin() + std::ptrdiff_t{group} * ranks;
      ASSIGN_OR_RETURN(Communicators * communicators,
                       node_.CommunicatorsOf({begin, begin + ranks}));
      groups_.push_back(communicators);
    }
    // Blocks of a rank must be equal; the size is rounded to that.
    const bool whole = key_.op == CollectiveOp::kAllReduce ||
                       key_.op == CollectiveOp::kSendRecv;
    const int64_t unit = kElement * (whole ? 1 : ranks);
    const int64_t size = std::max<int64_t>(key_.size_bytes / unit * unit, unit);
    elements_ = size / kElement;
    block_ = elements_ / ranks;
    in_elements_ = key_.op == CollectiveOp::kAllGather ? block_ : elements_;
    out_elements_ =
        key_.op == CollectiveOp::kReduceScatter ? block_ : elements_;
    if (key_.op == CollectiveOp::kAllToAll) Share();
    for (int device : devices_) {
      ASSIGN_OR_RETURN(
          DeviceBuffer in,
          DeviceBuffer::Create(device,
                               static_cast<size_t>(in_elements_) * kElement));
      ASSIGN_OR_RETURN(
          DeviceBuffer out,
          DeviceBuffer::Create(device,
                               static_cast<size_t>(out_elements_) * kElement));
      in_.push_back(std::move(in));
      out_.push_back(std::move(out));
    }
    return absl::OkStatus();
  }

  // Elements that every rank sends to rank r: a popular rank gets more, as
  // (r + 1)^-alpha, all together as many as balanced.
  void Share() {
    const int ranks = key_.group.size;
    std::vector<double> weights;
    for (int rank = 0; rank < ranks; ++rank) {
      weights.push_back(std::pow(rank + 1, -key_.skew_alpha));
    }
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    int64_t left = elements_;
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t share =
          rank + 1 == ranks
              ? left
              : std::min(left,
                         static_cast<int64_t>(std::llround(
                             static_cast<double>(elements_) *
                             weights[static_cast<size_t>(rank)] / total)));
      share_.push_back(share);
      offset_.push_back(elements_ - left);
      left -= share;
    }
    // The popular rank takes its share from everybody.
    out_elements_ = std::max(elements_, share_.front() * ranks);
  }

  int Rank(size_t lane) const {
    return static_cast<int>(lane) % key_.group.size;
  }
  ncclComm_t Comm(size_t lane) const {
    const auto ranks = static_cast<size_t>(key_.group.size);
    return groups_[lane / ranks]->at(lane % ranks);
  }

  absl::Status EnqueueOne() {
    RETURN_IF_CUDA_ERROR(ncclGroupStart());
    absl::Status status;
    for (size_t lane = 0; lane < devices_.size(); ++lane) {
      status.Update(ToStatus(EnqueueLane(lane), ToString(key_.op)));
    }
    status.Update(ToStatus(ncclGroupEnd(), "ncclGroupEnd"));
    return status;
  }

  ncclResult_t EnqueueLane(size_t lane) {
    const auto* in = in_[lane].as<__nv_bfloat16>();
    auto* out = out_[lane].as<__nv_bfloat16>();
    const auto elements = static_cast<size_t>(elements_);
    const auto block = static_cast<size_t>(block_);
    const ncclComm_t comm = Comm(lane);
    const cudaStream_t stream = node_.stream(devices_[lane]);
    const int ranks = key_.group.size, rank = Rank(lane);
    switch (key_.op) {
      case CollectiveOp::kAllReduce:
        return ncclAllReduce(in, out, elements, ncclBfloat16, ncclSum, comm,
                             stream);
      case CollectiveOp::kAllGather:
        return ncclAllGather(in, out, block, ncclBfloat16, comm, stream);
      case CollectiveOp::kReduceScatter:
        return ncclReduceScatter(in, out, block, ncclBfloat16, ncclSum, comm,
                                 stream);
      case CollectiveOp::kAllToAll: {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
        if (key_.skew_alpha == 0) {
          return ncclAlltoAll(in, out, block, ncclBfloat16, comm, stream);
        }
#endif
        const int64_t received = share_[static_cast<size_t>(rank)];
        for (int peer = 0; peer < ranks; ++peer) {
          const auto to = static_cast<size_t>(peer);
          ncclResult_t result =
              ncclSend(in + offset_[to], static_cast<size_t>(share_[to]),
                       ncclBfloat16, peer, comm, stream);
          if (result != ncclSuccess) return result;
          result =
              ncclRecv(out + peer * received, static_cast<size_t>(received),
                       ncclBfloat16, peer, comm, stream);
          if (result != ncclSuccess) return result;
        }
        return ncclSuccess;
      }
      case CollectiveOp::kSendRecv: {
        const ncclResult_t result = ncclSend(in, elements, ncclBfloat16,
                                             (rank + 1) % ranks, comm, stream);
        if (result != ncclSuccess) return result;
        return ncclRecv(out, elements, ncclBfloat16, (rank + ranks - 1) % ranks,
                        comm, stream);
      }
    }
    return ncclInvalidUsage;
  }

  cudaError_t CheckOutput(size_t lane, uint64_t seed, unsigned long long* wrong,
                          cudaStream_t stream) {
    const auto* out = out_[lane].as<__nv_bfloat16>();
    const int ranks = key_.group.size, rank = Rank(lane);
    switch (key_.op) {
      case CollectiveOp::kAllReduce:
        return LaunchCheckSum(out, elements_, seed, ranks, 0,
                              SumTolerance(ranks), wrong, stream);
      case CollectiveOp::kReduceScatter:
        return LaunchCheckSum(out, block_, seed, ranks, rank * block_,
                              SumTolerance(ranks), wrong, stream);
      case CollectiveOp::kAllGather:
        for (int from = 0; from < ranks; ++from) {
          if (cudaError_t error = LaunchCheckCopy(out + from * block_, block_,
                                                  seed, from, 0, wrong, stream);
              error != cudaSuccess) {
            return error;
          }
        }
        return cudaSuccess;
      case CollectiveOp::kAllToAll: {
        const auto own = static_cast<size_t>(rank);
        for (int from = 0; from < ranks; ++from) {
          if (share_[own] == 0) continue;
          if (cudaError_t error =
                  LaunchCheckCopy(out + from * share_[own], share_[own], seed,
                                  from, offset_[own], wrong, stream);
              error != cudaSuccess) {
            return error;
          }
        }
        return cudaSuccess;
      }
      case CollectiveOp::kSendRecv:
        return LaunchCheckCopy(out, elements_, seed, (rank + ranks - 1) % ranks,
                               0, wrong, stream);
    }
    return cudaErrorInvalidValue;
  }

  CollectiveKey key_;
  Node& node_;
  std::vector<int> devices_;
  std::vector<Communicators*> groups_;
  int64_t elements_ = 0, block_ = 0, in_elements_ = 0, out_elements_ = 0;
  std::vector<int64_t> share_, offset_;  // all-to-all
  std::vector<DeviceBuffer> in_, out_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeNcclCase(const CollectiveKey& key,
                                                   Node& node) {
  return NcclCase::Create(key, node);
}

}  // namespace fabricwise
