// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config.h"

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Environment Env(bool root,
                const std::map<std::string, std::string>& variables) {
  return {.root = root, .variable = [variables](const char* name) {
            const auto found = variables.find(name);
            return found == variables.end() ? std::string() : found->second;
          }};
}

std::vector<std::string> Listen(const Config& config) {
  std::vector<std::string> texts;
  for (const ListenAddress& a : config.listen) texts.push_back(a.ToString());
  return texts;
}

class ConfigTest : public testing::Test {
 protected:
  absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments) {
    return ParseCommandLine(arguments, Env(false, {{"HOME", "/h"}}),
                            folder_.File("absent.conf"));
  }
  absl::StatusOr<CommandLine> ParseFile(const std::string& content,
                                        std::vector<std::string> more = {}) {
    std::ofstream(file_, std::ios::binary) << content;
    more.insert(more.begin(), {"--config", file_});
    return Parse(more);
  }
  // The message of the error that must come of it.
  std::string Refused(const absl::StatusOr<CommandLine>& result) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  }

  TempFolder folder_;
  const std::string file_ = folder_.File("f.conf");
};

TEST_F(ConfigTest, DefaultsFollowTheUserAndTheUnit) {
  const Config root = DefaultConfig(Env(true, {{"HOME", "/root"}}));
  EXPECT_THAT(Listen(root), ElementsAre("unix:/run/fabricwise/fabricwised.sock",
                                        "127.0.0.1:7410"));
  EXPECT_EQ(root.metrics_listen->ToString(), "127.0.0.1:7411");
  EXPECT_EQ(root.database, "/var/lib/fabricwise/store.db");
  EXPECT_EQ(root.max_request_bytes, 4 << 20);

  const Config user = DefaultConfig(
      Env(false, {{"HOME", "/h"}, {"XDG_RUNTIME_DIR", "/run/user/7"}}));
  EXPECT_THAT(Listen(user),
              ElementsAre("unix:/run/user/7/fabricwise/fabricwised.sock",
                          "127.0.0.1:7410"));
  EXPECT_EQ(user.database, "/h/.local/state/fabricwise/store.db");

  const Config bare = DefaultConfig(Env(false, {{"XDG_STATE_HOME", "/s"}}));
  EXPECT_THAT(Listen(bare), ElementsAre("unix:/s/fabricwise/fabricwised.sock",
                                        "127.0.0.1:7410"));

  const Config unit = DefaultConfig(Env(false, {{"HOME", "/h"},
                                                {"STATE_DIRECTORY", "/a"},
                                                {"RUNTIME_DIRECTORY", "/b"}}));
  EXPECT_EQ(unit.database, "/a/store.db");
  EXPECT_EQ(Listen(unit)[0], "unix:/b/fabricwised.sock");

  const Config nowhere = DefaultConfig(Env(false, {}));
  EXPECT_THAT(Listen(nowhere), ElementsAre("127.0.0.1:7410"));
  EXPECT_EQ(nowhere.database, "");
}

TEST_F(ConfigTest, FlagsWinOverTheFileAndTheFileOverTheDefaults) {
  const auto result = ParseFile(
      "# comment\n\n  drain-seconds = 2.5\r\ncache-bytes=0\n"
      "database = \"/d/with space #1.db\"\nlog-level = debug\n"
      "listen = unix:/a\nlisten = 127.0.0.1:0\nmetrics-listen = none\n",
      {"--log-level", "error", "--slow-threads=3", "--worker", "/w",
       "--measure", "on-request", "--quick-interval-seconds", "90",
       "--gpu-budget-ratio", "0.01"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->action, CommandLine::Action::kRun);
  const Config& c = result->config;
  EXPECT_EQ(c.drain, absl::Milliseconds(2500));
  EXPECT_EQ(c.cache_bytes, 0);
  EXPECT_EQ(c.database, "/d/with space #1.db");
  EXPECT_EQ(c.log_level, LogLevel::kError);
  EXPECT_EQ(c.slow_threads, 3);
  EXPECT_EQ(c.worker, "/w");
  EXPECT_EQ(c.measure, MeasureMode::kOnRequest);
  EXPECT_EQ(c.quick_interval, absl::Seconds(90));
  EXPECT_EQ(c.full_interval, absl::Hours(24));
  EXPECT_EQ(c.gpu_budget_ratio, 0.01);
  EXPECT_THAT(Listen(c), ElementsAre("unix:/a", "127.0.0.1:0"));
  EXPECT_FALSE(c.metrics_listen);
  EXPECT_EQ(c.max_request_bytes, 4 << 20);
}

TEST_F(ConfigTest, FlagsForListenReplaceTheFilesList) {
  const auto result = ParseFile("listen = unix:/a\nlisten = unix:/b\n",
                                {"--listen", "unix:/c", "--listen=[::1]:1"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Listen(result->config), ElementsAre("unix:/c", "[::1]:1"));
}

TEST_F(ConfigTest, DefaultFileIsReadWhereItExists) {
  std::ofstream(file_) << "slow-threads = 7\n";
  const auto result = ParseCommandLine({}, Env(false, {{"HOME", "/h"}}), file_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->config.slow_threads, 7);
}

TEST_F(ConfigTest, PrintedConfigurationReadsBackTheSame) {
  const auto printed =
      Parse({"--print-config", "--listen", "unix:/a b", "--drain-seconds",
             "0.25", "--profile", " p.json\"", "--metrics-listen", "0.0.0.0:9",
             "--socket-mode", "0600", "--tls-reader", "cn: a"});
  ASSERT_TRUE(printed.ok()) << printed.status();
  EXPECT_EQ(printed->action, CommandLine::Action::kPrint);
  const auto again = ParseFile(printed->text, {"--print-config"});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->text, printed->text);
  EXPECT_THAT(again->text, AllOf(HasSubstr("\nlisten = unix:/a b\n"),
                                 HasSubstr("\ndrain-seconds = 0.25\n"),
                                 HasSubstr("\nprofile = \" p.json\"\"\n"),
                                 HasSubstr("\nsocket-mode = 0600\n"),
                                 HasSubstr("\ntls-reader = cn: a\n"),
                                 HasSubstr("\nmetrics-listen = 0.0.0.0:9\n")));
}

TEST_F(ConfigTest, NumbersArePrintedWithAllTheirDigits) {
  const auto printed =
      Parse({"--print-config", "--drain-seconds", "1234.56789",
             "--gpu-budget-ratio", "0.00333333333", "--quick-interval-seconds",
             "31622399.5", "--max-call-seconds", "0.001"});
  ASSERT_TRUE(printed.ok()) << printed.status();
  EXPECT_THAT(printed->text,
              AllOf(HasSubstr("\ndrain-seconds = 1234.56789\n"),
                    HasSubstr("\ngpu-budget-ratio = 0.00333333333\n"),
                    HasSubstr("\nquick-interval-seconds = 31622399.5\n"),
                    HasSubstr("\nfull-interval-seconds = 86400\n"),
                    HasSubstr("\nmax-call-seconds = 0.001\n")));
  // As they are taken over by a running daemon.
  const auto read = Parse({"--drain-seconds", "1234.56789"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(WithLiveOptions(Config(), read->config).drain, read->config.drain);
}

TEST_F(ConfigTest, AValueThatNoFileCanHoldIsRefused) {
  EXPECT_EQ(Refused(Parse({"--profile", "a\ncache-bytes = 0"})),
            "command line: profile is 'a\\ncache-bytes = 0'; allowed: what "
            "stands on one line");
  EXPECT_THAT(Refused(Parse({"--listen", "unix:/a", "--listen", "unix:/b\n"})),
              StartsWith("command line: listen is 'unix:/b\\n'; allowed: "));
  EXPECT_EQ(
      Refused(ParseFile(std::string("profile = a\0z\n", 14))),
      file_ + ":1: profile is 'a\\x00z'; allowed: what stands on one line");
}

TEST_F(ConfigTest, UnknownKeyIsNamedWithItsPlaceAndTheNearest) {
  EXPECT_EQ(Refused(ParseFile("\n# x\nlissten = unix:/a\n")),
            file_ +
                ":3: there is no option 'lissten'; nearest: listen; --help "
                "lists all");
  EXPECT_EQ(Refused(Parse({"--log-leval=info"})),
            "command line: there is no option 'log-leval'; nearest: log-level; "
            "--help lists all");
  EXPECT_THAT(Refused(ParseFile("[section]\n")),
              StartsWith(file_ + ":1: the line is '[section]'; allowed: NAME"));
  EXPECT_THAT(Refused(Parse({"stray"})), HasSubstr("stray"));
}

TEST_F(ConfigTest, BadValueIsNamedWithItsPlaceAndWhatIsAllowed) {
  const struct {
    const char* name;
    const char* value;
    const char* message;
  } cases[] = {
      {"worker", "", "worker is empty; allowed: a path, auto, none"},
      {"measure", "often",
       "measure is 'often'; allowed: scheduled, on-request"},
      {"quick-interval-seconds", "1",
       "quick-interval-seconds is 1; allowed: 60 to "},
      {"gpu-budget-ratio", "2", "gpu-budget-ratio is 2; allowed: 0 to 1"},
      {"gpu-budget-ratio", "few", "gpu-budget-ratio is 'few'; allowed: 0 to 1"},
      {"drain-seconds", "soon", "drain-seconds is 'soon'; allowed: 0 to 3600"},
      {"drain-seconds", "nan", "drain-seconds is nan; allowed: 0 to 3600"},
      {"drain-seconds", "-1", "drain-seconds is -1; allowed: 0 to 3600"},
      {"cache-bytes", "1e9", "cache-bytes is '1e9'; allowed: 0 to 4294967296"},
      {"max-request-bytes", "67108865",
       "max-request-bytes is 67108865; allowed: 1024 to 67108864"},
      {"slow-threads", "0", "slow-threads is 0; allowed: 1 to 64"},
      {"slow-threads", "99999999999999999999",
       "slow-threads is '99999999999999999999'; allowed: 1 to 64"},
      {"log-level", "loud",
       "log-level is 'loud'; allowed: debug, info, warning, error"},
      {"log-format", "", "log-format is ''; allowed: text, json"},
      {"database", "", "database is empty; allowed: a path"},
      {"listen", "", "listen is ''; allowed: unix:PATH"},
      {"listen", "0.0.0.0:7410",
       "listen is '0.0.0.0:7410'; allowed: unix:PATH, 127.0.0.1:PORT, "
       "[::1]:PORT; for others give tls-cert, tls-key and tls-client-ca"},
      {"listen", "[::]:7410", "listen is '[::]:7410'; allowed: unix:PATH"},
      {"socket-mode", "0777777", "socket-mode is '0777777'; allowed: perm"},
      {"socket-mode", "0066", "0600 to 0777, with the owner's to read and"},
      {"socket-mode", "rw", "socket-mode is 'rw'; allowed: permission bits"},
      {"socket-group", "no such group",
       "socket-group is 'no such group'; allowed: a group of this machine"},
      {"socket-group", "4294967295", "socket-group is '4294967295'; allowed"},
      {"socket-role", "admin",
       "socket-role is 'admin'; allowed: reader, operator"},
      {"loopback-role", "", "loopback-role is ''; allowed: reader, operator"},
      {"tls-reader", "a.example",
       "tls-reader is 'a.example'; allowed: dns:NAME, uri:URI or cn:NAME"},
      {"tls-operator", "cn:", "tls-operator is 'cn:'; allowed: dns:NAME"},
      {"tls-look-again-seconds", "0",
       "tls-look-again-seconds is 0; allowed: 1 to 86400"},
      {"tls-cert", "/c",
       "tls-cert is given without tls-key and tls-client-ca; allowed: all "
       "three, or none"},
      {"max-streams", "0", "max-streams is 0; allowed: 1 to 1048576"},
      {"max-call-seconds", "0", "max-call-seconds is 0; allowed: 0.001 to "},
      {"max-connection-age-seconds", "-1", "-1; allowed: 0 to "},
      {"operator-calls-per-minute", "-1", "-1; allowed: 0 to 1000000"},
      {"metrics-listen", "unix:/m",
       "metrics-listen is 'unix:/m'; allowed: IPV4:PORT, [IPV6]:PORT, none"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(
        Refused(ParseFile(absl::StrCat("\n", c.name, " = ", c.value, "\n"))),
        AllOf(StartsWith(file_ + ":2: "), HasSubstr(c.message)));
    // An empty value of a flag is a missing one.
    if (std::string(c.value).empty()) continue;
    EXPECT_THAT(Refused(Parse({absl::StrCat("--", c.name, "=", c.value)})),
                AllOf(StartsWith("command line: "), HasSubstr(c.message)));
  }
}

TEST_F(ConfigTest, LineOfTheValueThatIsWrongIsNamed) {
  EXPECT_THAT(Refused(ParseFile("listen = unix:/a\nlisten = x\nlisten = "
                                "unix:/b\n")),
              StartsWith(file_ + ":2: listen is 'x'"));
  EXPECT_THAT(Refused(ParseFile("listen = unix:/a\nlisten = 10.0.0.1:1\n")),
              StartsWith(file_ + ":2: listen is '10.0.0.1:1'"));
  std::string many;
  for (int i = 0; i < 65; ++i) {
    absl::StrAppend(&many, "listen = 127.0.0.1:0\n");
  }
  EXPECT_EQ(Refused(ParseFile(many)),
            file_ + ":65: listen is given too often; allowed: 64 times");
}

constexpr char kTls[] = "tls-cert = /c\ntls-key = /k\ntls-client-ca = /a\n";

TEST_F(ConfigTest, OtherMachinesNeedTlsAndARole) {
  EXPECT_EQ(Refused(ParseFile(absl::StrCat("listen = [::]:1\n", kTls))),
            file_ +
                ":1: listen is '[::]:1'; allowed: unix:PATH, 127.0.0.1:PORT, "
                "[::1]:PORT; for others name who may call, by tls-reader or "
                "tls-operator");
  EXPECT_EQ(
      Refused(ParseFile(absl::StrCat("listen = 127.0.0.1:1\n", kTls))),
      file_ +
          ":4: tls-client-ca is given, and no address to listen on speaks TLS; "
          "listen on one that other machines reach (UNIX sockets and loopback "
          "speak none), or take the files for TLS out");
  EXPECT_THAT(
      Refused(ParseFile("listen = unix:/a\n", {"--listen", "0.0.0.0:1"})),
      StartsWith("command line: listen is '0.0.0.0:1'"));
  const auto result = ParseFile(
      absl::StrCat("listen = unix:/a\n", kTls,
                   "tls-reader = dns:*.s.example\ntls-reader = cn:bob\n"
                   "tls-operator = uri:spiffe://c/ops/*\n"
                   "tls-look-again-seconds = 5\n"),
      {"--listen", "0.0.0.0:1"});
  ASSERT_TRUE(result.ok()) << result.status();
  const Config& c = result->config;
  EXPECT_EQ(c.tls.certificate, "/c");
  EXPECT_EQ(c.tls.key, "/k");
  EXPECT_EQ(c.tls.client_ca, "/a");
  EXPECT_EQ(c.tls.look_again, absl::Seconds(5));
  ASSERT_EQ(c.access.readers.size(), 2u);
  EXPECT_EQ(c.access.readers[1].ToString(), "cn:bob");
  ASSERT_EQ(c.access.operators.size(), 1u);
  EXPECT_EQ(c.access.operators[0].ToString(), "uri:spiffe://c/ops/*");
}

TEST_F(ConfigTest, SocketsHaveAModeAGroupAndARole) {
  const auto defaults = Parse({});
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  EXPECT_EQ(defaults->config.socket_mode, 0660);
  EXPECT_EQ(defaults->config.socket_group, "");
  EXPECT_EQ(defaults->config.access.unix_role, Role::kOperator);
  EXPECT_EQ(defaults->config.access.loopback_role, Role::kReader);
  const auto result = ParseFile(
      "socket-mode = 0606\nsocket-group = 1\nsocket-role = reader\n"
      "loopback-role = operator\n");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->config.socket_mode, 0606);
  EXPECT_EQ(result->config.socket_group, "1");
  EXPECT_EQ(result->config.access.unix_role, Role::kReader);
  EXPECT_EQ(result->config.access.loopback_role, Role::kOperator);
  EXPECT_TRUE(Parse({"--socket-group", "root"}).ok());
}

TEST_F(ConfigTest, ChangesAreToldAndLiveOnesTaken) {
  const auto running = ParseFile("slow-threads = 2\nlog-level = info\n");
  const auto read = ParseFile(
      "slow-threads = 3\nlog-level = debug\ntls-reader = cn:a\n"
      "tls-reader = cn:b\noperator-calls-per-minute = 7\n"
      "max-call-seconds = 2\nquick-interval-seconds = 60\n"
      "loopback-role = operator\ndrain-seconds = 1\n");
  ASSERT_TRUE(running.ok() && read.ok()) << read.status();
  std::vector<std::string> told;
  for (const ConfigChange& change : Changes(running->config, read->config)) {
    told.push_back(absl::StrCat(change.option, "=", change.value,
                                change.live ? "" : " (restart)"));
  }
  EXPECT_THAT(told, ::testing::UnorderedElementsAre(
                        "slow-threads=3 (restart)", "log-level=debug",
                        "tls-reader=cn:a,cn:b", "operator-calls-per-minute=7",
                        "max-call-seconds=2", "quick-interval-seconds=60",
                        "loopback-role=operator", "drain-seconds=1"));
  const Config taken = WithLiveOptions(running->config, read->config);
  EXPECT_EQ(taken.slow_threads, 2);
  EXPECT_EQ(taken.log_level, LogLevel::kDebug);
  EXPECT_EQ(taken.access.readers.size(), 2u);
  EXPECT_EQ(taken.access.operator_calls_per_minute, 7);
  EXPECT_EQ(taken.access.most_time, absl::Seconds(2));
  EXPECT_EQ(taken.access.loopback_role, Role::kOperator);
  EXPECT_EQ(taken.quick_interval, absl::Minutes(1));
  EXPECT_EQ(taken.drain, absl::Seconds(1));
  const auto left = Changes(taken, read->config);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].option, "slow-threads");
  // What is gone from the file is gone.
  EXPECT_TRUE(WithLiveOptions(taken, running->config).access.readers.empty());
}

TEST_F(ConfigTest, OptionGivenTwiceIsRefused) {
  EXPECT_THAT(Refused(ParseFile("database = a\ndatabase = b\n")),
              file_ + ":2: database is given twice; allowed: once");
  EXPECT_THAT(Refused(Parse({"--database", "a", "--database", "b"})),
              "command line: database is given twice; allowed: once");
}

TEST_F(ConfigTest, AddressGivenTwiceIsRefused) {
  EXPECT_THAT(Refused(Parse({"--listen", "unix:/a", "--listen", "unix:///a"})),
              "command line: listen is 'unix:///a'; allowed: each address "
              "once");
  for (const char* same : {"unix:/x/./a", "unix:/x/y/../a", "unix:/x//a"}) {
    EXPECT_THAT(Refused(Parse({"--listen", "unix:/x/a", "--listen", same})),
                HasSubstr("allowed: each address once"));
  }
  EXPECT_TRUE(Parse({"--listen", "unix:/x/a", "--listen", "unix:x/a"}).ok());
  EXPECT_TRUE(
      Parse({"--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"}).ok());
}

TEST_F(ConfigTest, MissingValueIsRefused) {
  EXPECT_THAT(Refused(Parse({"--database"})), HasSubstr("--database"));
}

TEST_F(ConfigTest, FileThatCannotBeReadIsNamed) {
  const std::string absent = folder_.File("absent");
  const absl::Status missing = Parse({"--config", absent}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), absent + ": no such file");
  EXPECT_THAT(Refused(Parse({"--config", folder_.path()})),
              HasSubstr("not a plain file"));
  EXPECT_THAT(Refused(ParseFile(std::string((1 << 20) + 1, '#'))),
              HasSubstr("longer than 1048576 bytes"));
}

TEST_F(ConfigTest, TheFeaturesFileIsNoOtherOptionsFile) {
  for (const char* other : {"database", "profile", "reference-profile"}) {
    EXPECT_THAT(Refused(ParseFile(
                    absl::StrCat(other, " = /x/y\nfeatures-file = /x/y\n"))),
                HasSubstr(":2: features-file is '/x/y', which another option "
                          "names too"))
        << other;
  }
}

TEST_F(ConfigTest, DatabaseMustBeGivenWhereNoHomeIsKnown) {
  const std::string absent = folder_.File("absent");
  EXPECT_THAT(Refused(ParseCommandLine({}, Env(false, {}), absent)),
              StartsWith("database is empty"));
  EXPECT_TRUE(
      ParseCommandLine({"--database", "x"}, Env(false, {}), absent).ok());
}

TEST_F(ConfigTest, HelpAndVersionAndMetricsArePrinted) {
  const auto help = Parse({"--help"});
  ASSERT_TRUE(help.ok()) << help.status();
  EXPECT_EQ(help->action, CommandLine::Action::kPrint);
  EXPECT_THAT(help->text, AllOf(HasSubstr("--listen"), HasSubstr("--config"),
                                HasSubstr("--drain-seconds")));
  EXPECT_THAT(Parse({"--version"})->text, StartsWith("fabricwised "));
  EXPECT_THAT(Parse({"--print-metrics"})->text, StartsWith("# Metrics\n"));
}

TEST_F(ConfigTest, ScenariosArePinnedByNameAndPrintedBack) {
  const std::string chat = "chat: model=Qwen3-8B concurrency=8 engine=vllm";
  const std::string batch = "batch: model=Qwen3-30B-A3B concurrency=512";
  const auto config =
      ParseFile(absl::StrCat("scenario = ", chat, "\nscenario = ", batch,
                             "\nreference-profile = /r.json"));
  ASSERT_TRUE(config.ok()) << config.status();
  ASSERT_EQ(config->config.scenarios.size(), 2u);
  EXPECT_EQ(config->config.scenarios[1].model.name, "Qwen3-30B-A3B");
  EXPECT_EQ(config->config.reference_profile, "/r.json");
  EXPECT_THAT(ConfigFileText(config->config),
              AllOf(HasSubstr("scenario = " + chat + "\n"),
                    HasSubstr("scenario = " + batch + "\n"),
                    HasSubstr("reference-profile = /r.json\n")));
}

TEST_F(ConfigTest, RefusesScenariosThatAreOff) {
  const std::string model = testing::TempDir() + "odd.json";
  std::ofstream(model) << R"({"model_type": "llama", "hidden_size": -1})";
  EXPECT_THAT(
      Refused(ParseFile("\n\nscenario = a: concurrency=1 config=" + model)),
      AllOf(StartsWith(file_ + ":3: scenario: " + model + ": "),
            HasSubstr("hidden_size")));
  EXPECT_THAT(Refused(ParseFile("scenario = a: concurrency=1 config=/no.json")),
              StartsWith(file_ + ":1: scenario: /no.json: no such file"));
  EXPECT_THAT(
      Refused(ParseFile("\nscenario = a: model=Qwen3-8X concurrency=1")),
      AllOf(StartsWith(file_ + ":2: scenario: "), HasSubstr("Qwen3-8B")));
  const std::string one = "scenario = a: model=Qwen3-8B concurrency=1\n";
  EXPECT_THAT(Refused(ParseFile(one + one)), HasSubstr("each name once"));
  std::string many;
  for (int i = 0; i < 17; ++i) {
    absl::StrAppend(&many, "scenario = s", i,
                    ": model=Qwen3-8B concurrency=1\n");
  }
  EXPECT_THAT(Refused(ParseFile(many)),
              HasSubstr("scenario is given 17 times; allowed: at most 16"));
}

}  // namespace
}  // namespace fabricwise
