// SPDX-License-Identifier: Apache-2.0
//
// Our own collectives over peer memory: one-shot and two-shot all-reduce,
// direct all-to-all. Floors: kernels/device/all_reduce.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/case.h"
#include "kernels/cases/check.h"
#include "kernels/device/data.h"

namespace fabricwise {
namespace {

constexpr int64_t kElement = sizeof(__nv_bfloat16);

// Flags double what is sent; beyond this NCCL's other protocols are better.
constexpr int64_t kMaxBytes = int64_t{8} << 20;

class PeerCase final : public Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const CollectiveKey& key,
                                                      Node& node) {
    auto made = std::unique_ptr<PeerCase>(new PeerCase(key, node));
    RETURN_IF_ERROR(made->Prepare());
    return made;
  }

  const std::vector<int>& devices() const override { return devices_; }

  absl::Status Enqueue(int count) override {
    for (int i = 0; i < count; ++i) {
      for (size_t rank = 0; rank < devices_.size(); ++rank) {
        CurrentDevice current(devices_[rank]);
        RETURN_IF_CUDA_ERROR(EnqueueRank(rank));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Verify(uint64_t seed) override {
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      CurrentDevice current(devices_[rank]);
      const cudaStream_t stream = node_.stream(devices_[rank]);
      RETURN_IF_CUDA_ERROR(LaunchFill(in_[rank].as<__nv_bfloat16>(), elements_,
                                      seed, static_cast<int>(rank), 0, stream));
      RETURN_IF_CUDA_ERROR(cudaMemsetAsync(out_[rank].data(), kPoison,
                                           out_[rank].size(), stream));
    }
    RETURN_IF_ERROR(Enqueue(1));
    WrongCount wrong;
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      RETURN_IF_ERROR(
          wrong.Check(devices_[rank], node_.stream(devices_[rank]),
                      [&](unsigned long long* count, cudaStream_t stream) {
                        return CheckOutput(rank, seed, count, stream);
                      }));
    }
    return wrong.Verdict(ToString(MeasurementKey(key_)));
  }

  Floor floor() const override {
    const double n = key_.group.size;
    const auto size = static_cast<double>(key_.size_bytes);
    const bool one_shot = key_.op == CollectiveOp::kAllReduce &&
                          key_.implementation == CollectiveImpl::kOneShot;
    const bool all_to_all = key_.op == CollectiveOp::kAllToAll;
    constexpr double kFlags = 2;
    return {.link_bytes = kFlags * size *
                          (one_shot     ? n - 1
                           : all_to_all ? (n - 1) / n
                                        : 2 * (n - 1) / n)};
  }

 private:
  PeerCase(const CollectiveKey& key, Node& node) : key_(key), node_(node) {}

  absl::Status Prepare() {
    const bool all_reduce = key_.op == CollectiveOp::kAllReduce;
    const bool direct = key_.op == CollectiveOp::kAllToAll &&
                        key_.implementation == CollectiveImpl::kOneShot;
    if (!all_reduce && !direct) {
      return absl::UnimplementedError(
          absl::StrCat(ToString(key_.op), " has no ",
                       ToString(key_.implementation), " kernel"));
    }
    if (key_.concurrent_groups > 1 || key_.skew_alpha > 0) {
      return absl::UnimplementedError(
          "our own kernels run one balanced group at a time");
    }
    if (key_.size_bytes > kMaxBytes) {
      return absl::UnimplementedError(
          absl::StrCat("our own kernels take at most ", kMaxBytes, " bytes"));
    }
    ASSIGN_OR_RETURN(devices_, node_.DevicesOf(key_.group));
    ASSIGN_OR_RETURN(peers_, node_.PeersOf(devices_, kMaxBytes));
    // Whole words of four elements for every rank.
    const int64_t unit = 4 * kElement * key_.group.size;
    elements_ =
        std::max<int64_t>(key_.size_bytes / unit * unit, unit) / kElement;
    for (int device : devices_) {
      const size_t bytes = static_cast<size_t>(elements_) * kElement;
      ASSIGN_OR_RETURN(DeviceBuffer in, DeviceBuffer::Create(device, bytes));
      ASSIGN_OR_RETURN(DeviceBuffer out, DeviceBuffer::Create(device, bytes));
      in_.push_back(std::move(in));
      out_.push_back(std::move(out));
    }
    return absl::OkStatus();
  }

  cudaError_t EnqueueRank(size_t rank) {
    const PeerBuffers& peers = peers_->by_rank[rank];
    const auto* in = in_[rank].as<__nv_bfloat16>();
    auto* out = out_[rank].as<__nv_bfloat16>();
    const cudaStream_t stream = node_.stream(devices_[rank]);
    if (key_.op == CollectiveOp::kAllToAll) {
      return LaunchDirectAllToAll(peers, in, out, elements_, stream);
    }
    if (key_.implementation == CollectiveImpl::kOneShot) {
      return LaunchOneShotAllReduce(peers, in, out, elements_, stream);
    }
    return LaunchTwoShotAllReduce(peers, in, out, elements_, stream);
  }

  cudaError_t CheckOutput(size_t rank, uint64_t seed, unsigned long long* wrong,
                          cudaStream_t stream) {
    const auto* out = out_[rank].as<__nv_bfloat16>();
    const int ranks = key_.group.size;
    if (key_.op == CollectiveOp::kAllReduce) {
      return LaunchCheckSum(out, elements_, seed, ranks, 0, SumTolerance(ranks),
                            wrong, stream);
    }
    const int64_t block = elements_ / ranks;
    for (int from = 0; from < ranks; ++from) {
      if (cudaError_t error = LaunchCheckCopy(
              out + from * block, block, seed, from,
              static_cast<int64_t>(rank) * block, wrong, stream);
          error != cudaSuccess) {
        return error;
      }
    }
    return cudaSuccess;
  }

  CollectiveKey key_;
  Node& node_;
  std::vector<int> devices_;
  Peers* peers_ = nullptr;
  int64_t elements_ = 0;
  std::vector<DeviceBuffer> in_, out_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakePeerCase(const CollectiveKey& key,
                                                   Node& node) {
  return PeerCase::Create(key, node);
}

}  // namespace fabricwise
