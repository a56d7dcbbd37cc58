// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "server/daemon/log.h"

namespace fabricwise {
namespace {

// Sent by ourselves to end the waiting thread.
constexpr int kEnd = SIGUSR2;

sigset_t Waited() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, kEnd}) {
    sigaddset(&set, number);
  }
  return set;
}

}  // namespace

void SignalThread::Mask() {
  const sigset_t set = Waited();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // A peer that hangs up shows as an error of the write.
  std::signal(SIGPIPE, SIG_IGN);
}

SignalThread::SignalThread() : thread_([this] { Run(); }) {}

SignalThread::~SignalThread() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), kEnd);
  thread_.join();
}

int SignalThread::WaitForStop() {
  stop_.WaitForNotification();
  return signal_;
}

void SignalThread::Run() {
  const sigset_t set = Waited();
  while (true) {
    const int number = sigwaitinfo(&set, nullptr);
    if (number < 0) continue;  // interrupted by a debugger or a stop
    const std::string name = sigabbrev_np(number);
    if (number == kEnd && ending_) return;
    if (number == SIGUSR1 || number == SIGUSR2) {
      Log(LogLevel::kWarning, "signal ignored", {{"signal", "SIG" + name}});
    } else if (number == SIGHUP) {
      Log(LogLevel::kWarning, "signal ignored",
          {{"signal", "SIGHUP"},
           {"remedy", "restart to read the configuration again"}});
    } else if (stop_.HasBeenNotified()) {
      Log(LogLevel::kWarning, "second signal, exiting at once",
          {{"signal", "SIG" + name}});
      constexpr int kDeathBySignal = 128;  // as a shell counts
      _exit(kDeathBySignal + number);
    } else {
      Log(LogLevel::kInfo, "stopping", {{"signal", "SIG" + name}});
      signal_ = number;
      stop_.Notify();
    }
  }
}

}  // namespace fabricwise
