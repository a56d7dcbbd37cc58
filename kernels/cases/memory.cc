// SPDX-License-Identifier: Apache-2.0
//
// Reading and copying GPU memory. Successive operations go round an arena
// larger than the L2 cache, as the weights and KV of a model do.
#include "kernels/device/memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/case.h"
#include "kernels/cases/check.h"
#include "kernels/device/data.h"

namespace fabricwise {
namespace {

// The arena is this many times the L2 cache at least.
constexpr size_t kCaches = 4;
constexpr size_t kVector = 16;
// What a check brings back to the host at most.
constexpr size_t kCheckBytes = size_t{64} << 20;

class MemoryCase final : public Case {
 public:
  static absl::StatusOr<std::unique_ptr<Case>> Create(const MemoryKey& key,
                                                      Node& node) {
    auto made = std::unique_ptr<MemoryCase>(new MemoryCase(key, node));
    RETURN_IF_ERROR(made->Prepare());
    return made;
  }

  const std::vector<int>& devices() const override { return devices_; }

  absl::Status Enqueue(int count) override {
    CurrentDevice current(device());
    for (int i = 0; i < count; ++i) {
      const size_t offset = next_ * size_;
      next_ = (next_ + 1) % slots_;
      if (key_.op == MemoryOp::kRead) {
        RETURN_IF_CUDA_ERROR(LaunchRead(
            from_.as<char>() + offset, size_, sum_.as<uint32_t>(),
            node_.multiprocessors(device()), node_.stream(device())));
      } else {
        RETURN_IF_CUDA_ERROR(LaunchCopy(
            to_.as<char>() + offset, from_.as<char>() + offset, size_,
            node_.multiprocessors(device()), node_.stream(device())));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Verify(uint64_t seed) override {
    CurrentDevice current(device());
    const cudaStream_t stream = node_.stream(device());
    const auto elements = static_cast<int64_t>(size_ / sizeof(__nv_bfloat16));
    next_ = 0;
    RETURN_IF_CUDA_ERROR(
        LaunchFill(from_.as<__nv_bfloat16>(), elements, seed, 0, 0, stream));
    if (key_.op == MemoryOp::kCopy) {
      RETURN_IF_CUDA_ERROR(
          cudaMemsetAsync(to_.data(), kPoison, to_.size(), stream));
      RETURN_IF_ERROR(Enqueue(1));
      WrongCount wrong;
      RETURN_IF_ERROR(wrong.Check(
          device(), stream, [&](unsigned long long* count, cudaStream_t on) {
            return LaunchCheckCopy(to_.as<__nv_bfloat16>(), elements, seed, 0,
                                   0, count, on);
          }));
      return wrong.Verdict("memory/copy");
    }
    // The checksum of a part, against the host's.
    const size_t part = std::min(size_, kCheckBytes);
    RETURN_IF_CUDA_ERROR(cudaMemsetAsync(sum_.data(), 0, sum_.size(), stream));
    RETURN_IF_CUDA_ERROR(LaunchRead(from_.data(), part, sum_.as<uint32_t>(),
                                    node_.multiprocessors(device()), stream));
    uint32_t sum = 0;
    std::vector<uint32_t> words(part / sizeof(uint32_t));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(&sum, sum_.data(), sizeof(sum),
                                         cudaMemcpyDeviceToHost, stream));
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(words.data(), from_.data(), part,
                                         cudaMemcpyDeviceToHost, stream));
    RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream));
    if (std::accumulate(words.begin(), words.end(), uint32_t{0}) != sum) {
      return absl::DataLossError("memory/read: the checksum is wrong");
    }
    return absl::OkStatus();
  }

  Floor floor() const override {
    return {.memory_bytes = static_cast<double>(size_) *
                            (key_.op == MemoryOp::kRead ? 1 : 2)};
  }

 private:
  MemoryCase(const MemoryKey& key, Node& node) : key_(key), node_(node) {}

  int device() const { return devices_.front(); }

  absl::Status Prepare() {
    devices_ = {node_.devices().front()};
    size_ = std::max(static_cast<size_t>(key_.size_bytes) / kVector * kVector,
                     kVector);
    slots_ = std::max<size_t>(1, kCaches * node_.l2_bytes(device()) / size_);
    ASSIGN_OR_RETURN(from_, DeviceBuffer::Create(device(), slots_ * size_));
    CurrentDevice current(device());
    RETURN_IF_CUDA_ERROR(
        LaunchFill(from_.as<__nv_bfloat16>(),
                   static_cast<int64_t>(from_.size() / sizeof(__nv_bfloat16)),
                   0, 0, 0, node_.stream(device())));
    if (key_.op == MemoryOp::kCopy) {
      ASSIGN_OR_RETURN(to_, DeviceBuffer::Create(device(), slots_ * size_));
    }
    ASSIGN_OR_RETURN(sum_, DeviceBuffer::Create(device(), sizeof(uint32_t)));
    RETURN_IF_CUDA_ERROR(cudaMemset(sum_.data(), 0, sum_.size()));
    return absl::OkStatus();
  }

  MemoryKey key_;
  Node& node_;
  std::vector<int> devices_;
  size_t size_ = 0, slots_ = 1, next_ = 0;
  DeviceBuffer from_, to_, sum_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeMemoryCase(const MemoryKey& key,
                                                     Node& node) {
  return MemoryCase::Create(key, node);
}

}  // namespace fabricwise
