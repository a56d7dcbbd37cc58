// SPDX-License-Identifier: Apache-2.0
#include "server/model/memory.h"

#include <algorithm>
#include <cmath>

#include "server/model/load.h"

namespace fabricwise {
namespace {

// Far more than any GPU has, and little enough that sums stay in 64 bits.
constexpr double kMostBytes = 1.0 * (int64_t{1} << 60);

int64_t Bytes(double value) {
  return static_cast<int64_t>(std::ceil(std::min(value, kMostBytes)));
}

}  // namespace

MemoryUse ComputeMemory(const Recipe& recipe, const Plan& plan,
                        const Workload& workload, int64_t gpu_memory_bytes) {
  const MemoryRecipe& memory = recipe.memory;
  const double context = FinalContext(workload);
  const double per_sequence =
      memory.kv_bytes_per_token * context +
      memory.window_kv_bytes_per_token *
          std::min(context, static_cast<double>(memory.window_tokens)) +
      memory.state_bytes_per_sequence;
  // All micro-batches of a replica keep their KV at once.
  const int64_t ranks = int64_t{plan.replicas} * plan.attention_dp;
  const int64_t sequences =
      (DecodeLoad(workload, plan).replica_sequences + plan.attention_dp - 1) /
      plan.attention_dp;

  MemoryUse use{
      .weights_bytes = Bytes(memory.weights_bytes),
      .kv_cache_bytes = Bytes(per_sequence * static_cast<double>(sequences)),
      .activation_bytes = Bytes(memory.activation_bytes),
      .communicator_bytes = Bytes(memory.communicator_bytes)};
  if (gpu_memory_bytes <= 0) return use;
  const auto fixed =
      static_cast<double>(use.total_bytes() - use.kv_cache_bytes);
  const double usable =
      static_cast<double>(gpu_memory_bytes) * memory.usable_fraction;
  const double withheld =
      (1 - memory.kv_fraction) * std::max(0.0, usable - fixed);
  use.available_bytes = static_cast<int64_t>(usable - withheld);
  use.fits = use.total_bytes() <= use.available_bytes;
  const double left = static_cast<double>(use.available_bytes) - fixed;
  use.max_concurrency =
      left <= 0
          ? 0
          : static_cast<int64_t>(std::min(
                left / per_sequence, static_cast<double>(kMaxConcurrency))) *
                ranks;
  use.max_concurrency = std::min(*use.max_concurrency, kMaxConcurrency);
  return use;
}

}  // namespace fabricwise
