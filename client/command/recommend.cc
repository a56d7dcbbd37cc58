// SPDX-License-Identifier: Apache-2.0
#include "client/render/recommend.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/command/command.h"
#include "client/command/question.h"
#include "client/command/sweep.h"
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

absl::Status Run(const Flags& flags, Session& session) {
  ASSIGN_OR_RETURN(v1::RecommendParallelismRequest request,
                   ToRequest(flags.question));
  if (flags.concurrency.size() > 1) {
    if (flags.question.max_plans) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--max-plans is given with ", flags.concurrency.size(),
          " values of --concurrency; allowed: one, as several show the best "
          "plan of each"));
    }
    return RunSweep(
        flags.address,
        {request, flags.concurrency, flags.explain, flags.fail_on_miss},
        flags.format, session);
  }
  request.mutable_workload()->set_concurrency(flags.concurrency.at(0));
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  absl::StatusOr<v1::RecommendParallelismResponse> answer =
      service->Recommend(request);
  if (!answer.ok()) return NameTheFlag(answer.status());
  // Plans that miss a limit stand behind all that do not.
  if (!answer->plans().empty()) {
    const v1::PlanAdvice& first = answer->plans(0);
    if (const std::string missed = MissedLimits(first); !missed.empty()) {
      session.Warn(absl::StrCat("no plan meets the limits; the first, ",
                                first.plan().mode(), ": ", missed));
      session.missed = flags.fail_on_miss;
    }
  }
  switch (flags.format) {
    case Format::kJson:
      return WriteJson(*answer, session.out());
    case Format::kFlags:
      session.out() << RenderLaunches(
          answer->plans(),
          absl::StrCat(
              answer->model().name(), ", ",
              DescribeLoad(request,
                           FormatCount(request.workload().concurrency()))));
      return absl::OkStatus();
    case Format::kTable:
    case Format::kCsv:
      session.out() << RenderRecommendation(
          request, *answer, session.render_options(flags.explain));
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

void AddRecommendCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "recommend", "The best parallelism modes for a model and a load");
  auto flags = std::make_shared<Flags>();
  AddAddress(*command, &flags->address, Reach::kEither);
  AddQuestionFlags(*command, &flags->question);
  AddMaxPlans(*command, &flags->question);
  AddConcurrency(*command, &flags->concurrency, true)->required();
  AddFormat(*command, &flags->format,
            {Format::kTable, Format::kJson, Format::kFlags});
  command->add_flag("--explain", flags->explain,
                    "Also print what each step's time is made of, and all "
                    "plans that are ruled out");
  AddFailOnMiss(*command, &flags->fail_on_miss);
  command->footer(
      "Examples:\n"
      "  fabricwise recommend --model Qwen3-30B-A3B --concurrency 64\n"
      "  fabricwise recommend --profile h200x2-p2p --config config.json "
      "--concurrency 1,8,64 --format json\n"
      "  fabricwise recommend --model gpt-oss-120b --concurrency 32 --engine "
      "vllm --format flags");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return Run(*flags, session); };
  });
}

}  // namespace fabricwise
