// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/snapshot.h"

#include <utility>

namespace fabricwise {

// Not std::atomic<std::shared_ptr>: libstdc++'s spins on a bit while another
// thread copies, which is a lock all the same, and ThreadSanitizer cannot see
// through it. What the RPC path asks most often, the number, is a plain load.
std::shared_ptr<const Snapshot> SnapshotHolder::Get() const {
  std::lock_guard lock(mutex_);
  return current_;
}

int64_t SnapshotHolder::Set(std::shared_ptr<const Profile> profile) {
  std::lock_guard subscribers_lock(subscribers_mutex_);
  std::shared_ptr<const Snapshot> next = std::make_shared<const Snapshot>(
      Snapshot{std::move(profile), number() + 1});
  const int64_t number = next->number;
  {
    // The old snapshot is destroyed after the lock is released.
    std::lock_guard lock(mutex_);
    current_.swap(next);
  }
  number_.store(number, std::memory_order_release);
  for (const auto& [id, on_change] : subscribers_) on_change();
  return number;
}

SnapshotHolder::Subscription SnapshotHolder::Subscribe(
    std::function<void()> on_change) {
  std::lock_guard lock(subscribers_mutex_);
  const int64_t id = next_subscriber_++;
  subscribers_.emplace(id, std::move(on_change));
  return Subscription(this, id);
}

SnapshotHolder::Subscription::Subscription(Subscription&& other) noexcept
    : holder_(std::exchange(other.holder_, nullptr)), id_(other.id_) {}

SnapshotHolder::Subscription& SnapshotHolder::Subscription::operator=(
    Subscription&& other) noexcept {
  std::swap(holder_, other.holder_);
  std::swap(id_, other.id_);
  return *this;
}

SnapshotHolder::Subscription::~Subscription() {
  if (holder_ == nullptr) return;
  std::lock_guard lock(holder_->subscribers_mutex_);
  holder_->subscribers_.erase(id_);
}

}  // namespace fabricwise
