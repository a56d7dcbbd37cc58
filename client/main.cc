// SPDX-License-Identifier: Apache-2.0
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "client/client.h"

namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fabricwise::TerminalFacts FindTerminal() {
  fabricwise::TerminalFacts facts;
  facts.is_terminal = isatty(STDOUT_FILENO) == 1;
  winsize size = {};
  if (facts.is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
    facts.columns = size.ws_col;
  }
  int columns = 0;
  if (facts.columns == 0 && absl::SimpleAtoi(Variable("COLUMNS"), &columns) &&
      columns > 0) {
    facts.columns = columns;
  }
  facts.term = Variable("TERM");
  facts.no_color = !Variable("NO_COLOR").empty();
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    facts.locale = Variable(name);
    if (!facts.locale.empty()) break;
  }
  return facts;
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that leaves early, as `head` does, ends the program quietly.
  std::signal(SIGPIPE, SIG_DFL);
  fabricwise::ClientEnvironment environment;
  environment.out = &std::cout;
  environment.err = &std::cerr;
  environment.terminal = FindTerminal();
  environment.clock = fabricwise::Clock::Real();
  environment.connect = fabricwise::Connect;
  environment.sleep = absl::SleepFor;
  return fabricwise::RunClient(std::vector<std::string>(argv + 1, argv + argc),
                               environment);
}
