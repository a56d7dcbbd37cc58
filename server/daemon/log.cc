// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "server/base/argument.h"
#include "server/base/clock.h"

namespace fabricwise {
namespace {

template <typename Enum>
absl::StatusOr<Enum> FromWord(absl::string_view field, absl::string_view text,
                              std::initializer_list<Enum> values) {
  std::string allowed;
  for (const Enum value : values) {
    if (ToString(value) == text) return value;
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", ToString(value));
  }
  return NotAllowed(field, Quoted(text), allowed);
}

// How many bytes of `text` make up its first character; 0: it is not UTF-8.
size_t CharacterLength(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    // No overlong forms, no surrogates.
    if (first == 0xE0 && second < 0xA0) return 0;
    if (first == 0xED && second > 0x9F) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (first == 0xF0 && second < 0x90) return 0;
    if (first == 0xF4 && second > 0x8F) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// As a JSON string; what is not UTF-8 shows as the replacement character.
std::string QuotedText(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const char c = text[0];
    if (length == 0) {
      out += "\\ufffd";
    } else if (length > 1) {
      absl::StrAppend(&out, text.substr(0, length));
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      absl::StrAppend(&out, "\\u00", absl::Hex(c, absl::kZeroPad2));
    } else {
      out += c;
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
  return out;
}

std::string TextValue(absl::string_view text) {
  constexpr absl::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "-_./:+%@,[]";
  const bool plain = !text.empty() &&
                     text.find_first_not_of(kPlain) == absl::string_view::npos;
  return plain ? std::string(text) : QuotedText(text);
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

struct Sink {
  Sink() : logger("", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_pattern("%v");
    logger.set_level(ToSpdlog(LogLevel::kInfo));
    // A log that waits in a buffer is lost when it is needed most.
    logger.flush_on(spdlog::level::trace);
    // Standard error is gone: there is nowhere left to say so.
    logger.set_error_handler([](const std::string&) {});
  }
  spdlog::logger logger;
  LogFormat format = LogFormat::kText;
};

Sink& TheSink() {
  static Sink& sink = *new Sink;
  return sink;
}

}  // namespace

absl::string_view ToString(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

absl::string_view ToString(LogFormat format) {
  switch (format) {
    case LogFormat::kText:
      return "text";
    case LogFormat::kJson:
      return "json";
  }
  return "";
}

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view field,
                                       absl::string_view text) {
  using enum LogLevel;
  return FromWord(field, text, {kDebug, kInfo, kWarning, kError});
}

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view field,
                                         absl::string_view text) {
  return FromWord(field, text, {LogFormat::kText, LogFormat::kJson});
}

std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level,
                          absl::string_view event,
                          const std::vector<LogField>& fields) {
  const std::string stamp =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
  std::string line;
  switch (format) {
    case LogFormat::kText:
      line = absl::StrCat(stamp, " ", ToString(level), " ", event);
      for (const LogField& field : fields) {
        absl::StrAppend(&line, " ", field.name, "=", TextValue(field.value));
      }
      return line;
    case LogFormat::kJson:
      line = absl::StrCat("{\"time\":", QuotedText(stamp),
                          ",\"level\":", QuotedText(ToString(level)),
                          ",\"event\":", QuotedText(event));
      for (const LogField& field : fields) {
        absl::StrAppend(&line, ",", QuotedText(field.name), ":",
                        QuotedText(field.value));
      }
      line += '}';
      return line;
  }
  return line;
}

void SetUpLog(LogLevel least, LogFormat format) {
  SetLogLevel(least);
  TheSink().format = format;
}

void SetLogLevel(LogLevel least) {
  TheSink().logger.set_level(ToSpdlog(least));
}

void Log(LogLevel level, absl::string_view event,
         const std::vector<LogField>& fields) {
  Sink& sink = TheSink();
  if (!sink.logger.should_log(ToSpdlog(level))) return;
  const std::string line =
      FormatLogLine(sink.format, Clock::Real()->Now(), level, event, fields);
  sink.logger.log(ToSpdlog(level), spdlog::string_view_t(line));
}

}  // namespace fabricwise
