// SPDX-License-Identifier: Apache-2.0
#include "server/measure/worker_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using worker::v1::WorkerFrame;
using worker::v1::WorkerPlan;

constexpr char kKey[] = "all_reduce/n2/nccl/graph/4096B";

// Far beyond what any of these runs needs.
WorkerLimits Patient() {
  return {.run = absl::Minutes(1),
          .first_frame = absl::Minutes(1),
          .between_frames = absl::Minutes(1)};
}

// A run of a script, and all that it said.
struct Ran {
  WorkerRun run;
  std::vector<WorkerFrame> frames;
  std::vector<std::string> log;
  std::string message() const { return std::string(run.status.message()); }
};

struct Options {
  WorkerLimits limits = Patient();
  WorkerPlan plan;
  std::stop_source stop;
  std::function<absl::Status(const WorkerFrame&)> on_frame =
      [](const WorkerFrame&) { return absl::OkStatus(); };
};

Ran RunScript(const std::string& script, Options options = {}) {
  options.plan.add_keys(kKey);
  Ran ran;
  WorkerLauncher launcher;
  ran.run = launcher.Run(
      {.path = SCRIPTED_WORKER, .arguments = absl::StrSplit(script, ' ')},
      options.plan, options.limits, options.stop.get_token(),
      {.on_frame =
           [&](const WorkerFrame& frame) {
             ran.frames.push_back(frame);
             return options.on_frame(frame);
           },
       .on_log = [&](absl::string_view line) { ran.log.emplace_back(line); }});
  return ran;
}

// No child of ours is left, dead or alive.
bool NoChildren() {
  return waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD;
}

size_t OpenDescriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(WorkerProcess, HandsOverAllFramesOfAGoodRun) {
  const Ran ran = RunScript("probe plan done");
  EXPECT_TRUE(ran.run.status.ok()) << ran.run.status;
  EXPECT_EQ(ran.run.end, WorkerEnd::kDone);
  EXPECT_EQ(ran.run.frame_count, 4u);
  ASSERT_EQ(ran.frames.size(), 4u);
  EXPECT_EQ(ran.frames[2].result().key(), kKey);
  EXPECT_TRUE(NoChildren());
}

TEST(WorkerProcess, TakesPlansOfAnyLength) {
  Options options;
  for (int i = 0; i < 50'000; ++i) options.plan.add_keys(kKey);
  const Ran ran = RunScript("probe plan done", options);
  EXPECT_TRUE(ran.run.status.ok()) << ran.run.status;
  EXPECT_EQ(ran.frames.size(), 100'004u);
}

TEST(WorkerProcess, SaysWhatTheWorkerDiedOf) {
  const Ran ran = RunScript("log=no\x01memory probe results=1 crash");
  EXPECT_EQ(ran.run.end, WorkerEnd::kDied);
  EXPECT_EQ(ran.run.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ran.message(),
            "the worker died of SIGSEGV after 3 frames; its last words: "
            "'no\\x01memory'");
}

TEST(WorkerProcess, TellsExitStatus) {
  const Ran ran = RunScript("probe done exit=9");
  EXPECT_EQ(ran.run.end, WorkerEnd::kDied);
  EXPECT_EQ(ran.message(), "the worker left with exit status 9 after 2 frames");
}

TEST(WorkerProcess, ReportsWhatIsNotThere) {
  WorkerLauncher launcher;
  const WorkerRun run = launcher.Run(
      {.path = "/nowhere/worker"}, {}, Patient(), {},
      {.on_frame = [](const WorkerFrame&) { return absl::OkStatus(); },
       .on_log = [](absl::string_view) {}});
  EXPECT_EQ(run.end, WorkerEnd::kNotStarted);
  EXPECT_EQ(run.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(run.status.message(),
            "cannot run /nowhere/worker: No such file or directory");
  EXPECT_TRUE(NoChildren());
}

TEST(WorkerProcess, EndsAtTheFirstBadFrame) {
  struct Case {
    const char* script;
    const char* message;
  };
  const Case cases[] = {
      {"probe garbage hang", "the worker spoke garbage: frame 1 of 8 bytes"},
      {"probe length=1073741824 hang",
       "the worker spoke garbage: frame 1 is 1073741824 bytes long"},
      {"probe number=7 plan hang", "frame 1 bears the number 7"},
      {"probe number=0 plan hang", "frame 1 bears the number 0"},
      {"plan hang", "the first frame is not the Probe"},
      {"probe empty hang", "says nothing that is known here"},
      {"probe done done hang", "bytes follow Done"},
  };
  for (const Case& c : cases) {
    const Ran ran = RunScript(c.script);
    EXPECT_EQ(ran.run.end, WorkerEnd::kGarbled) << c.script;
    EXPECT_EQ(ran.run.status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(ran.message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(NoChildren());
}

TEST(WorkerProcess, LeavingWithSuccessIsNotEnough) {
  struct Case {
    const char* script;
    const char* message;
  };
  const Case cases[] = {
      {"log=bye",
       "the worker left with success, but the frames end without "
       "Done, after 0; its last words: 'bye'"},
      {"probe plan",
       "the worker left with success, but the frames end without "
       "Done, after 3"},
      {"probe half", "the worker left with success, but the frames end "},
  };
  for (const Case& c : cases) {
    const Ran ran = RunScript(c.script);
    EXPECT_EQ(ran.run.end, WorkerEnd::kGarbled);
    EXPECT_EQ(ran.run.status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(ran.message(), HasSubstr(c.message));
  }
}

TEST(WorkerProcess, NoFrameForTooLongIsAHang) {
  Options options;
  options.limits.between_frames = absl::Milliseconds(50);
  const Ran ran = RunScript("probe hang", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kHung);
  EXPECT_EQ(ran.run.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ran.message(), "the worker hung: no frame for 50ms after 1 frame");
  EXPECT_TRUE(NoChildren());
}

TEST(WorkerProcess, BytesThatDripMakeNoFrame) {
  Options options;
  options.limits.between_frames = absl::Milliseconds(100);
  const Ran ran = RunScript("probe drip=20", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kHung);
  EXPECT_THAT(ran.message(), HasSubstr("no frame for 100ms after 1 frame"));
}

TEST(WorkerProcess, FramesForEverMeetTheLimitOfTheRun) {
  Options options;
  options.limits.run = absl::Milliseconds(150);
  const Ran ran = RunScript("probe chatter=10", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kHung);
  EXPECT_EQ(ran.run.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(ran.message(), HasSubstr("the worker was not done after 150ms"));
}

TEST(WorkerProcess, OneThatIgnoresSigtermIsKilled) {
  Options options;
  options.limits.between_frames = absl::Milliseconds(50);
  options.limits.grace = absl::Milliseconds(20);
  const Ran ran = RunScript("deaf child probe hang", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kHung);
  EXPECT_TRUE(NoChildren());
}

TEST(WorkerProcess, AChildOfTheWorkerNeitherDelaysNorOutlivesIt) {
  // It holds every descriptor open.
  const Ran ran = RunScript("child probe plan done");
  EXPECT_EQ(ran.run.end, WorkerEnd::kDone);
  EXPECT_LT(ran.run.wall, absl::Seconds(30));
}

TEST(WorkerProcess, ADescendantInASessionOfItsOwnDoesNotOutliveIt) {
  Options hung;
  hung.limits.between_frames = absl::Milliseconds(50);
  for (const auto& [script, options] :
       {std::pair("escape probe plan done", Options()),
        std::pair("escape probe hang", hung)}) {
    const Ran ran = RunScript(script, options);
    ASSERT_EQ(ran.log.size(), 2u);
    for (const std::string& line : ran.log) {
      pid_t escaped = 0;
      ASSERT_TRUE(absl::SimpleAtoi(line, &escaped));
      EXPECT_EQ(kill(escaped, 0), -1);
      EXPECT_EQ(errno, ESRCH);
    }
    EXPECT_TRUE(NoChildren());
    EXPECT_LT(ran.run.wall, absl::Seconds(30));
  }
}

TEST(WorkerProcess, EndsNoChildThatWasThereBefore) {
  const pid_t ours = fork();
  if (ours == 0) {
    while (true) pause();
  }
  RunScript("probe plan done");
  EXPECT_EQ(waitpid(ours, nullptr, WNOHANG), 0);
  kill(ours, SIGKILL);
  EXPECT_EQ(waitpid(ours, nullptr, 0), ours);
}

TEST(WorkerProcess, StopsWhenToldTo) {
  Options options;
  options.on_frame = [&](const WorkerFrame&) {
    options.stop.request_stop();
    return absl::OkStatus();
  };
  const Ran ran = RunScript("probe hang", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kStopped);
  EXPECT_EQ(ran.run.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ran.message(), "the worker was stopped");
}

TEST(WorkerProcess, StoppedBeforeItsStartItDoesNotStayLong) {
  Options options;
  options.stop.request_stop();
  const Ran ran = RunScript("deaf hang", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kStopped);
  EXPECT_EQ(ran.run.status.code(), absl::StatusCode::kCancelled);
}

TEST(WorkerProcess, OneThatStopsInOrderHandsOverAllTheSame) {
  Options options;
  options.limits.grace = absl::Minutes(1);
  options.on_frame = [&](const WorkerFrame& frame) {
    if (frame.has_result()) options.stop.request_stop();
    return absl::OkStatus();
  };
  const Ran ran = RunScript("probe plan term done", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kStopped);
  EXPECT_TRUE(ran.run.status.ok()) << ran.run.status;
  ASSERT_EQ(ran.frames.size(), 4u);
  EXPECT_TRUE(ran.frames.back().has_done());
}

TEST(WorkerProcess, WhatIsRefusedEndsTheRunWithItsWords) {
  Options options;
  options.on_frame = [](const WorkerFrame& frame) {
    return frame.has_result() ? absl::FailedPreconditionError("not that one")
                              : absl::OkStatus();
  };
  const Ran ran = RunScript("probe plan plan plan hang", options);
  EXPECT_EQ(ran.run.end, WorkerEnd::kRefused);
  EXPECT_EQ(ran.run.status, absl::FailedPreconditionError("not that one"));
  EXPECT_EQ(ran.frames.size(), 3u) << "nothing is handed over after it";
}

TEST(WorkerProcess, OutputComesByLinesWithinBounds) {
  Ran ran = RunScript("probe flood=5000000 log=.end lines=1500 done");
  EXPECT_TRUE(ran.run.status.ok()) << ran.run.status;
  ASSERT_EQ(ran.log.size(), 1001u);
  EXPECT_EQ(ran.log[0], std::string(1024, 'x'));
  EXPECT_EQ(ran.log[1], "line 0");
  EXPECT_EQ(ran.log.back(), "501 lines left out");

  ran = RunScript("flood=3 probe done");
  EXPECT_THAT(ran.log, ElementsAre("xxx"));
}

TEST(WorkerProcess, GivesTheChildFourDescriptorsAndLeaksNone) {
  // One of ours that no flag hides from children.
  const int ours = open("/dev/null", O_RDONLY);
  const size_t before = OpenDescriptors();
  for (const char* script :
       {"descriptors probe done", "descriptors garbage", "descriptors crash"}) {
    EXPECT_THAT(RunScript(script).log, Contains("0 1 2 3 "));
  }
  EXPECT_EQ(OpenDescriptors(), before);
  close(ours);
}

TEST(WorkerProcess, SignalsReachTheChildThoughMaskedHere) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &old);
  Options options;
  options.limits.between_frames = absl::Milliseconds(50);
  options.limits.grace = absl::Minutes(1);  // else SIGKILL would hide it
  EXPECT_EQ(RunScript("probe hang", options).run.end, WorkerEnd::kHung);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

TEST(WorkerProcess, DiesWithUs) {
  // Orphans come to us, so that we see how they end.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t daemon = fork();
  if (daemon == 0) {
    WorkerLauncher launcher;
    launcher.Run({.path = SCRIPTED_WORKER,
                  .arguments = {"deaf", "pid", "probe", "hang"}},
                 {}, Patient(), {},
                 {.on_frame = [](const WorkerFrame&) -> absl::Status {
                    return absl::OkStatus();
                  },
                  .on_log =
                      [&](absl::string_view line) {
                        pid_t pid = 0;
                        if (!absl::SimpleAtoi(line, &pid)) _exit(1);
                        if (write(fds[1], &pid, sizeof(pid)) < 0) _exit(1);
                        kill(getpid(), SIGKILL);
                      }});
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(daemon, &status, 0), daemon);
  ASSERT_TRUE(WIFSIGNALED(status));
  pid_t worker = 0;
  ASSERT_EQ(read(fds[0], &worker, sizeof(worker)), sizeof(worker));
  ASSERT_EQ(waitpid(worker, &status, 0), worker);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  close(fds[1]);
  close(fds[0]);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace fabricwise
