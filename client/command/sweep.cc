// SPDX-License-Identifier: Apache-2.0
#include "client/command/sweep.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command/question.h"
#include "client/render/recommend.h"
#include "client/render/units.h"
#include "client/render/words.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

struct Flags {
  ServiceAddress address;
  QuestionFlags question;
  std::vector<int64_t> concurrency;
  Format format = Format::kTable;
  bool explain = false;
  bool fail_on_miss = false;
};

// Where the best plan misses limits, all do.
void TellMisses(const v1::SweepConcurrencyResponse& answer, bool fail,
                Session& session) {
  std::vector<std::string> at;
  std::string first;
  for (const v1::SweepPoint& point : answer.points()) {
    if (point.plans().empty()) continue;
    const v1::PlanAdvice& best = point.plans(0);
    const std::string missed = MissedLimits(best);
    if (missed.empty()) continue;
    at.push_back(FormatCount(point.concurrency()));
    if (first.empty()) {
      first = absl::StrCat(best.plan().mode(), " at ", at[0], ": ", missed);
    }
  }
  if (at.empty()) return;
  session.Warn(absl::StrCat("no plan meets the limits at concurrency ",
                            absl::StrJoin(at, ", "), "; ", first));
  session.missed = fail;
}

}  // namespace

absl::Status RunSweep(const ServiceAddress& address, const SweepQuestion& asked,
                      Format format, Session& session) {
  const v1::RecommendParallelismRequest& question = asked.question;
  v1::SweepConcurrencyRequest request;
  *request.mutable_question() = question;
  for (int64_t concurrency : asked.concurrencies) {
    request.add_concurrencies(concurrency);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(address));
  absl::StatusOr<v1::SweepConcurrencyResponse> answer = service->Sweep(request);
  if (!answer.ok()) return NameTheFlag(answer.status());
  TellMisses(*answer, asked.fail_on_miss, session);
  switch (format) {
    case Format::kJson:
      return WriteJson(*answer, session.out());
    case Format::kFlags:
      for (const v1::SweepPoint& point : answer->points()) {
        session.out() << RenderLaunches(
            point.plans(),
            absl::StrCat(
                answer->model().name(), ", ",
                DescribeLoad(question, FormatCount(point.concurrency()))));
      }
      return absl::OkStatus();
    case Format::kTable:
    case Format::kCsv:
      session.out() << RenderSweep(question, *answer,
                                   session.render_options(asked.explain));
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void AddSweepCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "sweep", "The best mode over concurrency, and where it changes");
  auto flags = std::make_shared<Flags>();
  AddAddress(*command, &flags->address, Reach::kEither);
  AddQuestionFlags(*command, &flags->question);
  AddConcurrency(*command, &flags->concurrency, true)
      ->description("Sequences in flight to look at (default 1, 2, 4 ... 512)");
  AddFormat(*command, &flags->format, {Format::kTable, Format::kJson});
  command->add_flag("--explain", flags->explain,
                    "Also print what the best plan's step is made of");
  AddFailOnMiss(*command, &flags->fail_on_miss);
  command->footer(
      "Example:\n"
      "  fabricwise sweep --profile h200x2-net --model Qwen3-30B-A3B");
  command->callback([flags, &session] {
    session.action = [flags, &session]() -> absl::Status {
      ASSIGN_OR_RETURN(v1::RecommendParallelismRequest question,
                       ToRequest(flags->question));
      return RunSweep(
          flags->address,
          {question, flags->concurrency, flags->explain, flags->fail_on_miss},
          flags->format, session);
    };
  });
}

}  // namespace fabricwise
