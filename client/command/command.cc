// SPDX-License-Identifier: Apache-2.0
#include "client/command/command.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/json.h"
#include "client/render/text.h"

namespace fabricwise {
namespace {

bool Parse(const std::string& text, int64_t* value) {
  return absl::SimpleAtoi(text, value);
}
bool Parse(const std::string& text, double* value) {
  return absl::SimpleAtod(text, value);
}

std::string Named(const Format& format) {
  switch (format) {
    case Format::kTable:
      return "table";
    case Format::kJson:
      return "json";
    case Format::kFlags:
      return "flags";
    case Format::kCsv:
      return "csv";
  }
  return "";
}

template <typename T>
CLI::Option* AddParsed(CLI::App& app, const std::string& name,
                       std::optional<T>* value, const std::string& help,
                       const std::string& kind, const std::string& type) {
  return app
      .add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            T parsed{};
            if (!Parse(text, &parsed)) {
              throw CLI::ValidationError(
                  name, absl::StrCat("\"", text, "\" is no ", kind));
            }
            *value = parsed;
          },
          help)
      ->type_name(type);
}

}  // namespace

void Session::Warn(absl::string_view message) const {
  *environment.err << "fabricwise: "
                   << Printable(absl::StrReplaceAll(message,
                                                    {{"\r", ""}, {"\n", "; "}}))
                   << "\n";
}

template <>
CLI::Option* AddNumber(CLI::App& app, const std::string& name,
                       std::optional<int64_t>* value, const std::string& help) {
  return AddParsed(app, name, value, help, "whole number of 64 bits", "N");
}

template <>
CLI::Option* AddNumber(CLI::App& app, const std::string& name,
                       std::optional<double>* value, const std::string& help) {
  return AddParsed(app, name, value, help, "number", "X");
}

CLI::Option* AddChoice(CLI::App& app, const std::string& name, int* value,
                       const std::vector<Choice>& choices,
                       const std::string& help) {
  auto name_of = [](std::string* out, const Choice& choice) {
    absl::StrAppend(out, choice.name);
  };
  std::string type = absl::StrJoin(choices, "|", name_of);
  std::string allowed = absl::StrJoin(choices, ", ", name_of);
  return app
      .add_option_function<std::string>(
          name,
          [=](const std::string& text) {
            for (const Choice& choice : choices) {
              if (choice.name != text) continue;
              *value = choice.value;
              return;
            }
            throw CLI::ValidationError(
                name, absl::StrCat("\"", text, "\"; allowed: ", allowed));
          },
          help)
      ->type_name(type);
}

void AddAddress(CLI::App& app, ServiceAddress* address, Reach reach) {
  CLI::Option* target =
      app.add_option("--target", address->target,
                     "Daemon to ask (default: the one of this machine)")
          ->type_name("HOST:PORT|unix:///PATH");
  if (reach == Reach::kEither) {
    app.add_option("--profile", address->profile,
                   "Answer from this profile, without a daemon")
        ->type_name("FILE|NAME")
        ->excludes(target);
  }
  AddConnection(app, address);
}

void AddConnection(CLI::App& app, ServiceAddress* address) {
  const struct {
    const char* name;
    const char* variable;
    std::string* value;
    const char* type;
    const char* help;
  } tls[] = {
      {"--tls-ca", "FABRICWISE_TLS_CA", &address->tls.ca, "FILE",
       "With --target HOST:PORT: speak TLS, to a daemon that a CA of this PEM "
       "file vouches for"},
      {"--tls-cert", "FABRICWISE_TLS_CERT", &address->tls.certificate, "FILE",
       "Certificate to show to it (PEM)"},
      {"--tls-key", "FABRICWISE_TLS_KEY", &address->tls.key, "FILE",
       "Private key of the certificate (PEM, without password)"},
      {"--tls-server-name", "FABRICWISE_TLS_SERVER_NAME",
       &address->tls.server_name, "NAME",
       "Name in the daemon's certificate, where it is not the target's host"},
  };
  for (const auto& option : tls) {
    app.add_option(option.name, *option.value, option.help)
        ->type_name(option.type)
        ->envname(option.variable);
  }
  constexpr int64_t kMostMilliseconds = 3'600'000;
  app.add_option_function<std::string>(
         "--deadline-ms",
         [=](const std::string& text) {
           int64_t milliseconds = 0;
           if (!absl::SimpleAtoi(text, &milliseconds) || milliseconds < 1 ||
               milliseconds > kMostMilliseconds) {
             throw CLI::ValidationError(
                 "--deadline-ms", absl::StrCat("\"", text, "\"; allowed: 1 to ",
                                               kMostMilliseconds));
           }
           address->deadline = absl::Milliseconds(milliseconds);
         },
         "Longest time for a daemon's answer (default 10000)")
      ->type_name("N");
}

void AddFormat(CLI::App& app, Format* format,
               const std::vector<Format>& allowed) {
  auto name_of = [](std::string* out, Format each) {
    absl::StrAppend(out, Named(each));
  };
  std::string type = absl::StrJoin(allowed, "|", name_of);
  std::string names = absl::StrJoin(allowed, ", ", name_of);
  app.add_option_function<std::string>(
         "--format",
         [=](const std::string& text) {
           for (Format each : allowed) {
             if (Named(each) != text) continue;
             *format = each;
             return;
           }
           throw CLI::ValidationError(
               "--format", absl::StrCat("\"", text, "\"; allowed: ", names));
         },
         "How to print the answer (default table)")
      ->type_name(type);
}

void AddFailOnMiss(CLI::App& app, bool* fail) {
  app.add_flag("--fail-on-miss", *fail,
               "Exit code 5 where no plan meets --ttft-ms and --tpot-ms; "
               "without it that is said on stderr alone");
}

std::string MissedLimits(const v1::PlanAdvice& plan) {
  std::vector<std::string> missed;
  for (const std::string& miss : plan.misses()) {
    if (!absl::StartsWith(miss, "memory: ")) missed.push_back(miss);
  }
  return absl::StrJoin(missed, "; ");
}

absl::Status WriteJson(const google::protobuf::Message& message,
                       std::ostream& out) {
  absl::StatusOr<std::string> json = ToJson(message, JsonForm::kIndented);
  if (!json.ok()) return json.status();
  out << *json;
  return absl::OkStatus();
}

}  // namespace fabricwise
