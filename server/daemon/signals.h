// SPDX-License-Identifier: Apache-2.0
//
// Signals, as one thread that waits for them: no handler ever runs.
#pragma once

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"

namespace fabricwise {

// SIGTERM and SIGINT ask the daemon to stop; a second one ends the process at
// once, with status 128 + signal. SIGHUP is logged and does nothing: the
// configuration is read at start only. So are SIGUSR1 and SIGUSR2, which mean
// nothing here.
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

  // Returns once asked to stop: the signal's number.
  int WaitForStop();

 private:
  void Run();

  absl::Notification stop_;
  // Written before stop_ is notified; atomic, as TSan cannot see that.
  std::atomic<int> signal_ = 0;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace fabricwise
