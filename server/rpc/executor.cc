// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/executor.h"

#include <pthread.h>

#include <utility>

namespace fabricwise {

Executor::Executor(int threads, int max_queued)
    : max_queued_(static_cast<size_t>(max_queued)) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), "long calls");
  }
}

Executor::~Executor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

bool Executor::TrySubmit(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= max_queued_) return false;
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void Executor::Submit(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Executor::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
      // What the task holds is let go before the lock is taken again.
    }
    lock.lock();
  }
}

}  // namespace fabricwise
