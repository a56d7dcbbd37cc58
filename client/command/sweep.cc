// SPDX-License-Identifier: Apache-2.0
#include "client/command/sweep.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
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
};

}  // namespace

absl::Status RunSweep(const ServiceAddress& address,
                      const v1::RecommendParallelismRequest& question,
                      const std::vector<int64_t>& concurrencies, Format format,
                      bool explain, const Session& session) {
  v1::SweepConcurrencyRequest request;
  *request.mutable_question() = question;
  for (int64_t concurrency : concurrencies) {
    request.add_concurrencies(concurrency);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(address));
  absl::StatusOr<v1::SweepConcurrencyResponse> answer = service->Sweep(request);
  if (!answer.ok()) return NameTheFlag(answer.status());
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
                                   session.render_options(explain));
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
  AddConcurrency(*command, &flags->concurrency)
      ->description("Sequences in flight to look at (default 1, 2, 4 ... 512)");
  AddFormat(*command, &flags->format, {Format::kTable, Format::kJson});
  command->add_flag("--explain", flags->explain,
                    "Also print what the best plan's step is made of");
  command->footer(
      "Example:\n"
      "  fabricwise sweep --profile h200x2-net --model Qwen3-30B-A3B");
  command->callback([flags, &session] {
    session.action = [flags, &session]() -> absl::Status {
      ASSIGN_OR_RETURN(v1::RecommendParallelismRequest question,
                       ToRequest(flags->question));
      return RunSweep(flags->address, question, flags->concurrency,
                      flags->format, flags->explain, session);
    };
  });
}

}  // namespace fabricwise
