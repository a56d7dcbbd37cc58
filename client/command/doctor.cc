// SPDX-License-Identifier: Apache-2.0
#include "client/render/doctor.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/command/command.h"
#include "client/render/text.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

void Append(std::vector<Check> more, std::vector<Check>* checks) {
  for (Check& check : more) checks->push_back(std::move(check));
}

absl::Status Run(const ServiceAddress& address, const Session& session) {
  RenderOptions options = session.render_options();
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(address));
  std::vector<Check> checks;
  bool serving = true;
  if (address.profile.empty()) {
    ASSIGN_OR_RETURN(v1::GetStatusResponse status, service->GetStatus());
    serving = status.serving();
    Append(CheckDaemon(status, options.now), &checks);
    if (status.worker_installed()) {
      const auto diagnosis = service->Diagnose();
      if (diagnosis.ok()) {
        Append(CheckNode(*diagnosis, options.now), &checks);
      } else {
        checks.push_back(
            {Finding::kBad, "hardware",
             absl::StrCat("not to be seen: ",
                          Printable(diagnosis.status().message()))});
      }
    }
  }
  if (serving) {
    ASSIGN_OR_RETURN(v1::NodeProfile profile,
                     service->GetProfile(v1::PROFILE_VIEW_CURVES));
    Append(CheckProfile(profile, options.now), &checks);
  }
  session.out() << RenderChecks(options.style, checks);
  bool bad = std::any_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.finding == Finding::kBad;
  });
  if (!bad) return absl::OkStatus();
  return absl::FailedPreconditionError("some questions cannot be answered");
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "doctor", "What keeps advice from being given, or from being good");
  auto address = std::make_shared<ServiceAddress>();
  AddAddress(*command, address.get(), Reach::kEither);
  command->footer("Exit code 3 where some questions cannot be answered.");
  command->callback([address, &session] {
    session.action = [address, &session] { return Run(*address, session); };
  });
}

}  // namespace fabricwise
