// SPDX-License-Identifier: Apache-2.0
//
// Each case runs in a child process, since signals are the whole process's.
#include "server/daemon/signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

// A child that runs `body` with a SignalThread and tells how far it is by
// single letters on a pipe.
class Child {
 public:
  explicit Child(const std::function<void(SignalThread&, int pipe)>& body) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      SignalThread::Mask();
      {
        SignalThread signals;
        body(signals, ends[1]);
      }
      _exit(0);
    }
    close(ends[1]);
    pipe_ = ends[0];
  }
  ~Child() { close(pipe_); }

  void Send(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }
  // The next letter; 0: the child is gone.
  char Next() const {
    char letter = 0;
    return read(pipe_, &letter, 1) == 1 ? letter : '\0';
  }
  // The status that wait gives.
  int Wait() const {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return status;
  }

 private:
  pid_t pid_ = 0;
  int pipe_ = 0;
};

void Tell(int pipe, char letter) { EXPECT_EQ(write(pipe, &letter, 1), 1); }

using Event = SignalThread::Event;

// The event that comes next.
Event Next(SignalThread& signals) {
  return signals.Wait(absl::InfiniteDuration());
}

TEST(Signals, FirstOneAsksToStopAndTheThreadEndsWithItsOwner) {
  for (const int number : {SIGTERM, SIGINT}) {
    const Child child([&](SignalThread& signals, int pipe) {
      Tell(pipe, 'r');
      Tell(pipe, Next(signals) == Event::kStop ? 'y' : 'n');
      Tell(pipe, Next(signals) == Event::kStop ? 'y' : 'n');
    });
    EXPECT_EQ(child.Next(), 'r');
    child.Send(number);
    EXPECT_EQ(child.Next(), 'y');
    EXPECT_EQ(child.Next(), 'y') << "for good";
    EXPECT_EQ(child.Wait(), 0);
  }
}

TEST(Signals, SecondOneEndsTheProcessAtOnceWhateverItDoes) {
  const Child child([](SignalThread& signals, int pipe) {
    Tell(pipe, 'r');
    Next(signals);
    Tell(pipe, 's');
    pause();  // a drain that never ends
  });
  EXPECT_EQ(child.Next(), 'r');
  child.Send(SIGTERM);
  EXPECT_EQ(child.Next(), 's');
  child.Send(SIGINT);
  const int status = child.Wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
}

TEST(Signals, HangUpAsksToReadTheConfigurationAgain) {
  const Child child([](SignalThread& signals, int pipe) {
    Tell(pipe, signals.Wait(absl::ZeroDuration()) == Event::kNone ? 'y' : 'n');
    for (const Event event : {Event::kReload, Event::kReload, Event::kStop}) {
      Tell(pipe, Next(signals) == event ? 'y' : 'n');
    }
  });
  EXPECT_EQ(child.Next(), 'y');
  for (const int number : {SIGHUP, SIGHUP, SIGTERM}) {
    child.Send(number);
    EXPECT_EQ(child.Next(), 'y');
  }
  EXPECT_EQ(child.Wait(), 0);
}

TEST(Signals, OthersDoNotStopIt) {
  const Child child([](SignalThread& signals, int pipe) {
    Tell(pipe, 'r');
    Tell(pipe, Next(signals) == Event::kStop ? 'y' : 'n');
  });
  EXPECT_EQ(child.Next(), 'r');
  child.Send(SIGPIPE);
  child.Send(SIGUSR1);
  child.Send(SIGUSR2);  // from outside: not the end of the thread
  child.Send(SIGTERM);
  EXPECT_EQ(child.Next(), 'y');
  EXPECT_EQ(child.Wait(), 0);
}

}  // namespace
}  // namespace fabricwise
