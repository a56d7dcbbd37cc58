// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command/command.h"
#include "client/local_service.h"
#include "client/remote_service.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

void AddStyle(CLI::App& app, Session& session) {
  app.add_option_function<std::string>(
         "--color",
         [&session](const std::string& text) {
           if (text == "auto") {
             session.style_choice = StyleChoice::kAuto;
           } else if (text == "always") {
             session.style_choice = StyleChoice::kAlways;
           } else if (text == "never") {
             session.style_choice = StyleChoice::kNever;
           } else {
             throw CLI::ValidationError(
                 "--color",
                 absl::StrCat("\"", text, "\"; allowed: auto, always, never"));
           }
         },
         "Colour and Unicode plots: auto (on a terminal), always, never")
      ->type_name("WHEN");
}

// What is wrong with the word that is to be a command; empty where all is well.
// CLI11 would only say that a command is missing.
std::string UnknownCommand(const CLI::App& app,
                           const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--color") {
      ++i;  // its value
    } else if (!absl::StartsWith(arguments[i], "-")) {
      if (absl::c_linear_search(names, arguments[i])) return "";
      return absl::StrCat("\"", arguments[i], "\" is no command; allowed: ",
                          absl::StrJoin(names, ", "));
    }
  }
  return "";
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kAnswered;
    case absl::StatusCode::kFailedPrecondition:
      return kNotAnswerable;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
      return kUnreachable;
    default:  // an enum of Abseil's, which may grow
      return kRefused;
  }
}

namespace {

ExitCode RunCommand(std::vector<std::string> arguments,
                    const ClientEnvironment& environment) {
  Session session{environment, StyleChoice::kAuto, nullptr};
  CLI::App app(
      "Which parallelism mode should this model run in, on this node?\n"
      "Answers come from measured curves: the node's own, by its daemon, or "
      "those of a profile.",
      "fabricwise");
  app.set_version_flag("--version",
                       absl::StrCat("fabricwise ", FABRICWISE_VERSION));
  app.require_subcommand(1);
  app.fallthrough();
  AddStyle(app, session);
  AddRecommendCommand(app, session);
  AddSweepCommand(app, session);
  AddRankCommand(app, session);
  AddCurvesCommand(app, session);
  AddModelsCommand(app, session);
  AddProfileCommand(app, session);
  AddStatusCommand(app, session);
  AddWatchCommand(app, session);
  AddMeasureCommand(app, session);
  AddDoctorCommand(app, session);
  app.footer(
      "Exit codes: 0 answered, 1 refused, 2 unreachable, 3 not answerable, "
      "4 output not written,\n"
      "5 no plan meets the limits, with --fail-on-miss (without it 0, and a "
      "line on stderr says so).\n"
      "`fabricwise COMMAND --help` tells a command's flags.");

  if (std::string odd = UnknownCommand(app, arguments); !odd.empty()) {
    session.Warn(odd);
    return kRefused;
  }
  // CLI11 takes arguments last first.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success, *environment.out, *environment.err);
    return kAnswered;
  } catch (const CLI::Error& error) {
    session.Warn(absl::StrCat(error.what(), " (--help tells more)"));
    return kRefused;
  }
  absl::Status status = session.action();
  if (!status.ok()) session.Warn(status.message());
  if (status.ok() && session.missed) return kMissed;
  return ExitCodeOf(status);
}

}  // namespace

int RunClient(std::vector<std::string> arguments,
              const ClientEnvironment& environment) {
  const ExitCode code = RunCommand(std::move(arguments), environment);
  environment.out->flush();
  if (environment.out->good() || (code != kAnswered && code != kMissed)) {
    return code;
  }
  *environment.err << "fabricwise: the output cannot be written\n";
  return kNotWritten;
}

absl::StatusOr<std::unique_ptr<Service>> Connect(
    const ServiceAddress& address) {
  if (!address.profile.empty()) {
    ASSIGN_OR_RETURN(std::shared_ptr<const Profile> profile,
                     LoadProfile(address.profile));
    return AnswerFrom(std::move(profile));
  }
  // The daemon of this machine is asked in plain text.
  return address.target.empty()
             ? ConnectTo(DefaultTarget(), TlsIdentity(), address.deadline)
             : ConnectTo(address.target, address.tls, address.deadline);
}

}  // namespace fabricwise
