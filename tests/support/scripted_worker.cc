// SPDX-License-Identifier: Apache-2.0
//
// A worker that does what it is told, good or bad. Its script is words, from
// the command line or, where that holds none, from the file that the
// environment names in SCRIPTED_WORKER. Words, in order of running:
//   probe[=N]     the Probe of N GPUs (2), idle, joined by NVLink
//   busy          the same Probe with a foreign process
//   down          the same Probe with an NVLink lost
//   plan          a Progress and a Result for each key of the plan
//   results=N     the same for the first N keys
//   skips         a Skip for each key of the plan
//   replay=FILE   a Result for each key of the plan that the profile FILE has,
//                 as it was measured then, and a Skip for each other
//   slow=PREFIX:F times of keys that begin so are F times as long from now on
//   result=KEY    a Result for KEY
//   odd=KEY       a Result for KEY whose median is negative
//   done          Done, with 10 ms of GPU time a key measured
//   yield         the same, for another process's sake
//   number=N      the next frame bears this number
//   empty         a frame that says nothing
//   garbage       bytes that are no frame
//   length=N      the length of a frame of N bytes, and none of it
//   half          half of a Progress
//   drip=MS       a Progress, a byte every MS milliseconds
//   chatter=MS    a Progress every MS milliseconds, for ever
//   log=TEXT      a line on standard error
//   flood=N       N bytes on standard error without an end of line
//   lines=N       N lines on standard output
//   pid           its process id, on standard error
//   descriptors   which descriptors are open, on standard error
//   deaf          from now on SIGTERM is ignored
//   term          waits for SIGTERM, which may have come before
//   hang          waits for ever
//   child         a child that holds all descriptors and waits for ever
//   escape        a child in a session of its own, with a child there, which
//                 both wait for ever; their process ids on standard error
//   crash         SIGSEGV
//   exit=N        leaves with status N
// At the end of the words it leaves with success; a plan that asks only for a
// probe ends the script after `probe`, with Done.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fabricwise/worker/v1/worker.pb.h"
#include "server/profile/profile_file.h"
#include "tests/support/read_file.h"

namespace {

using namespace fabricwise::worker::v1;  // NOLINT: a program of one file

constexpr int kFrames = 3;
constexpr int kMillisecond = 1000;  // in usleep's microseconds

sigset_t Sigterm() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  return set;
}

class Worker {
 public:
  explicit Worker(WorkerPlan plan) : plan_(std::move(plan)) {}

  // False: the script ends here.
  bool Do(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : word.substr(equals + 1);
    const int number = std::atoi(value.c_str());
    if (name == "probe") return Probe(value.empty() ? 2 : number, false, 18);
    if (name == "busy") return Probe(2, true, 18);
    if (name == "down") return Probe(2, false, 17);
    if (name == "plan") {
      Results(plan_.keys_size());
    } else if (name == "results") {
      Results(number);
    } else if (name == "skips") {
      for (const std::string& key : plan_.keys()) Skip(key);
    } else if (name == "replay") {
      Replay(value);
    } else if (name == "slow") {
      slow_prefix_ = value.substr(0, value.rfind(':'));
      slow_factor_ = std::atof(value.substr(value.rfind(':') + 1).c_str());
    } else if (name == "result") {
      Result(value, 10e-6);
    } else if (name == "odd") {
      Result(value, -1);
    } else if (name == "done" || name == "yield") {
      Done(name == "yield");
    } else if (name == "number") {
      sequence_ = static_cast<uint64_t>(number);
    } else if (name == "empty") {
      Send(WorkerFrame());
    } else if (name == "garbage") {
      Write(
          std::string("\x08\x00\x00\x00\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12));
    } else if (name == "length") {
      Write(Length(static_cast<size_t>(number)));
    } else if (name == "half") {
      const std::string bytes = ProgressBytes();
      Write(bytes.substr(0, bytes.size() / 2));
    } else if (name == "drip") {
      for (const char c : ProgressBytes()) {
        Write(std::string(1, c));
        Sleep(number);
      }
    } else if (name == "chatter") {
      while (true) {
        Write(ProgressBytes());
        Sleep(number);
      }
    } else if (name == "log") {
      std::cerr << value << std::endl;
    } else if (name == "flood") {
      std::cerr << std::string(static_cast<size_t>(number), 'x') << std::flush;
    } else if (name == "lines") {
      for (int i = 0; i < number; ++i) std::cout << "line " << i << "\n";
      std::cout << std::flush;
    } else if (name == "pid") {
      std::cerr << getpid() << std::endl;
    } else if (name == "descriptors") {
      for (int fd = 0; fd < 1024; ++fd) {
        if (fcntl(fd, F_GETFD) >= 0) std::cerr << fd << " ";
      }
      std::cerr << std::endl;
    } else if (name == "deaf") {
      std::signal(SIGTERM, SIG_IGN);
    } else if (name == "term") {
      int got = 0;
      const sigset_t set = Sigterm();
      sigwait(&set, &got);
    } else if (name == "hang") {
      while (true) pause();
    } else if (name == "child") {
      if (fork() == 0) {
        while (true) pause();
      }
    } else if (name == "escape") {
      // Until the child has left the group and has a child of its own.
      int fds[2];
      if (pipe(fds) != 0) _exit(5);
      const pid_t child = fork();
      if (child == 0) {
        setsid();
        const pid_t grandchild = fork();
        if (grandchild != 0 &&
            write(fds[1], &grandchild, sizeof(grandchild)) < 0) {
          _exit(5);
        }
        while (true) pause();
      }
      pid_t grandchild = 0;
      if (read(fds[0], &grandchild, sizeof(grandchild)) < 0) _exit(5);
      std::cerr << child << "\n" << grandchild << std::endl;
    } else if (name == "crash") {
      const rlimit none = {0, 0};
      setrlimit(RLIMIT_CORE, &none);
      std::signal(SIGSEGV, SIG_DFL);
      std::raise(SIGSEGV);
    } else if (name == "exit") {
      _exit(number);
    } else {
      std::cerr << "no such word: " << word << std::endl;
      _exit(2);
    }
    return true;
  }

 private:
  static void Sleep(int milliseconds) {
    usleep(static_cast<useconds_t>(milliseconds) * kMillisecond);
  }

  static void Write(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t count =
          write(kFrames, bytes.data() + at, bytes.size() - at);
      if (count <= 0) _exit(3);
      at += static_cast<size_t>(count);
    }
  }

  static std::string Length(size_t length) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) {
      bytes += static_cast<char>((length >> (8 * i)) & 0xFF);
    }
    return bytes;
  }

  std::string Bytes(WorkerFrame frame) {
    frame.set_sequence(sequence_++);
    const std::string body = frame.SerializeAsString();
    return Length(body.size()) + body;
  }

  void Send(const WorkerFrame& frame) { Write(Bytes(frame)); }

  std::string ProgressBytes() {
    WorkerFrame frame;
    frame.mutable_progress()->set_key("launch/graph_node");
    return Bytes(frame);
  }

  bool Probe(int gpus, bool busy, int links) {
    WorkerFrame frame;
    auto* const probe = frame.mutable_probe();
    for (int i = 0; i < gpus; ++i) {
      auto* const gpu = probe->add_gpus();
      gpu->set_name("NVIDIA H200");
      gpu->set_uuid("GPU-" + std::to_string(i));
      gpu->set_memory_bytes(int64_t{141} << 30);
      gpu->set_compute_capability(90);
      gpu->set_foreign_process_count(busy ? 1 : 0);
      auto* const peers = probe->add_peers();
      for (int j = 0; j < gpus; ++j) {
        peers->add_access(true);
        peers->add_nvlinks(i == j ? 0 : links);
      }
    }
    probe->set_driver_version("580.1");
    probe->set_cuda_version("13.0");
    probe->set_nccl_version("2.28.3");
    Send(frame);
    if (plan_.probe_only()) Done(false);
    return !plan_.probe_only();
  }

  void Results(int count) {
    for (int i = 0; i < count && i < plan_.keys_size(); ++i) {
      WorkerFrame frame;
      frame.mutable_progress()->set_key(plan_.keys(i));
      Send(frame);
      Result(plan_.keys(i), 10e-6 + 1e-6 * i);
    }
  }

  void Skip(const std::string& key) {
    WorkerFrame frame;
    frame.mutable_skip()->set_key(key);
    frame.mutable_skip()->set_reason("not this one");
    Send(frame);
  }

  void Replay(const std::string& path) {
    const auto recorded =
        fabricwise::ReadProfile(path, fabricwise::ReadWholeFile(path));
    if (!recorded.ok()) {
      std::cerr << recorded.status() << std::endl;
      _exit(2);
    }
    std::map<std::string, double> seconds;
    for (const fabricwise::Measurement& m : recorded->measurements) {
      seconds[ToString(m.key)] = m.statistics.median_seconds;
    }
    for (const std::string& key : plan_.keys()) {
      const auto found = seconds.find(key);
      if (found == seconds.end()) {
        Skip(key);
      } else {
        Result(key, found->second);
      }
    }
  }

  void Result(const std::string& key, double seconds) {
    if (key.rfind(slow_prefix_, 0) == 0) seconds *= slow_factor_;
    WorkerFrame frame;
    auto* const result = frame.mutable_result();
    result->set_key(key);
    result->set_median_seconds(seconds);
    result->set_iqr_seconds(0.02 * std::abs(seconds));
    result->set_p99_seconds(seconds * 1.1);
    result->set_samples(100);
    result->set_stop_reason(1);
    result->set_verified(true);
    result->set_sm_clock_hertz(1.98e9);
    result->set_wall_milliseconds(5);
    Send(frame);
    ++measured_;
  }

  void Done(bool yielded) {
    WorkerFrame frame;
    frame.mutable_done()->set_gpu_milliseconds(10 * measured_);
    frame.mutable_done()->set_yielded(yielded);
    Send(frame);
  }

  const WorkerPlan plan_;
  uint64_t sequence_ = 0;
  int64_t measured_ = 0;
  std::string slow_prefix_;
  double slow_factor_ = 1;
};

std::vector<std::string> Script(int argc, char** argv) {
  if (argc > 1) return {argv + 1, argv + argc};
  const char* const path = std::getenv("SCRIPTED_WORKER");
  std::ifstream file(path == nullptr ? "" : path);
  return {std::istream_iterator<std::string>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  WorkerPlan plan;
  if (!plan.ParseFromIstream(&std::cin)) return 4;
  Worker worker(std::move(plan));
  const std::vector<std::string> script = Script(argc, argv);
  if (std::find(script.begin(), script.end(), "term") != script.end()) {
    const sigset_t set = Sigterm();
    sigprocmask(SIG_BLOCK, &set, nullptr);
  }
  for (const std::string& word : script) {
    if (!worker.Do(word)) break;
  }
  return 0;
}
