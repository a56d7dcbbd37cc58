// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/daemon/read_file.h"
#include "server/daemon/version.h"
#include "server/metrics/catalogue.h"

namespace fabricwise {
namespace {

// Of a configuration file: far more than the options can need.
constexpr size_t kMostConfigBytes = size_t{1} << 20;

using Values = std::vector<std::string>;

// One option, for the file, the flags, the help and --print-config alike.
struct Option {
  const char* name;
  const char* placeholder;
  const char* help;
  bool repeated = false;  // else `values` holds exactly one
  std::function<absl::Status(const Values& values, Config& config)> set;
  std::function<Values(const Config& config)> get;
};

// An option that is a whole number from `low` to `high`.
Option Number(const char* name, const char* placeholder, const char* help,
              int64_t low, int64_t high, int64_t Config::*field) {
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
            config.*field = value;
            return absl::OkStatus();
          },
          .get = [=](const Config& config) -> Values {
            return {absl::StrCat(config.*field)};
          }};
}

// An option in seconds, a fraction allowed, from `low` to `high`.
Option Seconds(const char* name, const char* help, double low, double high,
               absl::Duration Config::*field) {
  return {.name = name,
          .placeholder = "SECONDS",
          .help = help,
          .set = [=](const Values& values, Config& config) -> absl::Status {
            double seconds = 0;
            if (!absl::SimpleAtod(values[0], &seconds)) {
              return NotAllowed(name, Quoted(values[0]),
                                absl::StrCat(low, " to ", high));
            }
            RETURN_IF_ERROR(CheckRange(name, seconds, low, high));
            config.*field = absl::Seconds(seconds);
            return absl::OkStatus();
          },
          .get = [=](const Config& config) -> Values {
            return {absl::StrCat(absl::ToDoubleSeconds(config.*field))};
          }};
}

absl::Status SetListen(const Values& values, Config& config) {
  std::vector<ListenAddress> addresses;
  for (const std::string& value : values) {
    ASSIGN_OR_RETURN(ListenAddress address,
                     ParseListenAddress("listen", value));
    if (!address.is_local()) {
      return NotAllowed("listen", Quoted(value),
                        "unix:PATH, or a loopback address: 127.0.0.1:PORT, "
                        "[::1]:PORT; others need TLS, which this version does "
                        "not offer");
    }
    for (const ListenAddress& other : addresses) {
      if (other.ToString() == address.ToString() &&
          (address.is_unix() || address.port != 0)) {
        return NotAllowed("listen", Quoted(value), "each address once");
      }
    }
    addresses.push_back(std::move(address));
  }
  config.listen = std::move(addresses);
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

const std::vector<Option>& Options() {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  constexpr double kHourSeconds = 3600, kDaySeconds = 86400;
  static constexpr char kScheduled[] = "scheduled", kOnRequest[] = "on-request";
  static const auto& options = *new std::vector<Option>{
      {.name = "listen",
       .placeholder = "ADDRESS",
       .help = "Answer gRPC here: unix:PATH (mode 0660), 127.0.0.1:PORT or "
               "[::1]:PORT. May be given several times.",
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
      Number("cache-bytes", "BYTES",
             "Keep answers to be given again in at most so much memory; 0: "
             "none.",
             0, 4 * kGibibyte, &Config::cache_bytes),
      Number("slow-threads", "COUNT",
             "Threads for sweeps, imports and watches; short requests never "
             "wait for these.",
             1, 64, &Config::slow_threads),
      Seconds("drain-seconds",
              "When asked to stop, give the requests under way so long.", 0,
              kHourSeconds, &Config::drain),
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
      Seconds("quick-interval-seconds",
              "Measure what is needed most this often.", 60, 366 * kDaySeconds,
              &Config::quick_interval),
      Seconds("full-interval-seconds", "Measure everything this often.", 60,
              366 * kDaySeconds, &Config::full_interval),
      {.name = "gpu-budget-ratio",
       .placeholder = "RATIO",
       .help = "Scheduled measuring takes at most this part of the GPU time "
               "that is idle.",
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
             return Values{absl::StrCat(config.gpu_budget_ratio)};
           }},
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

// Values by option, as one source gave them, and where.
struct Given {
  Values values;
  std::string where;  // of the last
};
using Settings = std::map<const Option*, Given>;

absl::Status Locate(const absl::Status& status, absl::string_view where) {
  return absl::Status(status.code(),
                      absl::StrCat(where, ": ", status.message()));
}

absl::Status Apply(const Settings& settings, Config& config) {
  for (const auto& [option, given] : settings) {
    if (!option->repeated && given.values.size() > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          given.where, ": ", option->name, " is given twice; allowed: once"));
    }
    const absl::Status status = option->set(given.values, config);
    if (!status.ok()) return Locate(status, given.where);
  }
  return absl::OkStatus();
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
    if (option == nullptr) {
      const auto add_name = [](std::string* out, const Option& o) {
        absl::StrAppend(out, o.name);
      };
      return Locate(NotAllowed("the option", Quoted(name),
                               absl::StrJoin(Options(), ", ", add_name)),
                    where);
    }
    Given& given = settings[option];
    given.values.emplace_back(value);
    given.where = where;
  }
  return settings;
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
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("command line: ", error.what()));
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
  if (!config_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text,
                     ReadFile(config_file, kMostConfigBytes));
    ASSIGN_OR_RETURN(const Settings settings,
                     ParseConfigText(config_file, text));
    RETURN_IF_ERROR(Apply(settings, result.config));
  }
  Settings settings;
  for (auto& [option, values] : flags) {
    if (values.empty()) continue;
    settings[option] = {std::move(values), "command line"};
  }
  RETURN_IF_ERROR(Apply(settings, result.config));
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

std::string ConfigFileText(const Config& config) {
  std::string text;
  for (const Option& option : Options()) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", "# ", option.help, "\n");
    for (const std::string& value : option.get(config)) {
      absl::StrAppend(&text, option.name, value.empty() ? " =" : " = ", value,
                      "\n");
    }
  }
  return text;
}

}  // namespace fabricwise
