// SPDX-License-Identifier: Apache-2.0
//
// Which models were asked about lately, so that their shapes can be measured.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "fabricwise/v1/model.pb.h"

namespace fabricwise {

// Thread-safe, and quick: it stands on the path of an answer.
class RecentModels {
 public:
  // More would not be measured in one run anyhow.
  static constexpr size_t kMost = 16;
  // A config longer than this is not kept.
  static constexpr size_t kMostBytes = size_t{64} << 10;

  // `model`: a v1::Model in wire form.
  void Add(const std::string& model);
  // Newest first.
  std::vector<v1::Model> Get() const;

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> serialized_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fabricwise
