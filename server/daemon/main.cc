// SPDX-License-Identifier: Apache-2.0
//
// fabricwised. Exit status: 0 stopped when asked to, or printed what was asked
// for; 1 could not start; 2 the command line or the configuration file is
// wrong; 128 + N ended at once by a second signal N.
#include <sys/stat.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/daemon/config.h"
#include "server/daemon/daemon.h"
#include "server/daemon/log.h"
#include "server/daemon/signals.h"

namespace fabricwise {
namespace {

constexpr int kCannotStart = 1;
constexpr int kWrongUsage = 2;

int Main(const std::vector<std::string>& arguments) {
  // What the daemon keeps is the owner's and the group's to read.
  constexpr mode_t kMask = 0027;
  umask(kMask);
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
  SignalThread signals;
  const absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(config, DefaultConfig(environment), Clock::Real());
  if (!daemon.ok()) {
    Log(LogLevel::kError, "cannot start",
        {{"reason", std::string(daemon.status().message())}});
    return kCannotStart;
  }
  signals.WaitForStop();
  (*daemon)->Drain(config.drain);
  return 0;
}

}  // namespace
}  // namespace fabricwise

int main(int argc, char** argv) {
  return fabricwise::Main(std::vector<std::string>(argv + 1, argv + argc));
}
