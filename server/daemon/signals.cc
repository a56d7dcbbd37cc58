// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

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
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  pthread_kill(thread_.native_handle(), kEnd);
  thread_.join();
}

SignalThread::Event SignalThread::Wait(absl::Duration longest) {
  // A wait without end, in steps that every clock can count.
  constexpr absl::Duration kStep = absl::Hours(1);
  std::unique_lock lock(mutex_);
  const auto asked = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return stop_ || reload_;
  };
  while (!asked() && longest > absl::ZeroDuration()) {
    const absl::Duration step = std::min(longest, kStep);
    wake_.wait_for(lock, absl::ToChronoNanoseconds(step), asked);
    longest -= step;
  }
  if (stop_) return Event::kStop;
  return std::exchange(reload_, false) ? Event::kReload : Event::kNone;
}

void SignalThread::Run() {
  const sigset_t set = Waited();
  while (true) {
    const int number = sigwaitinfo(&set, nullptr);
    if (number < 0) continue;  // interrupted by a debugger or a stop
    const std::string name = sigabbrev_np(number);
    std::lock_guard lock(mutex_);
    if (number == kEnd && ending_) return;
    if (number == SIGUSR1 || number == SIGUSR2) {
      Log(LogLevel::kWarning, "signal ignored", {{"signal", "SIG" + name}});
    } else if (number == SIGHUP) {
      reload_ = true;
      wake_.notify_one();
    } else if (stop_) {
      Log(LogLevel::kWarning, "second signal, exiting at once",
          {{"signal", "SIG" + name}});
      constexpr int kDeathBySignal = 128;  // as a shell counts
      _exit(kDeathBySignal + number);
    } else {
      Log(LogLevel::kInfo, "stopping", {{"signal", "SIG" + name}});
      stop_ = true;
      wake_.notify_one();
    }
  }
}

}  // namespace fabricwise
