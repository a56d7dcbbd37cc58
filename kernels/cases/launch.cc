// SPDX-License-Identifier: Apache-2.0
//
// What one more kernel costs in a CUDA graph: a chain of kernels that do
// nothing. Nothing to verify, nothing to move.
#include "kernels/case.h"
#include "kernels/device/pace.h"

namespace fabricwise {
namespace {

class LaunchCase final : public Case {
 public:
  explicit LaunchCase(Node& node)
      : node_(node), devices_({node.devices().front()}) {}

  const std::vector<int>& devices() const override { return devices_; }

  absl::Status Enqueue(int count) override {
    CurrentDevice current(devices_.front());
    for (int i = 0; i < count; ++i) {
      RETURN_IF_CUDA_ERROR(LaunchNothing(node_.stream(devices_.front())));
    }
    return absl::OkStatus();
  }

  absl::Status Verify(uint64_t) override { return Enqueue(1); }
  Floor floor() const override { return {}; }

 private:
  Node& node_;
  std::vector<int> devices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Case>> MakeLaunchCase(Node& node) {
  return std::make_unique<LaunchCase>(node);
}

}  // namespace fabricwise
