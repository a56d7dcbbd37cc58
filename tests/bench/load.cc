// SPDX-License-Identifier: Apache-2.0
//
// Load over loopback, by one client thread.
//
// By itself: so many calls are kept in flight, the server is a process of its
// own. An RPC that does nothing is asked beside the real ones, in turns, so
// that the ratio says what the answer costs on this machine, whatever else it
// does.
//
// With --target: a daemon is first asked so for its highest rate, then at a
// share of that, each call at its own time whether or not those before are
// answered, and timed from there.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabricwise/v1/advisor.grpc.pb.h"
#include "server/profile/profile_file.h"
#include "server/rpc/handler.h"
#include "server/rpc/service.h"
#include "tests/support/fake_backend.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr char kMethod[] =
    "/fabricwise.v1.ParallelismAdvisor/RecommendParallelism";
constexpr char kAnyPort[] = "127.0.0.1:0";

struct Settings {
  int in_flight = 16;
  int rounds = 5;
  double seconds = 2;  // of each kind in each round
  int gpus = 8;
  std::string profile;  // a file; empty: the made-up node
  std::string preset = "Qwen3-30B-A3B";
  bool brief = false;
  std::string target;  // HOST:PORT of a daemon; empty: our own server
  // Of the highest rate, which holds while one profile stays in use. Where
  // profiles are replaced, remembered answers go with them, and twice as much
  // was more than two cores could do.
  double share = 0.25;
};

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "load: %s\n", why.c_str());
  std::exit(1);
}

// --- The server's process.

// The same method, raw as well, that answers nothing.
class EmptyService
    : public v1::ParallelismAdvisor::WithRawCallbackMethod_RecommendParallelism<
          v1::ParallelismAdvisor::Service> {
 public:
  grpc::ServerUnaryReactor* RecommendParallelism(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
      grpc::ByteBuffer* response) override {
    const grpc::Slice nothing;
    *response = grpc::ByteBuffer(&nothing, 1);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

std::shared_ptr<const Profile> LoadProfile(const Settings& settings) {
  if (settings.profile.empty()) return SampleProfile("node", settings.gpus);
  std::ifstream file(settings.profile);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) Die("cannot read " + settings.profile);
  auto data = ReadProfile(settings.profile, text.str());
  if (!data.ok()) Die(data.status().ToString());
  auto profile = Profile::Build(*std::move(data));
  if (!profile.ok()) Die(profile.status().ToString());
  return *std::move(profile);
}

struct Ports {
  int advisor = 0;
  int forgetful = 0;  // the same, that keeps no answers
  int empty = 0;
};

// Writes its Ports to `out` and serves until `in` is closed.
void Serve(const Settings& settings, int in, int out) {
  SnapshotHolder snapshots;
  snapshots.Set(LoadProfile(settings));
  FakeBackend backend;
  Handler handler(&snapshots, &backend, Clock::Real(), {});
  Handler forgetful_handler(&snapshots, &backend, Clock::Real(),
                            {.cache_bytes = 0});
  RpcServerOptions options;
  options.addresses = {{.address = kAnyPort}};
  Access access(AccessRules(), Clock::Real());
  const auto start = [&](Handler& with) {
    auto started =
        RpcServer::Start(options, &with, &snapshots, nullptr, &access);
    if (!started.ok()) Die(started.status().ToString());
    return started;
  };
  const auto server = start(handler);
  const auto forgetful = start(forgetful_handler);
  Ports ports;
  ports.advisor = (*server)->ports()[0];
  ports.forgetful = (*forgetful)->ports()[0];

  EmptyService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(kAnyPort, grpc::InsecureServerCredentials(),
                           &ports.empty);
  builder.RegisterService(&service);
  const auto empty_server = builder.BuildAndStart();
  if (empty_server == nullptr) Die("no server for empty RPCs");

  if (write(out, &ports, sizeof(ports)) != sizeof(ports)) Die("pipe");
  char end;
  while (read(in, &end, 1) > 0) {
  }
  (*server)->Shutdown(absl::Seconds(1));
  empty_server->Shutdown(std::chrono::system_clock::now() +
                         std::chrono::seconds(1));
}

// --- The client's process.

// CPU time that a process has used, which tells more than rates do where the
// machine has other work.
double CpuMicros(pid_t process) {
  clockid_t clock = 0;
  timespec used{};
  if (clock_getcpuclockid(process, &clock) != 0 ||
      clock_gettime(clock, &used) != 0) {
    Die("no CPU clock");
  }
  return static_cast<double>(used.tv_sec) * 1e6 +
         static_cast<double>(used.tv_nsec) / 1e3;
}

struct Result {
  double rate = 0;                              // calls per second
  double server_cpu_us = 0, client_cpu_us = 0;  // per call
  double p50_us = 0, p99_us = 0;
  size_t answer_bytes = 0;  // of the last
};

class Client {
 public:
  // `server`: whose CPU time is told; 0: nobody's.
  Client(const std::string& target, pid_t server, int in_flight)
      : server_(server),
        stub_(grpc::CreateChannel(target, grpc::InsecureChannelCredentials())),
        calls_(static_cast<size_t>(in_flight)) {}

  // Keeps calls of what `next` gives in flight for `seconds`.
  Result Run(const std::function<std::string()>& next, double seconds) {
    std::vector<double> micros;
    const double server_before = ServerCpu();
    const double client_before = CpuMicros(getpid());
    const SteadyClock::time_point start = SteadyClock::now();
    const SteadyClock::time_point end =
        start + std::chrono::duration_cast<SteadyClock::duration>(
                    std::chrono::duration<double>(seconds));
    for (Call& call : calls_) Send(call, next());
    Result result;
    size_t open = calls_.size();
    while (open > 0) {
      void* tag = nullptr;
      bool ok = false;
      queue_.Next(&tag, &ok);
      Call& call = *static_cast<Call*>(tag);
      if (!ok || !call.status.ok()) Die(call.status.error_message());
      const SteadyClock::time_point now = SteadyClock::now();
      micros.push_back(
          std::chrono::duration<double, std::micro>(now - call.start).count());
      result.answer_bytes = call.response.Length();
      if (now < end) {
        Send(call, next());
      } else {
        --open;
      }
    }
    const double took =
        std::chrono::duration<double>(SteadyClock::now() - start).count();
    std::sort(micros.begin(), micros.end());
    const auto calls = static_cast<double>(micros.size());
    result.rate = calls / took;
    result.server_cpu_us = (ServerCpu() - server_before) / calls;
    result.client_cpu_us = (CpuMicros(getpid()) - client_before) / calls;
    result.p50_us = micros[micros.size() / 2];
    result.p99_us = micros[micros.size() * 99 / 100];
    return result;
  }

  // Sends `rate` calls a second for `seconds`, each when it is due, and prints
  // how long they took from then on. Returns how many failed.
  size_t RunAtRate(const std::function<std::string()>& next, double rate,
                   double seconds) {
    const auto total = static_cast<size_t>(rate * seconds);
    const SteadyClock::time_point start = SteadyClock::now();
    const auto due = [&](size_t call) {
      return start + std::chrono::duration_cast<SteadyClock::duration>(
                         std::chrono::duration<double>(
                             static_cast<double>(call) / rate));
    };
    std::vector<double> micros;
    micros.reserve(total);
    // By a thread of its own: waiting for an answer has no finer clock than a
    // millisecond.
    const std::jthread sender([&] {
      for (size_t sent = 0; sent < total; ++sent) {
        std::this_thread::sleep_until(due(sent));
        auto call = std::make_unique<Call>();
        Call& one = *call.release();  // until its answer is taken
        Send(one, next(), due(sent));
      }
    });
    size_t failed = 0;
    for (size_t done = 0; done < total; ++done) {
      void* tag = nullptr;
      bool ok = false;
      if (!queue_.Next(&tag, &ok)) break;
      const std::unique_ptr<Call> call(static_cast<Call*>(tag));
      micros.push_back(std::chrono::duration<double, std::micro>(
                           SteadyClock::now() - call->start)
                           .count());
      if (ok && call->status.ok()) continue;
      constexpr size_t kTold = 5;
      if (++failed <= kTold) {
        std::printf("failed: %s\n", call->status.error_message().c_str());
      }
    }
    std::sort(micros.begin(), micros.end());
    const auto at = [&](size_t of_thousand) {
      return micros[std::min(micros.size() - 1,
                             micros.size() * of_thousand / 1000)];
    };
    std::printf(
        "%zu calls at %.0f/s, %zu failed; us: p50 %.0f, p90 %.0f, "
        "p99 %.0f, p99.9 %.0f, most %.0f\n",
        total, rate, failed, at(500), at(900), at(990), at(999), micros.back());
    return failed;
  }

 private:
  double ServerCpu() const { return server_ == 0 ? 0 : CpuMicros(server_); }

  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
    SteadyClock::time_point start;
  };

  // `start`: from when on its time counts.
  void Send(Call& call, const std::string& request,
            SteadyClock::time_point start = SteadyClock::now()) {
    const grpc::Slice slice(request);
    const grpc::ByteBuffer bytes(&slice, 1);
    call.start = start;
    call.context = std::make_unique<grpc::ClientContext>();
    call.response.Clear();
    call.reader =
        stub_.PrepareUnaryCall(call.context.get(), kMethod, bytes, &queue_);
    call.reader->StartCall();
    call.reader->Finish(&call.response, &call.status, &call);
  }

  const pid_t server_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::vector<Call> calls_;
};

class Questions {
 public:
  explicit Questions(const Settings& settings) {
    request_.mutable_model()->set_preset(settings.preset);
    request_.set_engine(v1::ENGINE_VLLM);
    request_.mutable_workload()->set_concurrency(64);
    request_.mutable_limits()->set_ignore_memory(true);
    if (settings.brief) request_.set_view(v1::ADVICE_VIEW_BASIC);
    same_ = request_.SerializeAsString();
  }

  const std::string& Same() const { return same_; }

  // The same but for the concurrency.
  std::string OfOtherConcurrency() {
    constexpr int64_t kConcurrencies = 512;
    ++asked_;
    request_.mutable_workload()->set_concurrency(1 + asked_ % kConcurrencies);
    return request_.SerializeAsString();
  }

  // Never asked before, and always of lengths that are served: of half a
  // million tokens far more flip points have to be looked for.
  std::string Another() {
    constexpr int64_t kInput = 1024, kOutputs = 4096;
    v1::Workload& workload = *request_.mutable_workload();
    workload.set_input_tokens(kInput + asked_ / kOutputs);
    workload.set_output_tokens(1 + asked_ % kOutputs);
    return OfOtherConcurrency();
  }

 private:
  v1::RecommendParallelismRequest request_;
  std::string same_;
  int64_t asked_ = 0;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure(const Settings& settings, pid_t server, const Ports& ports) {
  const auto at = [](int port) { return "127.0.0.1:" + std::to_string(port); };
  Client advisor(at(ports.advisor), server, settings.in_flight);
  Client forgetful(at(ports.forgetful), server, settings.in_flight);
  Client empty(at(ports.empty), server, settings.in_flight);
  Questions questions(settings);
  struct Kind {
    const char* name;
    std::function<Result(double)> run;
    std::vector<double> rate = {}, ratio = {}, p50_us = {}, p99_us = {},
                        server_cpu_us = {}, client_cpu_us = {};
    size_t answer_bytes = 0;
  };
  std::array kinds = {
      Kind{"empty",
           [&](double s) {
             return empty.Run([&] { return questions.Same(); }, s);
           }},
      Kind{"repeated",
           [&](double s) {
             return advisor.Run([&] { return questions.Same(); }, s);
           }},
      Kind{"other concurrency",
           [&](double s) {
             return forgetful.Run(
                 [&] { return questions.OfOtherConcurrency(); }, s);
           }},
      Kind{"other lengths",
           [&](double s) {
             return advisor.Run([&] { return questions.Another(); }, s);
           }},
  };
  constexpr double kWarmUpSeconds = 0.3;
  for (Kind& kind : kinds) kind.run(kWarmUpSeconds);
  for (int round = 0; round < settings.rounds; ++round) {
    for (Kind& kind : kinds) {
      const Result result = kind.run(settings.seconds);
      kind.rate.push_back(result.rate);
      kind.ratio.push_back(result.rate / kinds[0].rate.back());
      kind.p50_us.push_back(result.p50_us);
      kind.p99_us.push_back(result.p99_us);
      kind.server_cpu_us.push_back(result.server_cpu_us);
      kind.client_cpu_us.push_back(result.client_cpu_us);
      kind.answer_bytes = result.answer_bytes;
    }
  }
  std::printf(
      "%d calls in flight, %d rounds of %g s each, medians over rounds; %s\n",
      settings.in_flight, settings.rounds, settings.seconds,
      settings.preset.c_str());
  std::printf("%-17s %9s %9s %8s %8s %14s %14s %13s\n", "", "calls/s",
              "of empty", "p50 us", "p99 us", "server CPU us", "client CPU us",
              "answer bytes");
  for (const Kind& kind : kinds) {
    std::printf("%-17s %9.0f %9.2f %8.0f %8.0f %14.1f %14.1f %13zu\n",
                kind.name, Median(kind.rate), Median(kind.ratio),
                Median(kind.p50_us), Median(kind.p99_us),
                Median(kind.server_cpu_us), Median(kind.client_cpu_us),
                kind.answer_bytes);
  }
}

int Soak(const Settings& settings) {
  Client client(settings.target, 0, settings.in_flight);
  Questions questions(settings);
  // One of two was asked before.
  bool again = false;
  const auto next = [&] {
    again = !again;
    return again ? questions.Same() : questions.Another();
  };
  constexpr double kProbeSeconds = 5;
  const double highest = client.Run(next, kProbeSeconds).rate;
  std::printf("%s, %s: at most %.0f calls/s\n", settings.preset.c_str(),
              settings.brief ? "basic" : "full", highest);
  std::fflush(stdout);
  return client.RunAtRate(next, highest * settings.share, settings.seconds) == 0
             ? 0
             : 1;
}

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Load over loopback, beside an RPC that does nothing");
  app.add_option("--in-flight", settings.in_flight)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--rounds", settings.rounds)
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", settings.seconds)
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_option("--gpus", settings.gpus, "GPUs of the made-up node")
      ->check(CLI::IsMember({1, 2, 4, 8, 16}))
      ->capture_default_str();
  app.add_option("--profile", settings.profile, "A profile file instead");
  app.add_option("--model", settings.preset)->capture_default_str();
  app.add_flag("--brief", settings.brief, "Ask for ADVICE_VIEW_BASIC");
  app.add_option("--target", settings.target, "HOST:PORT of a daemon instead");
  app.add_option("--share", settings.share, "Of its highest rate")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (!settings.target.empty()) return Soak(settings);

  // Before either side has started a thread.
  int to_server[2], from_server[2];
  if (pipe(to_server) != 0 || pipe(from_server) != 0) Die("pipe");
  const pid_t server = fork();
  if (server < 0) Die("fork");
  if (server == 0) {
    close(to_server[1]);
    close(from_server[0]);
    Serve(settings, to_server[0], from_server[1]);
    return 0;
  }
  close(to_server[0]);
  close(from_server[1]);
  Ports ports;
  if (read(from_server[0], &ports, sizeof(ports)) != sizeof(ports)) {
    Die("the server did not start");
  }
  Measure(settings, server, ports);
  close(to_server[1]);
  int status = 0;
  waitpid(server, &status, 0);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fabricwise

int main(int argc, char** argv) { return fabricwise::Main(argc, argv); }
