// SPDX-License-Identifier: Apache-2.0
//
// Signals, as one thread that waits for them: no handler ever runs.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace fabricwise {

// SIGTERM and SIGINT ask the daemon to stop; a second one ends the process at
// once, with status 128 + signal. One that arrives before the thread has seen
// another of its kind is one with it, as for every process. SIGHUP asks it to
// read its configuration again. SIGUSR1 and SIGUSR2 mean nothing here: they are
// logged.
class SignalThread {
 public:
  // Masks the signals for the calling thread and all that it starts, and
  // ignores SIGPIPE. Call before the first thread.
  static void Mask();

  // Starts the waiting thread; Mask has been called.
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  enum class Event {
    kNone,    // for as long as was to be waited
    kReload,  // told once for all that came since the last time
    kStop,    // from then on each time
  };
  // Returns once asked for something, or after `longest`.
  Event Wait(absl::Duration longest);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  bool reload_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace fabricwise
