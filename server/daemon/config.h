// SPDX-License-Identifier: Apache-2.0
//
// What the daemon is told at its start, by a file and by flags. Each option is
// described once (config.cc); its name is the same in both. Flags win over the
// file, the file over the defaults.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/daemon/address.h"
#include "server/daemon/log.h"
#include "server/daemon/scenario.h"
#include "server/rpc/access.h"
#include "server/rpc/tls.h"

namespace fabricwise {

// Values of the option worker that are no path.
inline constexpr char kWorkerBesideUs[] = "auto";
inline constexpr char kNoWorker[] = "none";

// When the worker runs.
enum class MeasureMode {
  kScheduled,  // when it is due, and when asked to
  kOnRequest,
};

// Every value is within what its option allows, and those that belong together
// fit: who listens for other machines has TLS and a certificate's name with a
// role.
struct Config {
  // At least one. Those that other machines reach speak TLS; no other does.
  std::vector<ListenAddress> listen;
  int64_t socket_mode = 0660;  // permission bits of UNIX sockets
  std::string socket_group;    // name or number; empty: the process's own
  TlsFiles tls;                // all empty: none
  AccessRules access;
  // Where /metrics is served; absent: nowhere.
  std::optional<ListenAddress> metrics_listen;
  std::string database;  // path of the store; not empty
  std::string profile;   // profile file to load at the start; empty: none
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
  int64_t max_request_bytes = int64_t{4} << 20;
  int64_t max_streams = 1024;  // of one connection
  absl::Duration max_connection_age = absl::ZeroDuration();  // zero: no limit
  int64_t cache_bytes = int64_t{32} << 20;
  int64_t slow_threads = 1;
  absl::Duration drain = absl::Seconds(10);
  std::string worker = kWorkerBesideUs;  // a path, or one of the words above
  MeasureMode measure = MeasureMode::kScheduled;
  absl::Duration quick_interval = absl::Hours(4);
  absl::Duration full_interval = absl::Hours(24);
  double gpu_budget_ratio = 0.003;
  std::vector<Scenario> scenarios;  // names differ; at most kMaxScenarios
  std::string reference_profile;    // profile file to compare with; empty: none
  std::string features_file;        // for Node Feature Discovery; empty: none
};

// Where defaults come from.
struct Environment {
  bool root = false;
  // The value of a variable; empty: not set.
  std::function<std::string(const char*)> variable;

  static Environment OfProcess();
};

// Root's files are in /run/fabricwise and /var/lib/fabricwise, another user's
// under $XDG_RUNTIME_DIR and $XDG_STATE_HOME ($HOME/.local/state), a systemd
// unit's in $RUNTIME_DIRECTORY and $STATE_DIRECTORY. `database` stays empty
// where none of these is known.
Config DefaultConfig(const Environment& environment);

// Read when there is no --config, where it exists.
inline constexpr char kDefaultConfigFile[] = "/etc/fabricwise/fabricwised.conf";

struct CommandLine {
  enum class Action {
    kRun,
    kPrint,  // print `text` and end with success
  };
  Action action = Action::kRun;
  Config config;
  std::string text;
};

// INVALID_ARGUMENT: a flag or a line of the file is unknown or has a value that
// is not allowed, alone or beside the others; the message names where it stands
// (flag, or file and line), the option, the value and what is allowed.
// NOT_FOUND and PERMISSION_DENIED: the file that --config names cannot be read.
absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& arguments, const Environment& environment,
    const std::string& default_config_file = kDefaultConfigFile);

// `defaults` with what the text of a configuration file says; `path` stands for
// the file in messages. INVALID_ARGUMENT as above.
absl::StatusOr<Config> ParseConfigFile(const std::string& path,
                                       absl::string_view text,
                                       const Config& defaults);

// A configuration file that says the same, with a comment on each option.
std::string ConfigFileText(const Config& config);

// An option that one configuration has otherwise than another.
struct ConfigChange {
  std::string option;
  std::string value;  // the new one, several after commas
  bool live = false;  // takes effect without a restart
};
std::vector<ConfigChange> Changes(const Config& from, const Config& to);

// `running` with the options of `read` that take effect without a restart.
Config WithLiveOptions(const Config& running, const Config& read);

}  // namespace fabricwise
