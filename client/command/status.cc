// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/command/command.h"
#include "client/remote_service.h"
#include "client/render/profile.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

struct Flags {
  ServiceAddress address;
  Format format = Format::kTable;
};

absl::Status Run(const Flags& flags, const Session& session) {
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  ASSIGN_OR_RETURN(v1::GetStatusResponse status, service->GetStatus());
  if (flags.format == Format::kJson) {
    RETURN_IF_ERROR(WriteJson(status, session.out()));
  } else {
    RenderOptions options = session.render_options();
    session.out() << RenderStatus(
        options.style,
        flags.address.target.empty() ? DefaultTarget() : flags.address.target,
        status, options.now);
  }
  if (status.serving()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the daemon cannot advise: ", status.reason()));
}

}  // namespace

void AddStatusCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "status", "How the daemon is, and what it advises from");
  auto flags = std::make_shared<Flags>();
  AddAddress(*command, &flags->address, Reach::kDaemon);
  AddFormat(*command, &flags->format, {Format::kTable, Format::kJson});
  command->footer("Exit code 3 while it cannot advise.");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return Run(*flags, session); };
  });
}

}  // namespace fabricwise
