// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
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

// A daemon that restarts is back within seconds, a machine within minutes.
constexpr absl::Duration kFirstWait = absl::Seconds(1);
constexpr absl::Duration kLongestWait = absl::Seconds(30);
constexpr absl::Duration kPatience = absl::Minutes(10);

// Prints what a watch tells.
class Printer {
 public:
  Printer(const Flags& flags, const v1::RecommendParallelismRequest& question,
          const Session& session)
      : flags_(flags), question_(question), session_(session) {}

  int64_t seen() const { return seen_; }
  const absl::Status& written() const { return written_; }
  // Whether as much was seen as was asked for, or more cannot be printed.
  bool done() const {
    return !written_.ok() || !session_.out().good() ||
           (flags_.count && seen_ >= *flags_.count);
  }

  void Print(const v1::WatchRecommendationResponse& response) {
    if (flags_.format == Format::kJson) {
      absl::StatusOr<std::string> line = ToJson(response, JsonForm::kOneLine);
      written_ = line.status();
      if (line.ok()) session_.out() << *line;
    } else {
      const RenderOptions options = session_.render_options();
      const std::string head = absl::StrCat(
          " ", absl::FormatTime("%H:%M:%S", options.now, absl::LocalTimeZone()),
          "  ", Printable(response.reason()));
      session_.out() << (seen_ > 0 ? "\n" : "")
                     << Painted(options.style, Paint::kBold, head) << "\n"
                     << RenderRecommendation(question_, response.answer(),
                                             options);
    }
    session_.out().flush();
    ++seen_;
  }

 private:
  const Flags& flags_;
  const v1::RecommendParallelismRequest& question_;
  const Session& session_;
  int64_t seen_ = 0;
  absl::Status written_;
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
  Printer printer(flags, request.question(), session);
  absl::Duration wait = kFirstWait, waited;
  while (true) {
    ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                     session.environment.connect(flags.address));
    const absl::Status status = service->Watch(
        request, [&](const v1::WatchRecommendationResponse& response) {
          if (waited > absl::ZeroDuration()) session.Warn("connected again");
          wait = kFirstWait;
          waited = absl::ZeroDuration();
          printer.Print(response);
          return !printer.done();
        });
    RETURN_IF_ERROR(printer.written());
    // What never answered is not there; what did may come back.
    if (!absl::IsUnavailable(status) || printer.seen() == 0 || printer.done() ||
        waited >= kPatience) {
      return NameTheFlag(status);
    }
    if (waited == absl::ZeroDuration()) {
      session.Warn(absl::StrCat("lost the daemon, trying for ",
                                absl::FormatDuration(kPatience),
                                " to reach it again: ", status.message()));
    }
    session.environment.sleep(wait);
    waited += wait;
    wait = std::min(2 * wait, kLongestWait);
  }
}

}  // namespace

void AddWatchCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "watch", "The answer now, and again when it or its grounds change");
  auto flags = std::make_shared<Flags>();
  AddAddress(*command, &flags->address, Reach::kDaemon);
  AddQuestionFlags(*command, &flags->question);
  AddMaxPlans(*command, &flags->question);
  AddConcurrency(*command, &flags->concurrency, false)->required();
  AddNumber(*command, "--count", &flags->count,
            "Leave after this many answers (default: with Ctrl-C)");
  AddFormat(*command, &flags->format, {Format::kTable, Format::kJson});
  command->footer(
      "With --format json each answer is one line. A daemon that goes away "
      "after it has answered is waited for, up to 10 minutes; stderr says "
      "so.");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return Run(*flags, session); };
  });
}

}  // namespace fabricwise
