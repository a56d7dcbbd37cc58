// SPDX-License-Identifier: Apache-2.0
//
// A run of measurements as its asker sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/domain/measurement.h"

namespace fabricwise {

enum class RunKind {
  kProbe,  // looks at the node, measures nothing
  kQuick,  // a usable profile within a minute
  kFull,   // everything, within five minutes on eight GPUs
};

// "probe", "quick", "full".
absl::string_view ToString(RunKind kind);

struct RunOrder {
  RunKind kind = RunKind::kQuick;
  // Only keys that begin so; empty: all of the kind.
  std::vector<std::string> key_prefixes;
  std::optional<absl::Duration> budget;  // of wall time; absent: the kind's
};

struct RunProgress {
  int64_t done_count = 0;  // keys measured or found not to be measurable here
  int64_t total_count = 0;
  std::string key;  // being measured, or just measured
  // Just measured; not kept unless its part of the run ends well.
  std::optional<Measurement> measurement;
};

struct RunResult {
  // OK; FAILED_PRECONDITION: the GPUs are busy, or none of the keys is one that
  // can be measured here; ABORTED: the node changed meanwhile; CANCELLED;
  // UNAVAILABLE: the daemon is stopping; INTERNAL: the worker failed, and how;
  // else the store's.
  absl::Status status;
  int64_t kept_count = 0;  // measurements stored
  bool profile_changed = false;
  std::string note;  // with OK: what could not be measured all the same
};

// Called on the thread that measures; short. `on_end` is the last call.
struct RunListener {
  std::function<void(const RunProgress&)> on_progress;
  std::function<void(const RunResult&)> on_end;
};

}  // namespace fabricwise
