// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/answer_cache.h"

#include <utility>

#include "absl/hash/hash.h"

namespace fabricwise {
namespace {

// List node, index slot, control block and allocator's headers of one entry,
// rounded up.
constexpr int64_t kEntryOverheadBytes = 256;

int64_t Cost(size_t request_bytes, size_t answer_bytes) {
  return static_cast<int64_t>(request_bytes + answer_bytes) +
         kEntryOverheadBytes;
}

}  // namespace

AnswerCache::AnswerCache(int64_t capacity_bytes)
    : shard_capacity_bytes_(capacity_bytes / static_cast<int64_t>(kShards)) {}

AnswerCache::Shard& AnswerCache::ShardOf(absl::string_view request) {
  // The top bits: the index of a shard uses the low ones.
  constexpr int kShift = 8 * sizeof(size_t) - 3;
  static_assert(kShards == size_t{1} << 3);
  return shards_[absl::Hash<absl::string_view>()(request) >> kShift];
}

AnswerBytes AnswerCache::Find(absl::string_view request, int64_t snapshot) {
  Shard& shard = ShardOf(request);
  std::lock_guard lock(shard.mutex);
  if (shard.snapshot != snapshot) return nullptr;
  const auto found = shard.index.find(request);
  if (found == shard.index.end()) return nullptr;
  shard.entries.splice(shard.entries.begin(), shard.entries, found->second);
  return found->second->answer;
}

void AnswerCache::Insert(absl::string_view request, int64_t snapshot,
                         AnswerBytes answer) {
  const int64_t cost = Cost(request.size(), answer->size());
  if (cost > shard_capacity_bytes_) return;
  Shard& shard = ShardOf(request);
  std::list<Entry> dropped;  // destroyed outside the lock
  std::lock_guard lock(shard.mutex);
  if (snapshot < shard.snapshot) return;
  if (snapshot > shard.snapshot) {
    shard.index.clear();
    dropped.swap(shard.entries);
    shard.bytes = 0;
    shard.snapshot = snapshot;
  }
  if (shard.index.contains(request)) return;
  while (shard.bytes + cost > shard_capacity_bytes_) {
    const auto last = std::prev(shard.entries.end());
    shard.bytes -= Cost(last->request.size(), last->answer->size());
    shard.index.erase(last->request);
    dropped.splice(dropped.end(), shard.entries, last);
  }
  shard.entries.push_front(
      Entry{std::string(request.data(), request.size()), std::move(answer)});
  shard.index.emplace(shard.entries.front().request, shard.entries.begin());
  shard.bytes += cost;
}

int64_t AnswerCache::size_bytes() const {
  int64_t bytes = 0;
  for (const Shard& shard : shards_) {
    std::lock_guard lock(shard.mutex);
    bytes += shard.bytes;
  }
  return bytes;
}

}  // namespace fabricwise
