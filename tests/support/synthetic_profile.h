// SPDX-License-Identifier: Apache-2.0
//
// A made-up node from simple formulas, for tests and benchmarks that need every
// plan of any model costed, or just one property of a node changed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/domain/measurement.h"
#include "server/profile/profile.h"

namespace fabricwise {

// Every time is a latency plus work over a rate. The defaults are round figures
// of an eight-GPU node with a good fabric.
struct SyntheticNode {
  std::string name = "synthetic";
  int gpus = 8;
  int64_t memory_bytes = 141'000'000'000;  // of each GPU
  bool nvlink = true;  // all to all, with peer access; else neither

  // A collective among n GPUs in a graph: latency x log2(2 n), and its size
  // over the rate (both ways for an all-reduce, whose kernels over peer memory
  // take as long as NCCL's). Eager: once eager_seconds more.
  double fabric_latency_seconds = 5e-6;
  double fabric_bytes_per_second = 300e9;
  double eager_seconds = 10e-6;
  // An all-to-all of a larger buffer takes all_to_all_cliff times as long.
  double all_to_all_cliff_bytes = 1e18;
  double all_to_all_cliff = 1;

  double kernel_seconds = 3e-6;
  double memory_bytes_per_second = 4e12;
  double operations_per_second = 600e12;
  double graph_node_seconds = 1.5e-6;

  // Which measurements there are: those for which it answers true.
  std::function<bool(const MeasurementKey&)> keep = [](const MeasurementKey&) {
    return true;
  };
};

// Collectives among 2 ... `gpus` GPUs; products in bf16 and fp8; routed experts
// of three shards in bf16, fp8 blocks, int4 groups of 32 and mxfp4; memory;
// launch. No attention: reading its KV stands in. All measured on the node,
// with a spread of 1 %.
ProfileData SyntheticProfileData(const SyntheticNode& node);

// The same, built.
std::shared_ptr<const Profile> SyntheticProfile(const SyntheticNode& node = {});

// That node with `gpus` GPUs, products and experts in bf16 alone, a cliff of
// the all-to-all at 64 KiB, and all that a fingerprint may say; measured at
// 2026-11-29 00:00 UTC, but for the launch, which is of another node. For tests
// of what is built upon profiles.
ProfileData SampleProfileData(const std::string& name, int gpus = 2);
std::shared_ptr<const Profile> SampleProfile(const std::string& name,
                                             int gpus = 2);

// `data` built; ends the program where that fails.
std::shared_ptr<const Profile> BuildOrDie(ProfileData data);

}  // namespace fabricwise
