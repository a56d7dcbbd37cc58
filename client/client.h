// SPDX-License-Identifier: Apache-2.0
//
// The command-line client, less its process: arguments in, text and an exit
// code out.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/render/style.h"
#include "client/service.h"
#include "server/base/clock.h"

namespace fabricwise {

// What a script may rely on.
enum ExitCode {
  kAnswered = 0,
  kRefused = 1,        // bad flag, field or file
  kUnreachable = 2,    // no daemon, or it did not answer in time
  kNotAnswerable = 3,  // no grounds: something would have to be measured
  kNotWritten = 4,     // the output took less than was to be written
  kMissed = 5,         // no plan meets the limits, with --fail-on-miss
};

ExitCode ExitCodeOf(const absl::Status& status);

struct ClientEnvironment {
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  TerminalFacts terminal;  // of `out`
  const Clock* clock = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<Service>>(const ServiceAddress&)>
      connect;
  std::function<void(absl::Duration)> sleep;
};

// Runs one command. `arguments` exclude the program's name. Everything asked
// for goes to `out`; an error, or what to know of an answer, is one line on
// `err`.
int RunClient(std::vector<std::string> arguments,
              const ClientEnvironment& environment);

// The address's profile or daemon: what `connect` is outside of tests.
absl::StatusOr<std::unique_ptr<Service>> Connect(const ServiceAddress& address);

}  // namespace fabricwise
