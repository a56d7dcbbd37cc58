// SPDX-License-Identifier: Apache-2.0
//
// What the commands share. Each Add... call adds one command; parsing it sets
// `session.action`, which is then run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/client.h"
#include "client/render/recommend.h"
#include "fabricwise/v1/advisor.pb.h"
#include "google/protobuf/message.h"

namespace fabricwise {

// One run of the client.
struct Session {
  const ClientEnvironment& environment;
  StyleChoice style_choice = StyleChoice::kAuto;
  std::function<absl::Status()> action;
  bool missed = false;  // whether the exit code is to say so

  std::ostream& out() const { return *environment.out; }
  // One line on stderr, safe on any terminal.
  void Warn(absl::string_view message) const;
  RenderOptions render_options(bool explain = false) const {
    return {StyleFor(environment.terminal, style_choice),
            environment.clock->Now(), explain};
  }
};

void AddRecommendCommand(CLI::App& app, Session& session);
void AddSweepCommand(CLI::App& app, Session& session);
void AddCurvesCommand(CLI::App& app, Session& session);
void AddModelsCommand(CLI::App& app, Session& session);
void AddProfileCommand(CLI::App& app, Session& session);
void AddStatusCommand(CLI::App& app, Session& session);
void AddWatchCommand(CLI::App& app, Session& session);
void AddMeasureCommand(CLI::App& app, Session& session);
void AddDoctorCommand(CLI::App& app, Session& session);
void AddRankCommand(CLI::App& app, Session& session);

// Options that take one value of `T` (int64_t or double). What cannot be read
// as one is refused by name; ranges are for whoever answers.
template <typename T>
CLI::Option* AddNumber(CLI::App& app, const std::string& name,
                       std::optional<T>* value, const std::string& help);

// An option that takes one of `choices`.
struct Choice {
  absl::string_view name;
  int value;
};
CLI::Option* AddChoice(CLI::App& app, const std::string& name, int* value,
                       const std::vector<Choice>& choices,
                       const std::string& help);

// --target, --profile, --tls-... (with environment variables to fall back on)
// and --deadline-ms.
enum class Reach {
  kEither,  // a daemon or a profile
  kDaemon,  // a daemon only
};
void AddAddress(CLI::App& app, ServiceAddress* address, Reach reach);

// Of those, what does not say whom to ask: how, and for how long.
void AddConnection(CLI::App& app, ServiceAddress* address);

enum class Format { kTable, kJson, kFlags, kCsv };
void AddFormat(CLI::App& app, Format* format,
               const std::vector<Format>& allowed);

// --fail-on-miss.
void AddFailOnMiss(CLI::App& app, bool* fail);

// What of its limits on times a plan misses, in words; memory, which a question
// can ignore, is none. Empty: it meets them.
std::string MissedLimits(const v1::PlanAdvice& plan);

// Writes `message` as JSON to `out`.
absl::Status WriteJson(const google::protobuf::Message& message,
                       std::ostream& out);

}  // namespace fabricwise
