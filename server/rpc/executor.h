// SPDX-License-Identifier: Apache-2.0
//
// Threads for calls that take too long for gRPC's own.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"

namespace fabricwise {

// First in, first out. Thread-safe.
class Executor {
 public:
  // `threads` >= 1. TrySubmit takes no task while `max_queued` wait.
  Executor(int threads, int max_queued);
  // Runs what is queued, then returns.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // False: too many wait; `task` was not taken. Tasks do not throw.
  bool TrySubmit(std::function<void()> task);

  // For callers that bound themselves.
  void Submit(std::function<void()> task);

 private:
  void Run();

  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace fabricwise
