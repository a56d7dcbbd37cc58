// SPDX-License-Identifier: Apache-2.0
//
// Whole answers by the bytes of their request, within a bound on memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace fabricwise {

// A serialized answer; shared, never changed.
using AnswerBytes = std::shared_ptr<const std::string>;

// Keeps the answers of one snapshot, most recently used first. The key is the
// request as it came: two encodings of one question are two entries, which
// costs memory and never an error. Thread-safe.
class AnswerCache {
 public:
  // `capacity_bytes` bounds requests and answers together, with the
  // bookkeeping; 0 keeps nothing.
  explicit AnswerCache(int64_t capacity_bytes);

  // Null: not here.
  AnswerBytes Find(absl::string_view request, int64_t snapshot);

  // Answers of older snapshots make room; an `answer` of an older snapshot than
  // the kept ones, or one that takes more than a shard may hold, is not kept.
  void Insert(absl::string_view request, int64_t snapshot, AnswerBytes answer);

  // Bytes in use.
  int64_t size_bytes() const;

 private:
  struct Entry {
    std::string request;
    AnswerBytes answer;
  };
  // Threads that look up at once meet on a lock one time in kShards.
  static constexpr size_t kShards = 8;
  struct Shard {
    mutable std::mutex mutex;
    int64_t snapshot ABSL_GUARDED_BY(mutex) = 0;
    int64_t bytes ABSL_GUARDED_BY(mutex) = 0;
    std::list<Entry> entries ABSL_GUARDED_BY(mutex);  // last used first
    // Keys view into the entries.
    absl::flat_hash_map<absl::string_view, std::list<Entry>::iterator> index
        ABSL_GUARDED_BY(mutex);
  };
  Shard& ShardOf(absl::string_view request);

  const int64_t shard_capacity_bytes_;
  std::array<Shard, kShards> shards_;
};

}  // namespace fabricwise
