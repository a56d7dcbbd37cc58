// SPDX-License-Identifier: Apache-2.0
//
// One benchmark: what it needs, what it does once, whether it did it right.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/node.h"
#include "server/domain/measurement.h"

namespace fabricwise {

// The least that an operation must do, on the busiest GPU.
struct Floor {
  double memory_bytes = 0;  // through its own memory
  double link_bytes = 0;    // out over its links
  double operations = 0;
};

// A key made ready. Errors of any call: RESOURCE_EXHAUSTED no memory;
// INTERNAL CUDA or NCCL failed.
class Case {
 public:
  virtual ~Case() = default;

  // The GPUs that take part; each has its node's stream.
  virtual const std::vector<int>& devices() const = 0;

  // Queues the operation `count` times in a row on every device's stream.
  // Only launches, so that it can be captured into graphs.
  virtual absl::Status Enqueue(int count) = 0;

  // Fresh random inputs, poisoned outputs, one operation, every element
  // checked. DATA_LOSS where the result is wrong.
  virtual absl::Status Verify(uint64_t seed) = 0;

  virtual Floor floor() const = 0;

  // What routing put on the GPU, where that is part of the key's meaning.
  virtual ExpertsObserved experts() const { return {}; }

  // What the operation is enqueued in turn with, if anything: its time alone is
  // taken off. On the same devices; owned by this case.
  virtual Case* company() { return nullptr; }

  // What the time of one graph replay with `count` operations is divided by.
  virtual double OperationsPerEnqueue() const { return 1; }
};

// FAILED_PRECONDITION or UNIMPLEMENTED: not on this node, and why.
// INVALID_ARGUMENT: a key that no case takes.
absl::StatusOr<std::unique_ptr<Case>> MakeCase(const MeasurementKey& key,
                                               Node& node);

// One file each in kernels/cases.
absl::StatusOr<std::unique_ptr<Case>> MakeNcclCase(const CollectiveKey& key,
                                                   Node& node);
absl::StatusOr<std::unique_ptr<Case>> MakePeerCase(const CollectiveKey& key,
                                                   Node& node);
absl::StatusOr<std::unique_ptr<Case>> MakeAttentionCase(const AttentionKey& key,
                                                        Node& node);
absl::StatusOr<std::unique_ptr<Case>> MakePromptAttentionCase(
    const AttentionKey& key, Node& node);
absl::StatusOr<std::unique_ptr<Case>> MakeExpertsCase(const ExpertsKey& key,
                                                      Node& node);
absl::StatusOr<std::unique_ptr<Case>> MakeGemmCase(const GemmKey& key,
                                                   Node& node, int device);
// `collective`, in turn with a product on each of its devices.
absl::StatusOr<std::unique_ptr<Case>> MakeInterleavedCase(
    std::unique_ptr<Case> collective, Node& node);
absl::StatusOr<std::unique_ptr<Case>> MakeMemoryCase(const MemoryKey& key,
                                                     Node& node);
absl::StatusOr<std::unique_ptr<Case>> MakeLaunchCase(Node& node);

}  // namespace fabricwise
