// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/command/command.h"
#include "client/command/question.h"
#include "client/json.h"
#include "client/render/recommend.h"
#include "client/render/text.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

struct Flags {
  ServiceAddress address;
  QuestionFlags question;
  std::vector<int64_t> concurrency;
  Format format = Format::kTable;
  std::optional<int64_t> count;
};

absl::Status Run(const Flags& flags, const Session& session) {
  if (flags.concurrency.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--concurrency has ", flags.concurrency.size(),
                     " values; allowed: 1, as watching is for one question"));
  }
  if (flags.count && *flags.count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--count is ", *flags.count, "; allowed: 1 and up"));
  }
  v1::WatchRecommendationRequest request;
  ASSIGN_OR_RETURN(*request.mutable_question(), ToRequest(flags.question));
  request.mutable_question()->mutable_workload()->set_concurrency(
      flags.concurrency[0]);
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  int64_t seen = 0;
  absl::Status written;
  absl::Status status = service->Watch(
      request, [&](const v1::WatchRecommendationResponse& response) {
        RenderOptions options = session.render_options();
        if (flags.format == Format::kJson) {
          absl::StatusOr<std::string> line =
              ToJson(response, JsonForm::kOneLine);
          written = line.status();
          if (line.ok()) session.out() << *line;
        } else {
          session.out() << (seen > 0 ? "\n" : "")
                        << Painted(options.style, Paint::kBold,
                                   absl::StrCat(
                                       " ",
                                       absl::FormatTime("%H:%M:%S", options.now,
                                                        absl::LocalTimeZone()),
                                       "  ", Printable(response.reason())))
                        << "\n"
                        << RenderRecommendation(request.question(),
                                                response.answer(), options);
        }
        session.out().flush();
        ++seen;
        return written.ok() && session.out().good() &&
               (!flags.count || seen < *flags.count);
      });
  RETURN_IF_ERROR(written);
  return NameTheFlag(status);
}

}  // namespace

void AddWatchCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "watch", "The answer now, and again when it or its grounds change");
  auto flags = std::make_shared<Flags>();
  AddAddress(*command, &flags->address, Reach::kDaemon);
  AddQuestionFlags(*command, &flags->question);
  AddConcurrency(*command, &flags->concurrency)->required();
  AddNumber(*command, "--count", &flags->count,
            "Leave after this many answers (default: with Ctrl-C)");
  AddFormat(*command, &flags->format, {Format::kTable, Format::kJson});
  command->footer("With --format json each answer is one line.");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return Run(*flags, session); };
  });
}

}  // namespace fabricwise
