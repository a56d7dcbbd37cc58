// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/command/command.h"
#include "client/json.h"
#include "client/render/progress.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

struct Flags {
  ServiceAddress address;
  bool full = false;
  std::vector<std::string> keys;
  std::optional<int64_t> budget_s;
  Format format = Format::kTable;
};

absl::Status Run(const Flags& flags, const Session& session) {
  v1::RunMeasurementRequest request;
  request.set_kind(flags.full ? v1::MEASUREMENT_KIND_FULL
                              : v1::MEASUREMENT_KIND_QUICK);
  for (const std::string& key : flags.keys) request.add_key_prefixes(key);
  if (flags.budget_s) {
    request.mutable_budget()->set_seconds(*flags.budget_s);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  const Style style = session.render_options().style;
  const bool bar = flags.format == Format::kTable && style.width > 0;
  v1::RunMeasurementResponse last;
  int64_t measured = 0;
  absl::Status written;
  const absl::Status status = service->RunMeasurement(
      request, [&](const v1::RunMeasurementResponse& response) {
        last = response;
        measured += response.has_measurement() ? 1 : 0;
        if (flags.format == Format::kJson) {
          absl::StatusOr<std::string> line =
              ToJson(response, JsonForm::kOneLine);
          written = line.status();
          if (line.ok()) session.out() << *line;
        } else if (bar) {
          session.out() << ClearProgress(style)
                        << RenderProgress(style, response);
        } else if (response.has_measurement()) {
          const v1::Measurement& measurement = response.measurement();
          session.out() << " " << response.done_count() << " of "
                        << response.total_count() << "  "
                        << Printable(measurement.key()) << "  "
                        << FormatSeconds(measurement.median_seconds()) << "\n";
        }
        session.out().flush();
        return written.ok() && session.out().good();
      });
  if (bar) session.out() << ClearProgress(style);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(written);
  if (flags.format == Format::kTable) {
    session.out() << " " << measured << " measured; "
                  << (last.profile_changed() ? "a new profile is in use"
                                             : "the profile in use stays")
                  << "\n";
    if (!last.note().empty()) {
      session.out() << Paragraph(
          style, " ! ",
          absl::StrCat("not all could be measured: ", Printable(last.note())),
          Paint::kWarn);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddMeasureCommand(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("measure", "Have the daemon measure its node now");
  auto flags = std::make_shared<Flags>();
  AddAddress(*command, &flags->address, Reach::kDaemon);
  command->add_flag("--full", flags->full,
                    "Everything, within minutes, rather than what is needed "
                    "most, within one");
  command
      ->add_option("--key", flags->keys,
                   "Only keys that begin so, such as all_reduce/n2/; may be "
                   "given again")
      ->type_name("PREFIX")
      ->expected(1)
      ->take_all();
  AddNumber(*command, "--budget-s", &flags->budget_s,
            "Longest time for the run, 1 to 3600");
  AddFormat(*command, &flags->format, {Format::kTable, Format::kJson});
  command->footer(
      "With --format json each message is one line. Ctrl-C ends the run.\n\n"
      "Examples:\n"
      "  fabricwise measure\n"
      "  fabricwise measure --full --key all_reduce/ --key all_to_all/");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return Run(*flags, session); };
  });
}

}  // namespace fabricwise
