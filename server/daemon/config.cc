// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"
#include "server/base/nearest.h"
#include "server/base/status_macros.h"
#include "server/daemon/read_file.h"
#include "server/daemon/unix_socket.h"
#include "server/daemon/version.h"
#include "server/metrics/catalogue.h"
#include "server/metrics/outlook.h"

namespace fabricwise {
namespace {

// Of a configuration file: far more than the options can need.
constexpr size_t kMostConfigBytes = size_t{1} << 20;

// Where flags stand, in messages.
constexpr char kCommandLine[] = "command line";

using Values = std::vector<std::string>;

// One option, for the file, the flags, the help and --print-config alike.
struct Option {
  const char* name;
  const char* placeholder;
  const char* help;
  bool repeated = false;  // else `values` holds exactly one
  bool live = false;      // may change without a restart
  std::function<absl::Status(const Values& values, Config& config)> set;
  std::function<Values(const Config& config)> get;
};

// An option that is a whole number from `low` to `high`. `field` gives its
// place in a Config.
template <typename Field>
Option Number(const char* name, const char* placeholder, const char* help,
              int64_t low, int64_t high, Field field) {
  return {.name = name,
          .placeholder = placeholder,
          .help = help,
          .set = [=](const Values& values, Config& config) -> absl::Status {
            int64_t value = 0;
            if (!absl::SimpleAtoi(values[0], &value)) {
              return NotAllowed(name, Quoted(values[0]),
                                absl::StrCat(low, " to ", high));
            }
            RETURN_IF_ERROR(CheckRange(name, value, low, high));
            std::invoke(field, config) = value;
            return absl::OkStatus();
          },
          .get = [=](const Config& config) -> Values {
            return {absl::StrCat(std::invoke(field, config))};
          }};
}

// The fewest digits that read back as the same number.
std::string Shortest(double number) {
  std::array<char, 32> text;  // "-1.2345678901234567e-308" is the longest
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return std::string(text.data(), end);
}

// An option in seconds, a fraction allowed, from `low` to `high`.
template <typename Field>
Option Seconds(const char* name, const char* help, double low, double high,
               Field field) {
  return {
      .name = name,
      .placeholder = "SECONDS",
      .help = help,
      .set = [=](const Values& values, Config& config) -> absl::Status {
        double seconds = 0;
        if (!absl::SimpleAtod(values[0], &seconds)) {
          return NotAllowed(name, Quoted(values[0]),
                            absl::StrCat(low, " to ", high));
        }
        RETURN_IF_ERROR(CheckRange(name, seconds, low, high));
        std::invoke(field, config) = absl::Seconds(seconds);
        return absl::OkStatus();
      },
      .get = [=](const Config& config) -> Values {
        return {Shortest(absl::ToDoubleSeconds(std::invoke(field, config)))};
      }};
}

// An option that is the path of a file; empty: none.
template <typename Field>
Option File(const char* name, const char* help, Field field) {
  return {.name = name,
          .placeholder = "FILE",
          .help = help,
          .set = [=](const Values& values, Config& config) -> absl::Status {
            std::invoke(field, config) = values[0];
            return absl::OkStatus();
          },
          .get = [=](const Config& config) -> Values {
            return {std::invoke(field, config)};
          }};
}

// An option that is a role.
template <typename Field>
Option RoleOption(const char* name, const char* help, Field field) {
  return {.name = name,
          .placeholder = "ROLE",
          .help = help,
          .live = true,
          .set = [=](const Values& values, Config& config) -> absl::Status {
            ASSIGN_OR_RETURN(std::invoke(field, config),
                             ParseRole(name, values[0]));
            return absl::OkStatus();
          },
          .get = [=](const Config& config) -> Values {
            return {std::string(ToString(std::invoke(field, config)))};
          }};
}

// An option that is any number of patterns of certificates' names.
template <typename Field>
Option Patterns(const char* name, const char* help, Field field) {
  return {.name = name,
          .placeholder = "NAME",
          .help = help,
          .repeated = true,
          .live = true,
          .set = [=](const Values& values, Config& config) -> absl::Status {
            std::vector<CertificatePattern> patterns;
            for (const std::string& value : values) {
              ASSIGN_OR_RETURN(CertificatePattern pattern,
                               ParseCertificatePattern(name, value));
              patterns.push_back(std::move(pattern));
            }
            std::invoke(field, config) = std::move(patterns);
            return absl::OkStatus();
          },
          .get =
              [=](const Config& config) {
                Values values;
                for (const CertificatePattern& p : std::invoke(field, config)) {
                  values.push_back(p.ToString());
                }
                return values;
              }};
}

Option Live(Option option) {
  option.live = true;
  return option;
}

// Whether two paths say the same, as far as that shows without a look at links.
bool SamePlace(const std::string& a, const std::string& b) {
  std::error_code error;
  const auto whole = [&](const std::string& path) {
    return path.empty()
               ? std::filesystem::path()
               : std::filesystem::absolute(path, error).lexically_normal();
  };
  return whole(a) == whole(b);
}

absl::Status SetListen(const Values& values, Config& config) {
  std::vector<ListenAddress> addresses;
  for (const std::string& value : values) {
    ASSIGN_OR_RETURN(ListenAddress address,
                     ParseListenAddress("listen", value));
    for (const ListenAddress& other : addresses) {
      const bool same =
          address.is_unix()
              ? SamePlace(other.unix_path, address.unix_path)
              : other.ToString() == address.ToString() && address.port != 0;
      if (same) {
        return NotAllowed("listen", Quoted(value), "each address once");
      }
    }
    addresses.push_back(std::move(address));
  }
  config.listen = std::move(addresses);
  return absl::OkStatus();
}

absl::Status SetSocketMode(const Values& values, Config& config) {
  constexpr int kOctal = 8, kOwner = 0600, kAll = 0777;
  const std::string& text = values[0];
  int mode = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), mode, kOctal);
  if (error != std::errc() || end != text.data() + text.size() ||
      (mode & kOwner) != kOwner || (mode & ~kAll) != 0) {
    return NotAllowed("socket-mode", Quoted(text),
                      "permission bits in octal, 0600 to 0777, with the "
                      "owner's to read and write");
  }
  config.socket_mode = mode;
  return absl::OkStatus();
}

absl::Status SetSocketGroup(const Values& values, Config& config) {
  const std::string& name = values[0];
  if (!name.empty() && !FindGroup(name)) {
    return NotAllowed("socket-group", Quoted(name),
                      "a group of this machine, by name or number");
  }
  config.socket_group = name;
  return absl::OkStatus();
}

absl::Status SetMetricsListen(const Values& values, Config& config) {
  if (values[0] == "none") {
    config.metrics_listen.reset();
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(ListenAddress address,
                   ParseListenAddress("metrics-listen", values[0]));
  if (address.is_unix()) {
    return NotAllowed("metrics-listen", Quoted(values[0]),
                      "IPV4:PORT, [IPV6]:PORT, none");
  }
  config.metrics_listen = std::move(address);
  return absl::OkStatus();
}

absl::Status SetDatabase(const Values& values, Config& config) {
  if (values[0].empty()) {
    return NotAllowed("database", "empty", "a path; its folder must exist");
  }
  config.database = values[0];
  return absl::OkStatus();
}

absl::Status SetScenarios(const Values& values, Config& config) {
  std::vector<Scenario> scenarios;
  for (const std::string& value : values) {
    absl::StatusOr<Scenario> scenario = ParseScenario(value);
    if (!scenario.ok()) {
      // Whatever is off in it, the argument is.
      return absl::InvalidArgumentError(
          absl::StrCat("scenario: ", scenario.status().message()));
    }
    for (const Scenario& other : scenarios) {
      if (other.name == scenario->name) {
        return NotAllowed("scenario", Quoted(value), "each name once");
      }
    }
    scenarios.push_back(*std::move(scenario));
  }
  if (scenarios.size() > kMaxScenarios) {
    return NotAllowed("scenario",
                      absl::StrCat("given ", scenarios.size(), " times"),
                      absl::StrCat("at most ", kMaxScenarios));
  }
  config.scenarios = std::move(scenarios);
  return absl::OkStatus();
}

const std::vector<Option>& Options() {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  constexpr double kHourSeconds = 3600, kDaySeconds = 86400;
  static constexpr char kScheduled[] = "scheduled", kOnRequest[] = "on-request";
  static const auto& options = *new std::vector<Option>{
      {.name = "listen",
       .placeholder = "ADDRESS",
       .help = "Answer gRPC here: unix:PATH, IPV4:PORT or [IPV6]:PORT. What "
               "other machines reach speaks TLS and needs tls-...; loopback "
               "and UNIX sockets do not. May be given several times.",
       .repeated = true,
       .set = SetListen,
       .get =
           [](const Config& config) {
             Values values;
             for (const ListenAddress& address : config.listen) {
               values.push_back(address.ToString());
             }
             return values;
           }},
      {.name = "socket-mode",
       .placeholder = "MODE",
       .help = "Permission bits of UNIX sockets, in octal: who may write may "
               "connect.",
       .set = SetSocketMode,
       .get =
           [](const Config& config) {
             return Values{
                 absl::StrCat("0", absl::StrFormat("%o", config.socket_mode))};
           }},
      {.name = "socket-group",
       .placeholder = "GROUP",
       .help = "Give UNIX sockets to this group, by name or number. Empty: "
               "they keep the daemon's own.",
       .set = SetSocketGroup,
       .get = [](const Config& config) { return Values{config.socket_group}; }},
      RoleOption(
          "socket-role",
          "What callers on UNIX sockets are: reader (advice, profiles) "
          "or operator (that, and measure, diagnose, import).",
          [](auto& c) -> auto& { return c.access.unix_role; }),
      RoleOption(
          "loopback-role",
          "What callers on loopback addresses are: reader or operator. "
          "Every user of this machine is one.",
          [](auto& c) -> auto& { return c.access.loopback_role; }),
      File(
          "tls-cert",
          "PEM file of the server's certificate, with those in between up to "
          "its CA. Files for TLS are read again when they change.",
          [](auto& c) -> auto& { return c.tls.certificate; }),
      File(
          "tls-key", "PEM file of its private key, without password.",
          [](auto& c) -> auto& { return c.tls.key; }),
      File(
          "tls-client-ca",
          "PEM file of the CA certificates that vouch for clients. A client "
          "without a valid certificate of theirs is refused.",
          [](auto& c) -> auto& { return c.tls.client_ca; }),
      Seconds(
          "tls-look-again-seconds",
          "Look this often whether the files for TLS have changed.", 1,
          kDaySeconds, [](auto& c) -> auto& { return c.tls.look_again; }),
      Patterns(
          "tls-reader",
          "Certificates with this name are readers: dns:NAME, uri:URI or "
          "cn:NAME; * stands for any part of it between dots in DNS "
          "names, between slashes in URIs. May be given several times.",
          [](auto& c) -> auto& { return c.access.readers; }),
      Patterns(
          "tls-operator",
          "Certificates with this name are operators. May be given "
          "several times.",
          [](auto& c) -> auto& { return c.access.operators; }),
      {.name = "metrics-listen",
       .placeholder = "ADDRESS",
       .help = "Serve Prometheus metrics here, to all who reach it: IPV4:PORT, "
               "[IPV6]:PORT, or none.",
       .set = SetMetricsListen,
       .get =
           [](const Config& config) {
             return Values{config.metrics_listen
                               ? config.metrics_listen->ToString()
                               : "none"};
           }},
      {.name = "database",
       .placeholder = "PATH",
       .help = "Keep measurements and profiles in this file.",
       .set = SetDatabase,
       .get = [](const Config& config) { return Values{config.database}; }},
      {.name = "profile",
       .placeholder = "FILE",
       .help = "Load this profile file at the start and advise from it. Empty: "
               "go on with the profile in use before.",
       .set =
           [](const Values& values, Config& config) {
             config.profile = values[0];
             return absl::OkStatus();
           },
       .get = [](const Config& config) { return Values{config.profile}; }},
      {.name = "log-level",
       .placeholder = "LEVEL",
       .help = "Log events from this level up: debug, info, warning, error.",
       .live = true,
       .set = [](const Values& values, Config& config) -> absl::Status {
         ASSIGN_OR_RETURN(config.log_level,
                          ParseLogLevel("log-level", values[0]));
         return absl::OkStatus();
       },
       .get =
           [](const Config& config) {
             return Values{std::string(ToString(config.log_level))};
           }},
      {.name = "log-format",
       .placeholder = "FORMAT",
       .help = "Write events as text or json, one a line, to standard error.",
       .set = [](const Values& values, Config& config) -> absl::Status {
         ASSIGN_OR_RETURN(config.log_format,
                          ParseLogFormat("log-format", values[0]));
         return absl::OkStatus();
       },
       .get =
           [](const Config& config) {
             return Values{std::string(ToString(config.log_format))};
           }},
      Number("max-request-bytes", "BYTES",
             "Refuse requests longer than this. Profiles are imported in one "
             "request.",
             1024, 64 * kMebibyte, &Config::max_request_bytes),
      Number("max-streams", "COUNT",
             "Calls that one connection may have under way; more wait.", 1,
             1 << 20, &Config::max_streams),
      Seconds("max-connection-age-seconds",
              "Have clients open a new connection this often; calls under way "
              "go on. 0: never.",
              0, 366 * kDaySeconds, &Config::max_connection_age),
      Live(Seconds(
          "max-call-seconds",
          "Longest time for a call that its caller gave no deadline, "
          "or a later one. Watches and runs of measurements have "
          "none.",
          0.001, kHourSeconds,
          [](auto& c) -> auto& { return c.access.most_time; })),
      Live(Number(
          "operator-calls-per-minute", "COUNT",
          "Calls that need an operator, of all callers together, as "
          "many at once after a minute without; 0: no limit.",
          0, 1'000'000,
          [](auto& c) -> auto& { return c.access.operator_calls_per_minute; })),
      Number("cache-bytes", "BYTES",
             "Keep answers to be given again in at most so much memory; 0: "
             "none.",
             0, 4 * kGibibyte, &Config::cache_bytes),
      Number("slow-threads", "COUNT",
             "Threads for sweeps, imports and watches; short requests never "
             "wait for these.",
             1, 64, &Config::slow_threads),
      Live(Seconds("drain-seconds",
                   "When asked to stop, give the requests under way so long.",
                   0, kHourSeconds, &Config::drain)),
      {.name = "worker",
       .placeholder = "PATH",
       .help = "Measure with this program. auto: with the fabricwise-worker "
               "beside this program, where there is one; none: do not measure.",
       .set = [](const Values& values, Config& config) -> absl::Status {
         if (values[0].empty()) {
           return NotAllowed("worker", "empty", "a path, auto, none");
         }
         config.worker = values[0];
         return absl::OkStatus();
       },
       .get = [](const Config& config) { return Values{config.worker}; }},
      {.name = "measure",
       .placeholder = "WHEN",
       .help = "Measure when it is due and the GPUs are idle (scheduled), or "
               "only when asked to (on-request).",
       .set = [](const Values& values, Config& config) -> absl::Status {
         if (values[0] == kScheduled) {
           config.measure = MeasureMode::kScheduled;
         } else if (values[0] == kOnRequest) {
           config.measure = MeasureMode::kOnRequest;
         } else {
           return NotAllowed("measure", Quoted(values[0]),
                             "scheduled, on-request");
         }
         return absl::OkStatus();
       },
       .get =
           [](const Config& config) {
             return Values{config.measure == MeasureMode::kScheduled
                               ? kScheduled
                               : kOnRequest};
           }},
      Live(Seconds("quick-interval-seconds",
                   "Measure what is needed most this often.", 60,
                   366 * kDaySeconds, &Config::quick_interval)),
      Live(Seconds("full-interval-seconds", "Measure everything this often.",
                   60, 366 * kDaySeconds, &Config::full_interval)),
      {.name = "gpu-budget-ratio",
       .placeholder = "RATIO",
       .help = "Scheduled measuring takes at most this part of the GPU time "
               "that is idle.",
       .live = true,
       .set = [](const Values& values, Config& config) -> absl::Status {
         double ratio = 0;
         if (!absl::SimpleAtod(values[0], &ratio)) {
           return NotAllowed("gpu-budget-ratio", Quoted(values[0]), "0 to 1");
         }
         RETURN_IF_ERROR(CheckRange("gpu-budget-ratio", ratio, 0.0, 1.0));
         config.gpu_budget_ratio = ratio;
         return absl::OkStatus();
       },
       .get =
           [](const Config& config) {
             return Values{Shortest(config.gpu_budget_ratio)};
           }},
      {.name = "scenario",
       .placeholder = "SCENARIO",
       .help = "Answer this question whenever the profile changes, and export "
               "the answer: NAME: model=PRESET concurrency=N, or with "
               "config=PATH of a config.json for model=, and any of engine, "
               "phase, objective, ttft-ms, tpot-ms, input-tokens, "
               "output-tokens, context-tokens, gpus, gpu-indices, "
               "plan-options, as the client's flags. May be given several "
               "times.",
       .repeated = true,
       .live = true,
       .set = SetScenarios,
       .get =
           [](const Config& config) {
             Values values;
             for (const Scenario& scenario : config.scenarios) {
               values.push_back(ToString(scenario));
             }
             return values;
           }},
      File("reference-profile",
           "Export how much slower this node's curves are than those of this "
           "profile, of another node of the kind. Empty: none.",
           &Config::reference_profile),
      File("features-file",
           "Write what a cluster may choose nodes by into this file, for Node "
           "Feature Discovery: the fabric, and the mode that each scenario "
           "should run in. Empty: none.",
           &Config::features_file),
  };
  return options;
}

const Option* FindOption(absl::string_view name) {
  const auto& options = Options();
  const auto found =
      std::find_if(options.begin(), options.end(),
                   [&](const Option& option) { return option.name == name; });
  return found == options.end() ? nullptr : &*found;
}

// Values by option, as one source gave them, and where each stands.
struct Given {
  Values values;
  std::vector<std::string> places;
};
using Settings = std::map<const Option*, Given>;

absl::Status Locate(const absl::Status& status, absl::string_view where) {
  return absl::Status(status.code(),
                      absl::StrCat(where, ": ", status.message()));
}

absl::Status UnknownOption(absl::string_view name) {
  Values names;
  for (const Option& option : Options()) names.emplace_back(option.name);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no option ", Quoted(name), "; nearest: ",
      absl::StrJoin(NearestNames(name, names, 1), ""), "; --help lists all"));
}

absl::Status Apply(const Settings& settings, Config& config) {
  // Of one option; far more than anybody listens on or names.
  constexpr size_t kMostValues = 64;
  for (const auto& [option, given] : settings) {
    const size_t most = option->repeated ? kMostValues : 1;
    if (given.values.size() > most) {
      const absl::string_view allowed = option->repeated ? "64 times" : "once";
      return absl::InvalidArgumentError(absl::StrCat(
          given.places[most], ": ", option->name, " is given ",
          option->repeated ? "too often" : "twice", "; allowed: ", allowed));
    }
    for (size_t i = 0; i < given.values.size(); ++i) {
      // A flag may hold what no line of a configuration file can, and a line a
      // byte that ends every path.
      constexpr absl::string_view kNever("\n\0", 2);
      if (given.values[i].find_first_of(kNever.data(), 0, kNever.size()) ==
          std::string::npos) {
        continue;
      }
      return Locate(NotAllowed(option->name, Quoted(given.values[i]),
                               "what stands on one line"),
                    given.places[i]);
    }
    // One more at a time, so that an error is of the last.
    for (size_t count = 1; count <= given.values.size(); ++count) {
      const absl::Status status = option->set(
          Values(given.values.begin(),
                 given.values.begin() + static_cast<std::ptrdiff_t>(count)),
          config);
      if (!status.ok()) return Locate(status, given.places[count - 1]);
    }
  }
  return absl::OkStatus();
}

// What no option can tell alone. `settings`: all that made `config`.
absl::Status CheckTogether(const Config& config, const Settings& settings) {
  // Where the value `index` of an option was given.
  const auto place = [&](absl::string_view name, size_t index) -> std::string {
    const auto found = settings.find(FindOption(name));
    return found == settings.end() ? "default" : found->second.places[index];
  };
  // What is replaced whole must be nothing else.
  for (const std::string* other :
       {&config.database, &config.profile, &config.reference_profile,
        &config.tls.certificate, &config.tls.key, &config.tls.client_ca}) {
    if (!config.features_file.empty() && *other == config.features_file) {
      return absl::InvalidArgumentError(absl::StrCat(
          place("features-file", 0), ": features-file is ",
          Quoted(config.features_file),
          ", which another option names too; allowed: a file of its own"));
    }
  }
  const std::pair<const char*, const std::string*> files[] = {
      {"tls-cert", &config.tls.certificate},
      {"tls-key", &config.tls.key},
      {"tls-client-ca", &config.tls.client_ca}};
  const char* given = nullptr;
  Values missing;
  for (const auto& [name, path] : files) {
    if (path->empty()) {
      missing.emplace_back(name);
    } else {
      given = name;
    }
  }
  if (given != nullptr && !missing.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        place(given, 0), ": ", given, " is given without ",
        absl::StrJoin(missing, " and "), "; allowed: all three, or none"));
  }
  const auto remote =
      std::find_if(config.listen.begin(), config.listen.end(),
                   [](const ListenAddress& a) { return !a.is_local(); });
  if (remote == config.listen.end()) {
    if (given == nullptr) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        place(given, 0), ": ", given,
        " is given, and no address to listen on speaks TLS; listen on one that "
        "other machines reach (UNIX sockets and loopback speak none), or take "
        "the files for TLS out"));
  }
  const char* remedy = nullptr;
  if (given == nullptr) {
    remedy = "for others give tls-cert, tls-key and tls-client-ca";
  } else if (config.access.readers.empty() && config.access.operators.empty()) {
    remedy = "for others name who may call, by tls-reader or tls-operator";
  }
  if (remedy == nullptr) return absl::OkStatus();
  const auto index = static_cast<size_t>(remote - config.listen.begin());
  return Locate(NotAllowed("listen", Quoted(remote->ToString()),
                           absl::StrCat("unix:PATH, 127.0.0.1:PORT, "
                                        "[::1]:PORT; ",
                                        remedy)),
                place("listen", index));
}

absl::StatusOr<Settings> ParseConfigText(const std::string& path,
                                         absl::string_view text) {
  Settings settings;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": the line is ", Quoted(line),
                       "; allowed: NAME = VALUE, or a comment after #"));
    }
    const absl::string_view name =
        absl::StripAsciiWhitespace(line.substr(0, equals));
    absl::string_view value =
        absl::StripAsciiWhitespace(line.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    const Option* const option = FindOption(name);
    if (option == nullptr) return Locate(UnknownOption(name), where);
    Given& given = settings[option];
    given.values.emplace_back(value);
    given.places.push_back(where);
  }
  return settings;
}

// As ParseConfigText reads it back: whole, spaces at its ends included.
std::string WrittenValue(const std::string& value) {
  const bool plain = absl::StripAsciiWhitespace(value).size() == value.size() &&
                     (value.empty() || value.front() != '"');
  return plain ? value : absl::StrCat("\"", value, "\"");
}

std::string FirstOf(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    if (!path.empty()) return path;
  }
  return "";
}

// `folder`/`below`; empty where `folder` is.
std::string Below(const std::string& folder, absl::string_view below) {
  return folder.empty() ? "" : absl::StrCat(folder, below);
}

}  // namespace

Environment Environment::OfProcess() {
  return {.root = geteuid() == 0, .variable = [](const char* name) {
            const char* value = std::getenv(name);
            return std::string(value == nullptr ? "" : value);
          }};
}

Config DefaultConfig(const Environment& environment) {
  const auto variable = environment.variable;
  const std::string state =
      FirstOf({variable("STATE_DIRECTORY"),
               environment.root ? "/var/lib/fabricwise" : "",
               Below(variable("XDG_STATE_HOME"), "/fabricwise"),
               Below(variable("HOME"), "/.local/state/fabricwise")});
  const std::string runtime = FirstOf(
      {variable("RUNTIME_DIRECTORY"), environment.root ? "/run/fabricwise" : "",
       Below(variable("XDG_RUNTIME_DIR"), "/fabricwise"), state});
  Config config;
  config.database = Below(state, "/store.db");
  if (!runtime.empty()) {
    config.listen.push_back({.unix_path = runtime + "/fabricwised.sock"});
  }
  constexpr int kGrpcPort = 7410, kMetricsPort = 7411;
  config.listen.push_back({.host = "127.0.0.1", .port = kGrpcPort});
  config.metrics_listen =
      ListenAddress{.host = "127.0.0.1", .port = kMetricsPort};
  return config;
}

absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& arguments, const Environment& environment,
    const std::string& default_config_file) {
  CommandLine result;
  CLI::App app("The Fabricwise daemon: advises which parallelism mode to run.",
               "fabricwised");
  app.set_help_flag("--help,-h", "Print this and exit.");
  app.set_version_flag("--version", std::string("fabricwised ") + kVersion,
                       "Print the version and exit.");
  app.get_formatter()->column_width(32);
  std::string config_file;
  CLI::Option* const config_option =
      app.add_option(
             "--config", config_file,
             "Read options from this file: lines of NAME = VALUE. Default: " +
                 default_config_file + ", where it exists.")
          ->type_name("FILE");
  bool print_config = false, print_metrics = false;
  app.add_flag("--print-config", print_config,
               "Print the options in effect as such a file and exit.");
  app.add_flag("--print-metrics", print_metrics,
               "Print what the metrics mean, as Markdown, and exit.");
  std::map<const Option*, Values> flags;
  for (const Option& option : Options()) {
    app.add_option(std::string("--") + option.name, flags[&option], option.help)
        ->type_name(option.placeholder)
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
  }

  // CLI11 tells everything by exceptions, help included.
  try {
    // It takes arguments from the back.
    app.parse(Values(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    result.action = CommandLine::Action::kPrint;
    result.text = app.help();
    return result;
  } catch (const CLI::CallForVersion& version) {
    result.action = CommandLine::Action::kPrint;
    result.text = absl::StrCat(version.what(), "\n");
    return result;
  } catch (const CLI::ExtrasError& error) {
    for (const std::string& extra : app.remaining()) {
      absl::string_view name = extra;
      if (!absl::ConsumePrefix(&name, "--")) continue;
      return Locate(UnknownOption(name.substr(0, name.find('='))),
                    kCommandLine);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(kCommandLine, ": ", error.what()));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(kCommandLine, ": ", error.what()));
  }
  if (print_metrics) {
    result.action = CommandLine::Action::kPrint;
    result.text = CatalogueMarkdown();
    return result;
  }

  result.config = DefaultConfig(environment);
  if (config_option->count() == 0 &&
      std::filesystem::exists(default_config_file)) {
    config_file = default_config_file;
  }
  Settings all;
  if (!config_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFile(config_file, kMostConfigBytes));
    ASSIGN_OR_RETURN(all, ParseConfigText(config_file, text));
    RETURN_IF_ERROR(Apply(all, result.config));
  }
  Settings settings;
  for (auto& [option, values] : flags) {
    if (values.empty()) continue;
    std::vector<std::string> places(values.size(), kCommandLine);
    settings[option] = {std::move(values), std::move(places)};
  }
  RETURN_IF_ERROR(Apply(settings, result.config));
  for (auto& [option, given] : settings) all[option] = std::move(given);
  RETURN_IF_ERROR(CheckTogether(result.config, all));
  if (result.config.database.empty()) {
    return absl::InvalidArgumentError(
        "database is empty; allowed: a path; there is no default, since HOME "
        "is not set");
  }
  if (print_config) {
    result.action = CommandLine::Action::kPrint;
    result.text = ConfigFileText(result.config);
  }
  return result;
}

absl::StatusOr<Config> ParseConfigFile(const std::string& path,
                                       absl::string_view text,
                                       const Config& defaults) {
  Config config = defaults;
  ASSIGN_OR_RETURN(const Settings settings, ParseConfigText(path, text));
  RETURN_IF_ERROR(Apply(settings, config));
  RETURN_IF_ERROR(CheckTogether(config, settings));
  return config;
}

std::string ConfigFileText(const Config& config) {
  std::string text;
  for (const Option& option : Options()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "# ", option.help, "\n");
    for (const std::string& value : option.get(config)) {
      absl::StrAppend(&text, option.name, value.empty() ? " =" : " = ",
                      WrittenValue(value), "\n");
    }
  }
  return text;
}

std::vector<ConfigChange> Changes(const Config& from, const Config& to) {
  std::vector<ConfigChange> changes;
  for (const Option& option : Options()) {
    Values value = option.get(to);
    if (value == option.get(from)) continue;
    changes.push_back({option.name, absl::StrJoin(value, ","), option.live});
  }
  return changes;
}

Config WithLiveOptions(const Config& running, const Config& read) {
  Config config = running;
  for (const Option& option : Options()) {
    if (!option.live) continue;
    // What an option gives, it takes.
    option.set(option.get(read), config).IgnoreError();
  }
  return config;
}

}  // namespace fabricwise
