// SPDX-License-Identifier: Apache-2.0
//
// fabricwise-worker: measures what it is told, by a daemon or by hand.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "kernels/case.h"
#include "kernels/worker/measure.h"
#include "kernels/worker/plan_mode.h"
#include "kernels/worker/probe.h"

namespace fabricwise {
namespace {

constexpr char kUsage[] =
    R"(fabricwise-worker measures this node's fabric and GPUs.

  fabricwise-worker --probe
      prints the node: GPUs, peer access (checked), NVLink, PCIe, versions
  fabricwise-worker run OP [--gpus 0,1] [--impl nccl|one_shot|two_shot]
      [--launch graph|eager|graph+gemm] [--min BYTES] [--max BYTES] [--refine]
      [--as-nccl-tests]
      prints a table; OP: all_reduce, all_gather, reduce_scatter, all_to_all,
      send_recv, read, copy
  fabricwise-worker run KEY...
      the same for keys such as gemm/bf16/m16n4096k4096, launch/graph_node,
      experts/bf16/h2048i768e128k8/tp1ep1/t64 or
      attention/gqa/bf16/b8q1c2048/h32kv8d128
  fabricwise-worker
      with a plan on standard input and descriptor 3 open, as the daemon runs it
)";

// How long an orderly end may take after TERM; then the process just ends. The
// driver takes up to 0.2 s to free two GPUs' memory, of the 0.25 s that there
// are.
constexpr absl::Duration kGrace = absl::Milliseconds(30);

std::atomic<bool> stop = false;

// One thread waits for the signals that all others have masked.
void WatchSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  std::thread([signals] {
    int received = 0;
    sigwait(&signals, &received);
    stop = true;
    absl::SleepFor(kGrace);
    constexpr int kSignalled = 128;
    _exit(kSignalled + received);
  }).detach();
}

int Complain(const std::string& what) {
  std::fprintf(stderr, "fabricwise-worker: %s\n", what.c_str());
  return 1;
}

struct ByHand {
  std::vector<int> gpus;
  std::string implementation = "nccl", launch = "graph";
  int64_t min_bytes = 1024, max_bytes = int64_t{256} << 20;
  bool refine = false;
  bool as_nccl_tests = false;
  std::vector<std::string> words;
};

absl::StatusOr<ByHand> Parse(const std::vector<std::string>& arguments) {
  ByHand parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--refine") {
      parsed.refine = true;
      continue;
    }
    if (word == "--as-nccl-tests") {
      parsed.as_nccl_tests = true;
      continue;
    }
    if (word.rfind("--", 0) != 0) {
      parsed.words.push_back(word);
      continue;
    }
    if (i + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(word, " needs a value"));
    }
    const std::string& value = arguments[++i];
    const auto bytes = [&](int64_t* into) -> absl::Status {
      if (!absl::SimpleAtoi(value, into) || *into <= 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            word, " is '", value, "'; allowed: a number of bytes over 0"));
      }
      return absl::OkStatus();
    };
    if (word == "--gpus") {
      for (absl::string_view text : absl::StrSplit(value, ',')) {
        int gpu = 0;
        if (!absl::SimpleAtoi(text, &gpu) || gpu < 0) {
          return absl::InvalidArgumentError(absl::StrCat(
              "--gpus is '", value, "'; allowed: indices, as 0,1"));
        }
        parsed.gpus.push_back(gpu);
      }
    } else if (word == "--impl") {
      parsed.implementation = value;
    } else if (word == "--launch") {
      parsed.launch = value;
    } else if (word == "--min") {
      RETURN_IF_ERROR(bytes(&parsed.min_bytes));
    } else if (word == "--max") {
      RETURN_IF_ERROR(bytes(&parsed.max_bytes));
    } else {
      return absl::InvalidArgumentError(absl::StrCat("no such option ", word));
    }
  }
  return parsed;
}

absl::StatusOr<std::vector<MeasurementKey>> KeysOf(const ByHand& by_hand,
                                                   size_t gpu_count) {
  std::vector<MeasurementKey> keys;
  for (const std::string& word : by_hand.words) {
    if (auto key = ParseMeasurementKey(word); key.ok()) {
      keys.push_back(*std::move(key));
      continue;
    }
    for (int64_t size = by_hand.min_bytes; size <= by_hand.max_bytes;
         size *= 2) {
      const std::string text =
          word == "read" || word == "copy"
              ? absl::StrCat("memory/", word, "/", size, "B")
              : absl::StrCat(word, "/n", gpu_count, "/", by_hand.implementation,
                             "/", by_hand.launch, "/", size, "B");
      ASSIGN_OR_RETURN(MeasurementKey key, ParseMeasurementKey(text));
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

// Bytes of the bandwidth in the table: a collective's size, as nccl-tests
// counts its algorithm bandwidth; else what must pass through memory.
double BytesOf(const Measured& measured) {
  const auto* collective =
      std::get_if<CollectiveKey>(&measured.measurement.key);
  return collective != nullptr ? static_cast<double>(collective->size_bytes)
                               : measured.floor.memory_bytes;
}

const char* Reason(StopReason reason) {
  switch (reason) {
    case StopReason::kGood:
      return "good";
    case StopReason::kSettledNoisy:
      return "noisy";
    case StopReason::kOutOfBudget:
      return "budget";
    case StopReason::kUnknown:
      break;
  }
  return "?";
}

int RunByHand(const std::vector<std::string>& arguments) {
  const auto by_hand = Parse(arguments);
  if (!by_hand.ok()) {
    return Complain(std::string(by_hand.status().message()));
  }
  if (by_hand->words.empty()) return Complain("run what? See --help");
  const auto node = Node::Create(by_hand->gpus);
  if (!node.ok()) return Complain(std::string(node.status().message()));
  const auto keys = KeysOf(*by_hand, (*node)->devices().size());
  if (!keys.ok()) return Complain(std::string(keys.status().message()));
  const auto nvml = Nvml::Load();

  std::printf("%-44s%12s%9s%11s%11s%9s%7s%5s  %s\n", "key", "median us",
              "iqr us", "p99 us", "GB/s", "TFLOP/s", "n", "out", "ended");
  const MeasureSink sink{
      .result =
          [](const Measured& measured) {
            const Statistics& s = measured.measurement.statistics;
            constexpr double kMicro = 1e6, kGiga = 1e-9, kTera = 1e-12;
            std::printf("%-44s%12.3f%9.3f%11.3f%11.2f%9.2f%7d%5d  %s\n",
                        ToString(measured.measurement.key).c_str(),
                        s.median_seconds * kMicro, s.iqr_seconds * kMicro,
                        s.p99_seconds * kMicro,
                        BytesOf(measured) / s.median_seconds * kGiga,
                        measured.floor.operations / s.median_seconds * kTera,
                        static_cast<int>(s.samples),
                        static_cast<int>(s.discarded), Reason(s.stop_reason));
            std::fflush(stdout);
          },
      .skip =
          [](const MeasurementKey& key, const std::string& reason) {
            std::printf("%-44s  skipped: %s\n", ToString(key).c_str(),
                        reason.c_str());
          }};
  MeasureOptions options;
  options.budget = absl::Minutes(10);
  options.refine = by_hand->refine;
  constexpr int kNcclTestsIterations = 20;  // its default -n
  if (by_hand->as_nccl_tests) options.as_nccl_tests = kNcclTestsIterations;
  const auto outcome = MeasureKeys(
      *keys, options, **node, nvml.ok() ? nvml->get() : nullptr, stop, sink);
  if (!outcome.ok()) {
    (*node)->Abort();
    Complain(std::string(outcome.status().message()));
    std::fflush(nullptr);
    _exit(outcome.status().code() == absl::StatusCode::kDeadlineExceeded
              ? kExitHung
              : kExitFailed);
  }
  return 0;
}

int Probe() {
  const auto nvml = Nvml::Load();
  if (!nvml.ok()) Complain(std::string(nvml.status().message()));
  const auto probe = ProbeNode(nvml.ok() ? nvml->get() : nullptr);
  if (!probe.ok()) return Complain(std::string(probe.status().message()));
  std::fputs(ProbeText(*probe).c_str(), stdout);
  return 0;
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    constexpr int kFrameDescriptor = 3;
    if (isatty(STDIN_FILENO) != 0 || fcntl(kFrameDescriptor, F_GETFD) == -1) {
      std::fputs(kUsage, stderr);
      return kExitBadPlan;
    }
    return RunPlanMode(stop);
  }
  if (arguments.front() == "--help" || arguments.front() == "-h") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (arguments.front() == "--probe") return Probe();
  if (arguments.front() == "run") {
    return RunByHand({arguments.begin() + 1, arguments.end()});
  }
  std::fputs(kUsage, stderr);
  return 1;
}

}  // namespace
}  // namespace fabricwise

int main(int argc, char** argv) {
  fabricwise::WatchSignals();
  return fabricwise::Main({argv + 1, argv + argc});
}
