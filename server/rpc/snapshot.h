// SPDX-License-Identifier: Apache-2.0
//
// The one thing that changes under the RPC path: which profile advice is made
// from. Swapped whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "server/profile/profile.h"

namespace fabricwise {

// A profile in use. Immutable.
struct Snapshot {
  std::shared_ptr<const Profile> profile;  // never null
  int64_t number = 0;                      // of this swap, from 1
};

// Holds the current snapshot. Thread-safe. Outlives all its subscriptions.
class SnapshotHolder {
 public:
  SnapshotHolder() = default;
  SnapshotHolder(const SnapshotHolder&) = delete;
  SnapshotHolder& operator=(const SnapshotHolder&) = delete;

  // The number of the current snapshot; 0: none yet. Lock-free. It may be older
  // than a Get() right after it, never newer than one.
  int64_t number() const { return number_.load(std::memory_order_acquire); }

  // Null: none yet. Waits at most for another thread's copy of one pointer.
  std::shared_ptr<const Snapshot> Get() const;

  // Takes `profile` (not null) into use, then calls every subscriber on this
  // thread. Returns the new snapshot's number.
  int64_t Set(std::shared_ptr<const Profile> profile);

  // Ends with its destruction, after which the callback is not running and
  // never will. Moved-from: empty.
  class Subscription {
   public:
    Subscription() = default;
    Subscription(Subscription&& other) noexcept;
    Subscription& operator=(Subscription&& other) noexcept;
    ~Subscription();

   private:
    friend class SnapshotHolder;
    Subscription(SnapshotHolder* holder, int64_t id)
        : holder_(holder), id_(id) {}
    SnapshotHolder* holder_ = nullptr;
    int64_t id_ = 0;
  };

  // `on_change` is called after each Set, one call at a time. It must be short
  // and neither subscribe, end a subscription, nor call Set.
  [[nodiscard]] Subscription Subscribe(std::function<void()> on_change);

 private:
  std::atomic<int64_t> number_{0};
  mutable std::mutex mutex_;  // held for a pointer's copy only
  std::shared_ptr<const Snapshot> current_ ABSL_GUARDED_BY(mutex_);

  std::mutex subscribers_mutex_;  // taken before mutex_
  std::map<int64_t, std::function<void()>> subscribers_
      ABSL_GUARDED_BY(subscribers_mutex_);
  int64_t next_subscriber_ ABSL_GUARDED_BY(subscribers_mutex_) = 1;
};

}  // namespace fabricwise
