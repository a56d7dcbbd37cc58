// SPDX-License-Identifier: Apache-2.0
//
// fabricwised. Exit status: 0 stopped when asked to, or printed what was asked
// for; 1 could not start; 2 the command line or the configuration file is
// wrong; 128 + N ended at once by a second signal N.
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/log.h"
#include "server/daemon/service_manager.h"
#include "server/daemon/signals.h"

namespace fabricwise {
namespace {

constexpr int kCannotStart = 1;
constexpr int kWrongUsage = 2;

void LogFailure(const absl::Status& status) {
  if (status.ok()) return;
  Log(LogLevel::kWarning, "service manager not told",
      {{"reason", std::string(status.message())}});
}

absl::StatusOr<Config> ReadAgain(const std::vector<std::string>& arguments,
                                 const Environment& environment) {
  absl::StatusOr<CommandLine> read = ParseCommandLine(arguments, environment);
  if (!read.ok()) return read.status();
  return std::move(read->config);
}

// Reads the configuration again when asked to, and says that all is well only
// as long as it is.
void ServeUntilStopped(SignalThread& signals, const ServiceManager& manager,
                       Daemon& daemon,
                       const std::function<absl::StatusOr<Config>()>& read) {
  // Twice within the time that the manager grants, and each within half of the
  // rest.
  const absl::Duration interval = manager.watchdog() / 2;
  using Steady = std::chrono::steady_clock;
  Steady::time_point last = Steady::now();
  while (true) {
    const absl::Duration past = absl::FromChrono(Steady::now() - last);
    switch (signals.Wait(interval - past)) {
      case SignalThread::Event::kStop:
        return;
      case SignalThread::Event::kReload:
        LogFailure(manager.Reloading());
        daemon.Reload(read());
        LogFailure(manager.Ready(daemon.StatusLine()));
        break;
      case SignalThread::Event::kNone:
        last = Steady::now();
        if (const std::string stuck = daemon.FindStuck(interval / 2);
            stuck.empty()) {
          LogFailure(manager.Alive(daemon.StatusLine()));
        } else {
          Log(LogLevel::kError, "no sign of life", {{"part", stuck}});
        }
        break;
    }
  }
}

// Each connection takes a descriptor, and a listener that once found none left
// does not listen again.
void AllowManyConnections() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Of memory that was freed each arena of malloc keeps its own, and by default
// there may be eight a core: on a node of 128, more than all else together.
// Under load with new profiles a daemon on two cores ends with 45 MiB where
// there are two, 50 with four, 57 with sixteen; fewer have threads wait for
// each other.
void KeepLittleMemory() {
  constexpr int kArenas = 4;
  mallopt(M_ARENA_MAX, kArenas);
}

int Main(const std::vector<std::string>& arguments) {
  KeepLittleMemory();
  // What the daemon keeps is the owner's and the group's to read.
  constexpr mode_t kMask = 0027;
  umask(kMask);
  AllowManyConnections();
  SignalThread::Mask();
  const Environment environment = Environment::OfProcess();
  const absl::StatusOr<CommandLine> command_line =
      ParseCommandLine(arguments, environment);
  if (!command_line.ok()) {
    const std::string message(command_line.status().message());
    std::fprintf(stderr, "fabricwised: %s\n", message.c_str());
    return kWrongUsage;
  }
  if (command_line->action == CommandLine::Action::kPrint) {
    std::fputs(command_line->text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : kCannotStart;
  }
  const Config& config = command_line->config;
  SetUpLog(config.log_level, config.log_format);
  const ServiceManager manager(environment, getpid());
  SignalThread signals;
  const absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(config, DefaultConfig(environment), Clock::Real());
  if (!daemon.ok()) {
    Log(LogLevel::kError, "cannot start",
        {{"reason", std::string(daemon.status().message())}});
    return kCannotStart;
  }
  LogFailure(manager.Ready((*daemon)->StatusLine()));
  ServeUntilStopped(signals, manager, **daemon,
                    [&] { return ReadAgain(arguments, environment); });
  LogFailure(manager.Stopping());
  (*daemon)->Drain((*daemon)->config().drain);
  return 0;
}

}  // namespace
}  // namespace fabricwise

int main(int argc, char** argv) {
  return fabricwise::Main(std::vector<std::string>(argv + 1, argv + argc));
}
