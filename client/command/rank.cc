// SPDX-License-Identifier: Apache-2.0
#include "client/render/rank.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/command/command.h"
#include "client/command/question.h"
#include "client/resolve.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

// Nodes asked at once: each has a thread, which waits.
constexpr size_t kMostAtOnce = 64;

struct Flags {
  std::vector<std::string> targets, profiles;  // lists of names
  ServiceAddress address;
  QuestionFlags question;
  std::vector<int64_t> concurrency;
  Format format = Format::kTable;
  bool fail_on_miss = false;
};

// A node's answer, and the model as it understood it.
struct Answer {
  v1::RankedNode node;
  absl::Status status;
  std::string model;
};

// CLI11 would drop empty names, and take an empty list for none given.
absl::StatusOr<std::vector<std::string>> SplitNames(
    absl::string_view flag, const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  for (const std::string& list : lists) {
    for (const absl::string_view name : absl::StrSplit(list, ',')) {
      if (name.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(flag,
                         " has an empty name; allowed: names, with one "
                         "comma between two"));
      }
      names.emplace_back(name);
    }
  }
  return names;
}

// Each node once. A name that has no address now is a node without an answer,
// in `answers`.
absl::StatusOr<std::vector<ServiceAddress>> Addresses(
    const Flags& flags, std::vector<Answer>& answers) {
  ASSIGN_OR_RETURN(const std::vector<std::string> targets,
                   SplitNames("--targets", flags.targets));
  ASSIGN_OR_RETURN(const std::vector<std::string> profiles,
                   SplitNames("--profiles", flags.profiles));
  std::vector<ServiceAddress> addresses;
  std::set<std::string> seen;
  for (const std::string& target : targets) {
    absl::StatusOr<std::vector<Endpoint>> endpoints = Resolve(target);
    if (absl::IsInvalidArgument(endpoints.status())) return endpoints.status();
    if (!endpoints.ok()) {
      Answer& answer = answers.emplace_back();
      answer.status = endpoints.status();
      answer.node.set_target(target);
      answer.node.set_error(std::string(endpoints.status().message()));
      continue;
    }
    for (Endpoint& endpoint : *endpoints) {
      if (!seen.insert(endpoint.target).second) continue;
      ServiceAddress address = flags.address;
      address.target = std::move(endpoint.target);
      if (address.tls.server_name.empty() && !address.tls.ca.empty()) {
        address.tls.server_name = std::move(endpoint.server_name);
      }
      addresses.push_back(std::move(address));
    }
  }
  for (const std::string& profile : profiles) {
    if (!seen.insert(profile).second) continue;
    addresses.push_back({.profile = profile});
  }
  if (addresses.empty() && answers.empty()) {
    return absl::InvalidArgumentError(
        "no node is named; --targets or --profiles name them");
  }
  return addresses;
}

Answer Ask(const ServiceAddress& address,
           const v1::RecommendParallelismRequest& request,
           const Session& session) {
  Answer answer;
  answer.node.set_target(address.target.empty() ? address.profile
                                                : address.target);
  const auto ask = [&]() -> absl::StatusOr<v1::RecommendParallelismResponse> {
    ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                     session.environment.connect(address));
    return service->Recommend(request);
  };
  absl::StatusOr<v1::RecommendParallelismResponse> response = ask();
  answer.status = response.status();
  if (response.ok() && response->plans().empty()) {
    answer.status = absl::InternalError("its answer holds no plan");
  }
  if (!answer.status.ok()) {
    answer.node.set_error(std::string(answer.status.message()));
    return answer;
  }
  answer.model = response->model().name();
  answer.node.mutable_plan()->Swap(response->mutable_plans(0));
  answer.node.mutable_grounds()->Swap(response->mutable_grounds());
  answer.node.mutable_confidence()->Swap(response->mutable_confidence());
  return answer;
}

absl::Status Run(const Flags& flags, Session& session) {
  ASSIGN_OR_RETURN(v1::RecommendParallelismRequest request,
                   ToRequest(flags.question));
  if (flags.concurrency.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--concurrency has ", flags.concurrency.size(),
                     " values; allowed: one, at which nodes are compared"));
  }
  request.mutable_workload()->set_concurrency(flags.concurrency[0]);
  request.set_max_plans(1);
  std::vector<Answer> answers;
  ASSIGN_OR_RETURN(const std::vector<ServiceAddress> addresses,
                   Addresses(flags, answers));
  const size_t unresolved = answers.size();
  answers.resize(unresolved + addresses.size());
  std::atomic<size_t> next = 0;
  {
    std::vector<std::jthread> askers;
    for (size_t i = 0; i < std::min(kMostAtOnce, addresses.size()); ++i) {
      askers.emplace_back([&] {
        for (size_t at = next++; at < addresses.size(); at = next++) {
          answers[unresolved + at] = Ask(addresses[at], request, session);
        }
      });
    }
  }

  v1::NodeRanking ranking;
  std::string model;
  absl::Status none;
  bool answered = false;
  // A question that every node refuses is a wrong question.
  if (std::all_of(answers.begin(), answers.end(), [](const Answer& answer) {
        return absl::IsInvalidArgument(answer.status);
      })) {
    return NameTheFlag(answers.front().status);
  }
  for (Answer& answer : answers) {
    answered |= answer.status.ok();
    if (model.empty()) model = answer.model;
    none.Update(answer.status);
    ranking.add_nodes()->Swap(&answer.node);
  }
  // As it was asked for, where no node says how it calls it.
  const QuestionFlags& asked = flags.question;
  if (model.empty()) model = asked.model.empty() ? asked.config : asked.model;
  SortNodes(request, &ranking);
  // Those that miss a limit stand behind all that do not.
  if (answered) {
    const v1::RankedNode& first = ranking.nodes(0);
    const std::string missed = MissedLimits(first.plan());
    if (!missed.empty()) {
      session.Warn(absl::StrCat("no node meets the limits; the first, ",
                                first.target(), " with ",
                                first.plan().plan().mode(), ": ", missed));
      session.missed = flags.fail_on_miss;
    }
  }
  if (flags.format == Format::kJson) {
    RETURN_IF_ERROR(WriteJson(ranking, session.out()));
  } else {
    session.out() << RenderRanking(request, model, ranking,
                                   session.render_options());
  }
  if (answered) return absl::OkStatus();
  return absl::Status(
      none.code(),
      absl::StrCat("no node has an answer; first: ", none.message()));
}

}  // namespace

void AddRankCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "rank", "Which of many nodes runs a model best, each by its own answer");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("--targets", flags->targets,
                   "Daemons to ask; dns:///HOST:PORT is every address of HOST")
      ->type_name("HOST:PORT|unix:///PATH|dns:///HOST:PORT,...");
  command
      ->add_option("--profiles", flags->profiles,
                   "Nodes that profiles stand for, without a daemon")
      ->type_name("FILE|NAME,...");
  AddConnection(*command, &flags->address);
  AddQuestionFlags(*command, &flags->question);
  AddConcurrency(*command, &flags->concurrency, false)->required();
  AddFormat(*command, &flags->format, {Format::kTable, Format::kJson});
  AddFailOnMiss(*command, &flags->fail_on_miss);
  command->footer(
      "Examples:\n"
      "  fabricwise rank --targets dns:///fabricwise.fabricwise:7410 "
      "--model gpt-oss-120b --concurrency 64 --tls-ca ca.pem --tls-cert me.pem "
      "--tls-key me.key\n"
      "  fabricwise rank --profiles h200x2-p2p,h200x2-shm,h200x2-net "
      "--model Qwen3-30B-A3B --concurrency 64");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return Run(*flags, session); };
  });
}

}  // namespace fabricwise
