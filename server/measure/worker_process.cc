// SPDX-License-Identifier: Apache-2.0
#include "server/measure/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/status_macros.h"
#include "server/measure/frames.h"

namespace fabricwise {
namespace {

using worker::v1::WorkerFrame;
using worker::v1::WorkerPlan;

// Descriptors of the child: standard ones, frames, and what exec failed of.
constexpr int kFramesDescriptor = 3;
constexpr int kErrorDescriptor = 4;
// Ours lie above, so that placing one in the child never covers another.
constexpr int kLowestDescriptor = 10;

constexpr size_t kMaxLogLineBytes = 1024;
constexpr int kMaxLogLines = 1000;
constexpr size_t kReadBytes = size_t{64} << 10;

// How often an exit is looked for: soon once the worker has closed its frames
// or is being ended, else only to notice one that a child of its own hides by
// holding them open.
constexpr absl::Duration kSoon = absl::Milliseconds(2);
constexpr absl::Duration kNowAndThen = absl::Milliseconds(100);
// A process that SIGKILL has not ended after this sits in the kernel.
constexpr absl::Duration kStuckAfter = absl::Seconds(10);

absl::Duration SteadyNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Owns a descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { Close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

absl::Status Failed(absl::string_view what, int error) {
  return absl::InternalError(
      absl::StrCat("cannot ", what, ": ", strerror(error)));
}

absl::StatusOr<Descriptor> Lift(Descriptor descriptor) {
  Descriptor lifted(
      fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kLowestDescriptor));
  if (!lifted.is_open()) return Failed("make a descriptor", errno);
  return lifted;
}

struct Pipe {
  Descriptor read, write;
};

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Failed("make a pipe", errno);
  Descriptor read(fds[0]), write(fds[1]);
  Pipe pipe;
  ASSIGN_OR_RETURN(pipe.read, Lift(std::move(read)));
  ASSIGN_OR_RETURN(pipe.write, Lift(std::move(write)));
  return pipe;
}

// A file in memory, to be read from its start: unlike a pipe it takes a plan of
// any length at once.
absl::StatusOr<Descriptor> FileOf(const std::string& bytes) {
  Descriptor made(memfd_create("fabricwise-plan", MFD_CLOEXEC));
  if (!made.is_open()) return Failed("make a file in memory", errno);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count =
        write(made.get(), bytes.data() + at, bytes.size() - at);
    if (count <= 0) return Failed("write the plan", errno);
    at += static_cast<size_t>(count);
  }
  lseek(made.get(), 0, SEEK_SET);
  return Lift(std::move(made));
}

// What the child needs; nothing is allocated once it is there.
struct ChildSide {
  const char* path;
  char* const* arguments;
  int input, log, frames, error;
  pid_t parent;
};

[[noreturn]] void BecomeWorker(const ChildSide& side) {
  constexpr int kExecFailed = 127;  // as a shell has it; nobody reads it
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that.
  if (getppid() != side.parent) _exit(kExecFailed);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(side.input, STDIN_FILENO);
  dup2(side.log, STDOUT_FILENO);
  dup2(side.log, STDERR_FILENO);
  dup2(side.frames, kFramesDescriptor);
  dup3(side.error, kErrorDescriptor, O_CLOEXEC);
  close_range(kErrorDescriptor + 1, UINT_MAX, 0);
  execv(side.path, side.arguments);
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored =
      write(kErrorDescriptor, &error, sizeof(error));
  _exit(kExecFailed);
}

// A process of its own for BecomeWorker. It borrows our memory until it runs
// another program, and this thread waits so long: to copy the page tables, as
// fork() does, would have every thread here wait that writes to memory.
pid_t StartChild(const ChildSide& side) {
  const pid_t pid = vfork();
  if (pid == 0) BecomeWorker(side);
  return pid;
}

// A started worker, seen from here.
struct Started {
  pid_t pid = 0;
  Descriptor frames, log;
};

absl::StatusOr<Started> Start(const WorkerCommand& command,
                              const WorkerPlan& plan) {
  ASSIGN_OR_RETURN(const Descriptor input, FileOf(plan.SerializeAsString()));
  ASSIGN_OR_RETURN(Pipe frames, MakePipe());
  ASSIGN_OR_RETURN(Pipe log, MakePipe());
  ASSIGN_OR_RETURN(Pipe error, MakePipe());
  std::vector<std::string> words = {command.path};
  words.insert(words.end(), command.arguments.begin(), command.arguments.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const ChildSide side = {.path = command.path.c_str(),
                          .arguments = arguments.data(),
                          .input = input.get(),
                          .log = log.write.get(),
                          .frames = frames.write.get(),
                          .error = error.write.get(),
                          .parent = getpid()};
  const pid_t pid = StartChild(side);
  if (pid < 0) return Failed("start another process", errno);
  error.write.Close();
  int exec_error = 0;
  // Ends without a byte once the program is running.
  if (read(error.read.get(), &exec_error, sizeof(exec_error)) > 0) {
    waitpid(pid, nullptr, 0);
    return Failed(absl::StrCat("run ", command.path), exec_error);
  }
  for (const int fd : {frames.read.get(), log.read.get()}) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return Started{pid, std::move(frames.read), std::move(log.read)};
}

// Cuts the worker's output into lines, within bounds.
class LineLog {
 public:
  explicit LineLog(const std::function<void(absl::string_view)>& on_line)
      : on_line_(on_line) {}

  void Add(absl::string_view bytes) {
    for (const char c : bytes) {
      if (c == '\n') {
        EndLine();
      } else if (line_.size() < kMaxLogLineBytes) {
        line_ += c;
      }
    }
  }

  void Finish() {
    if (!line_.empty()) EndLine();
    if (count_ > kMaxLogLines) {
      on_line_(absl::StrCat(count_ - kMaxLogLines, " lines left out"));
    }
  }

  // "; its last words: 'out of memory'", or nothing.
  std::string LastWords() const {
    constexpr size_t kMostBytes = 200;
    if (last_.empty()) return "";
    return absl::StrCat("; its last words: '",
                        absl::CHexEscape(last_.substr(0, kMostBytes)), "'");
  }

 private:
  void EndLine() {
    if (++count_ <= kMaxLogLines) on_line_(line_);
    if (!line_.empty()) last_ = std::move(line_);
    line_.clear();
  }

  const std::function<void(absl::string_view)>& on_line_;
  std::string line_, last_;
  int64_t count_ = 0;
};

std::string SignalName(int number) {
  const char* const name = sigabbrev_np(number);
  return name == nullptr ? absl::StrCat("signal ", number)
                         : absl::StrCat("SIG", name);
}

// "3 frames".
std::string Frames(uint64_t count) {
  return absl::StrCat(count, count == 1 ? " frame" : " frames");
}

// Lets `take` have what `fd` holds, in at most `reads` portions; closes it at
// its end.
template <typename Take>
void Drain(Descriptor& fd, int reads, const Take& take) {
  std::array<char, kReadBytes> buffer;
  while (fd.is_open() && reads-- > 0) {
    const ssize_t count = read(fd.get(), buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) return fd.Close();
    take(absl::string_view(buffer.data(), static_cast<size_t>(count)));
  }
}

// The children of this process, dead or alive.
std::vector<pid_t> Children() {
  std::vector<pid_t> children;
  // Mostly there is none, and a large node has thousands of processes.
  siginfo_t info;
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 &&
      errno == ECHILD) {
    return children;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end;
       !error && it != end; it.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) continue;
    std::ifstream file(it->path() / "stat");
    std::string stat;
    std::getline(file, stat, '\0');
    // "PID (NAME) STATE PARENT ...", where the name may hold anything.
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) continue;
    std::istringstream rest(stat.substr(name_end + 1));
    char state = 0;
    pid_t parent = 0;
    if (rest >> state >> parent && parent == getpid()) children.push_back(pid);
  }
  return children;
}

// Ends the children of this process that are not in `before`, and what becomes
// its child by that. 0, or one that SIGKILL does not end.
pid_t EndChildren(const std::vector<pid_t>& before) {
  const absl::Duration end = SteadyNow() + kStuckAfter;
  while (true) {
    pid_t last = 0;
    for (const pid_t child : Children()) {
      if (absl::c_linear_search(before, child)) continue;
      kill(child, SIGKILL);
      waitpid(child, nullptr, WNOHANG);
      last = child;
    }
    if (last == 0 || SteadyNow() >= end) return last;
    absl::SleepFor(kSoon);
  }
}

// Watches over one worker until it is gone.
class Watch {
 public:
  Watch(Started started, std::vector<pid_t> children_before,
        const WorkerLimits& limits, const std::stop_token& stop,
        const WorkerLauncher::Listener& listener)
      : worker_(std::move(started)),
        children_before_(std::move(children_before)),
        limits_(limits),
        stop_(stop),
        listener_(listener),
        log_(listener.on_log) {}

  // `wake` becomes readable when `stop` is requested.
  void UntilGone(int wake) {
    while (!HasExited() && stuck_ == 0) {
      const absl::Duration now = SteadyNow();
      if (!end_) CheckLimits(now);
      if (end_) Press(now);
      Wait(wake, now);
      Read(/*portions=*/1);
    }
    if (stuck_ == 0) {
      // What it left, children included; the name of the group is its own until
      // it is reaped. Those that left the group are ours by then.
      kill(-worker_.pid, SIGKILL);
      waitpid(worker_.pid, &wait_status_, 0);
      stuck_ = EndChildren(children_before_);
      // More than a pipe holds, and not without end where a child has escaped.
      constexpr int kPortions = 16;
      Read(kPortions);
    }
    log_.Finish();
  }

  // The process that SIGKILL does not end; 0: none.
  pid_t stuck() const { return stuck_; }

  WorkerRun Outcome() const {
    WorkerRun run;
    run.frame_count = decoder_.count();
    run.wall = SteadyNow() - started_;
    std::tie(run.end, run.status) = Judge();
    if (!run.status.ok() && run.end != WorkerEnd::kRefused) {
      run.status =
          absl::Status(run.status.code(),
                       absl::StrCat(run.status.message(), log_.LastWords()));
    }
    if (stuck_ != 0) {
      run.status = absl::Status(
          run.status.code(),
          absl::StrCat(run.status.message(), "; SIGKILL does not end process ",
                       stuck_, ", which sits in the kernel"));
    }
    return run;
  }

 private:
  bool HasExited() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(worker_.pid), &info,
                  WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == worker_.pid;
  }

  absl::Duration frame_limit() const {
    return decoder_.count() == 0 ? limits_.first_frame : limits_.between_frames;
  }

  void CheckLimits(absl::Duration now) {
    if (stop_.stop_requested()) {
      End(WorkerEnd::kStopped, absl::CancelledError("the worker was stopped"));
    } else if (now >= started_ + limits_.run) {
      End(WorkerEnd::kHung,
          absl::InternalError(absl::StrCat("the worker was not done after ",
                                           absl::FormatDuration(limits_.run),
                                           " and ", Frames(decoder_.count()))));
    } else if (now >= last_frame_ + frame_limit()) {
      End(WorkerEnd::kHung, absl::InternalError(absl::StrCat(
                                "the worker hung: no frame for ",
                                absl::FormatDuration(frame_limit()), " after ",
                                Frames(decoder_.count()))));
    }
  }

  void End(WorkerEnd end, absl::Status status) {
    if (end_) return;
    end_ = end;
    status_ = std::move(status);
  }

  // Ends the worker, each step once its time has come.
  void Press(absl::Duration now) {
    if (!terminated_at_) {
      terminated_at_ = now;
      kill(-worker_.pid, SIGTERM);
    } else if (!killed_at_ && now >= *terminated_at_ + limits_.grace) {
      killed_at_ = now;
      kill(-worker_.pid, SIGKILL);
    } else if (killed_at_ && now >= *killed_at_ + kStuckAfter) {
      stuck_ = worker_.pid;
    }
  }

  void Wait(int wake, absl::Duration now) {
    absl::Duration most =
        end_ || !worker_.frames.is_open() ? kSoon : kNowAndThen;
    if (!end_) {
      most = std::min({most, started_ + limits_.run - now,
                       last_frame_ + frame_limit() - now});
    }
    // poll takes no notice of negative descriptors: of closed ones.
    pollfd fds[] = {{.fd = worker_.frames.get(), .events = POLLIN},
                    {.fd = worker_.log.get(), .events = POLLIN},
                    {.fd = end_ ? -1 : wake, .events = POLLIN}};
    const timespec timeout =
        absl::ToTimespec(std::max(most, absl::ZeroDuration()));
    ppoll(fds, std::size(fds), &timeout, nullptr);
  }

  void Read(int portions) {
    Drain(worker_.log, portions,
          [this](absl::string_view bytes) { log_.Add(bytes); });
    Drain(worker_.frames, portions,
          [this](absl::string_view bytes) { Take(bytes); });
  }

  void Take(absl::string_view bytes) {
    std::vector<WorkerFrame> frames;
    const absl::Status decoded = decoder_.Add(bytes, &frames);
    if (!frames.empty()) last_frame_ = SteadyNow();
    for (const WorkerFrame& frame : frames) {
      if (end_ && *end_ != WorkerEnd::kStopped) return;
      absl::Status taken = listener_.on_frame(frame);
      if (!taken.ok()) End(WorkerEnd::kRefused, std::move(taken));
    }
    if (!decoded.ok()) {
      End(WorkerEnd::kGarbled,
          absl::Status(
              decoded.code(),
              absl::StrCat("the worker spoke garbage: ", decoded.message())));
    }
  }

  std::pair<WorkerEnd, absl::Status> Judge() const {
    const absl::Status finished = decoder_.Finish();
    const bool success = stuck_ != worker_.pid && WIFEXITED(wait_status_) &&
                         WEXITSTATUS(wait_status_) == EXIT_SUCCESS;
    if (end_) {
      const bool orderly =
          *end_ == WorkerEnd::kStopped && success && finished.ok();
      return {*end_, orderly ? absl::OkStatus() : status_};
    }
    if (WIFSIGNALED(wait_status_)) {
      return {WorkerEnd::kDied,
              absl::InternalError(absl::StrCat(
                  "the worker died of ", SignalName(WTERMSIG(wait_status_)),
                  " after ", Frames(decoder_.count())))};
    }
    if (!success) {
      return {WorkerEnd::kDied, absl::InternalError(absl::StrCat(
                                    "the worker left with exit status ",
                                    WEXITSTATUS(wait_status_), " after ",
                                    Frames(decoder_.count())))};
    }
    if (!finished.ok()) {
      return {WorkerEnd::kGarbled,
              absl::Status(finished.code(),
                           absl::StrCat("the worker left with success, but ",
                                        finished.message()))};
    }
    return {WorkerEnd::kDone, absl::OkStatus()};
  }

  Started worker_;
  const std::vector<pid_t> children_before_;
  const WorkerLimits& limits_;
  const std::stop_token& stop_;
  const WorkerLauncher::Listener& listener_;
  LineLog log_;
  FrameDecoder decoder_;

  const absl::Duration started_ = SteadyNow();
  absl::Duration last_frame_ = started_;
  std::optional<absl::Duration> terminated_at_, killed_at_;
  std::optional<WorkerEnd> end_;  // once the worker has to go
  absl::Status status_;           // why
  int wait_status_ = 0;
  pid_t stuck_ = 0;
};

}  // namespace

absl::string_view ToString(WorkerEnd end) {
  switch (end) {
    case WorkerEnd::kDone:
      return "done";
    case WorkerEnd::kStopped:
      return "stopped";
    case WorkerEnd::kNotStarted:
      return "not_started";
    case WorkerEnd::kHung:
      return "hung";
    case WorkerEnd::kDied:
      return "died";
    case WorkerEnd::kGarbled:
      return "garbled";
    case WorkerEnd::kRefused:
      return "refused";
  }
  return "";
}

WorkerRun WorkerLauncher::Run(const WorkerCommand& command,
                              const WorkerPlan& plan,
                              const WorkerLimits& limits,
                              const std::stop_token& stop,
                              const Listener& listener) {
  const auto not_started = [](absl::Status status) {
    return WorkerRun{.end = WorkerEnd::kNotStarted,
                     .status = std::move(status)};
  };
  if (stuck_ != 0 && waitpid(stuck_, nullptr, WNOHANG) == stuck_) stuck_ = 0;
  if (stuck_ != 0) {
    return not_started(absl::InternalError(absl::StrCat(
        "process ", stuck_, " of an earlier run still sits in the kernel")));
  }
  const Descriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return not_started(Failed("make an eventfd", errno));
  // Orphans of the worker come to us rather than to init.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::vector<pid_t> children_before = Children();
  absl::StatusOr<Started> started = Start(command, plan);
  if (!started.ok()) return not_started(started.status());
  Watch watch(*std::move(started), std::move(children_before), limits, stop,
              listener);
  {
    const std::stop_callback on_stop(stop,
                                     [&wake] { eventfd_write(wake.get(), 1); });
    watch.UntilGone(wake.get());
  }
  stuck_ = watch.stuck();
  return watch.Outcome();
}

}  // namespace fabricwise
