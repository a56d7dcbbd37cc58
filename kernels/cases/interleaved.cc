// SPDX-License-Identifier: Apache-2.0
//
// A collective in turn with a matrix product on every GPU, as the layers of a
// decode step have it: ranks come to it a little apart, and its kernels meet
// cold caches and busy multiprocessors.
#include <utility>

#include "kernels/case.h"

namespace fabricwise {
namespace {

// A projection of a decode step: 32 MiB of weights, about 8 us of an H200.
constexpr GemmKey kProduct = {
    .format = NumberFormat::kBf16, .m = 64, .n = 4096, .k = 4096};

class Products final : public Case {
 public:
  Products(std::vector<int> devices, std::vector<std::unique_ptr<Case>> each)
      : devices_(std::move(devices)), each_(std::move(each)) {}

  const std::vector<int>& devices() const override { return devices_; }
  absl::Status Enqueue(int count) override {
    for (const auto& product : each_) RETURN_IF_ERROR(product->Enqueue(count));
    return absl::OkStatus();
  }
  absl::Status Verify(uint64_t seed) override {
    for (const auto& product : each_) RETURN_IF_ERROR(product->Verify(seed));
    return absl::OkStatus();
  }
  Floor floor() const override { return each_.front()->floor(); }

 private:
  std::vector<int> devices_;
  std::vector<std::unique_ptr<Case>> each_;
};

class InterleavedCase final : public Case {
 public:
  InterleavedCase(std::unique_ptr<Case> collective, Products products)
      : collective_(std::move(collective)), products_(std::move(products)) {}

  const std::vector<int>& devices() const override {
    return collective_->devices();
  }
  absl::Status Enqueue(int count) override {
    for (int i = 0; i < count; ++i) {
      RETURN_IF_ERROR(products_.Enqueue(1));
      RETURN_IF_ERROR(collective_->Enqueue(1));
    }
    return absl::OkStatus();
  }
  absl::Status Verify(uint64_t seed) override {
    RETURN_IF_ERROR(products_.Verify(seed));
    return collective_->Verify(seed);
  }
  Floor floor() const override { return collective_->floor(); }
  Case* company() override { return &products_; }

 private:
  std::unique_ptr<Case> collective_;
  Products products_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeInterleavedCase(
    std::unique_ptr<Case> collective, Node& node) {
  std::vector<std::unique_ptr<Case>> each;
  for (const int device : collective->devices()) {
    ASSIGN_OR_RETURN(std::unique_ptr<Case> product,
                     MakeGemmCase(kProduct, node, device));
    each.push_back(std::move(product));
  }
  Products products(collective->devices(), std::move(each));
  return std::make_unique<InterleavedCase>(std::move(collective),
                                           std::move(products));
}

}  // namespace fabricwise
