// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

const absl::Time kTime = absl::UnixEpoch() + absl::Milliseconds(1500);

TEST(FormatLogLine, WritesTextThatQuotesOnlyWhereNeeded) {
  EXPECT_EQ(
      FormatLogLine(LogFormat::kText, kTime, LogLevel::kWarning, "store opened",
                    {{"path", "/a/b.db"},
                     {"note", "two words"},
                     {"empty", ""},
                     {"odd", "a\"b\nc"}}),
      "1970-01-01T00:00:01.500Z warning store opened path=/a/b.db "
      "note=\"two words\" empty=\"\" odd=\"a\\\"b\\nc\"");
}

TEST(FormatLogLine, WritesOneJsonObject) {
  EXPECT_EQ(FormatLogLine(LogFormat::kJson, kTime, LogLevel::kInfo, "started",
                          {{"path", "/a\\b"}, {"text", "x\"y\n\x01"}}),
            "{\"time\":\"1970-01-01T00:00:01.500Z\",\"level\":\"info\","
            "\"event\":\"started\",\"path\":\"/a\\\\b\","
            "\"text\":\"x\\\"y\\n\\u0001\"}");
}

TEST(FormatLogLine, KeepsJsonValidForAnyBytes) {
  const auto value = [](absl::string_view bytes) {
    const std::string line =
        FormatLogLine(LogFormat::kJson, kTime, LogLevel::kInfo, "e",
                      {{"v", std::string(bytes)}});
    const size_t start = line.find("\"v\":\"") + 5;
    return line.substr(start, line.size() - start - 2);
  };
  EXPECT_EQ(value("h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(value("\xff\x80"), "\\ufffd\\ufffd");
  EXPECT_EQ(value("\xc0\xaf"), "\\ufffd\\ufffd");             // overlong
  EXPECT_EQ(value("\xed\xa0\x80"), "\\ufffd\\ufffd\\ufffd");  // surrogate
  EXPECT_EQ(value("\xf4\x90\x80\x80"),
            "\\ufffd\\ufffd\\ufffd\\ufffd");       // past the last
  EXPECT_EQ(value("\xe2\x82"), "\\ufffd\\ufffd");  // cut off
  EXPECT_EQ(value(absl::string_view("\0", 1)), "\\u0000");
}

TEST(LogWords, AreReadAndRefusedByName) {
  for (const LogLevel level : {LogLevel::kDebug, LogLevel::kInfo,
                               LogLevel::kWarning, LogLevel::kError}) {
    EXPECT_EQ(ParseLogLevel("log-level", ToString(level)).value(), level);
  }
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    EXPECT_EQ(ParseLogFormat("log-format", ToString(format)).value(), format);
  }
  const absl::Status status = ParseLogLevel("log-level", "loud").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "log-level is 'loud'; allowed: debug, info, warning, error");
  EXPECT_EQ(ParseLogFormat("log-format", "xml").status().message(),
            "log-format is 'xml'; allowed: text, json");
}

TEST(Log, WritesFromTheSetLevelUpInTheSetFormat) {
  testing::internal::CaptureStderr();
  SetUpLog(LogLevel::kWarning, LogFormat::kJson);
  Log(LogLevel::kInfo, "unheard");
  Log(LogLevel::kError, "heard", {{"a", "{}"}});
  SetUpLog(LogLevel::kInfo, LogFormat::kText);
  Log(LogLevel::kInfo, "text again");
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_THAT(out, ::testing::Not(HasSubstr("unheard")));
  EXPECT_THAT(out, HasSubstr("\"event\":\"heard\",\"a\":\"{}\"}\n"));
  EXPECT_THAT(out, HasSubstr("Z info text again\n"));
}

}  // namespace
}  // namespace fabricwise
