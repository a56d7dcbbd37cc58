// SPDX-License-Identifier: Apache-2.0
//
// The daemon's log: one line an event on standard error, for machines first.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fabricwise {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

absl::string_view ToString(LogLevel level);
absl::string_view ToString(LogFormat format);
// INVALID_ARGUMENT naming `field`, the text and the words that are allowed.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view field,
                                       absl::string_view text);
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view field,
                                         absl::string_view text);

struct LogField {
  absl::string_view name;  // a literal: lower case, underscores
  std::string value;       // any bytes
};

// One line without its end. Text: `TIME LEVEL event name=value ...` with values
// quoted where they need it; JSON: one object of strings, valid UTF-8 whatever
// the values hold.
std::string FormatLogLine(LogFormat format, absl::Time time, LogLevel level,
                          absl::string_view event,
                          const std::vector<LogField>& fields);

// For the whole process, before the first Log. Until then events from kInfo up
// are written as text.
void SetUpLog(LogLevel least, LogFormat format);

// Events from this level up from now on. Thread-safe.
void SetLogLevel(LogLevel least);

// Thread-safe. `event` is a short phrase, the same each time it happens.
void Log(LogLevel level, absl::string_view event,
         const std::vector<LogField>& fields = {});

}  // namespace fabricwise
