// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/scenario.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/daemon/read_file.h"
#include "server/domain/plan.h"
#include "server/profile/model_config.h"
#include "server/profile/preset.h"

namespace fabricwise {
namespace {

// Names become values of labels, and in Kubernetes a part of labels' names: 63
// bytes with "fabricwise.engine." in front.
constexpr size_t kMostNameBytes = 45;

constexpr double kMillisecond = 1e-3;

// The contract's own limit for the text of a config.json.
constexpr size_t kMostModelBytes = size_t{1} << 20;

absl::Status CheckName(absl::string_view name) {
  bool good = !name.empty() && name.size() <= kMostNameBytes &&
              absl::ascii_isalnum(static_cast<unsigned char>(name.front())) &&
              absl::ascii_isalnum(static_cast<unsigned char>(name.back()));
  for (const char c : name) {
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                    c == '.' || c == '_' || c == '-');
  }
  if (good) return absl::OkStatus();
  return NotAllowed("a scenario's name", Quoted(name),
                    absl::StrCat("1 to ", kMostNameBytes,
                                 " letters, digits, '.', '_' and '-', from a "
                                 "letter or digit to one"));
}

absl::Status ParseNumber(absl::string_view name, absl::string_view text,
                         int64_t low, int64_t high, int64_t& value) {
  if (!absl::SimpleAtoi(text, &value)) {
    return NotAllowed(name, Quoted(text), absl::StrCat(low, " to ", high));
  }
  return CheckRange(name, value, low, high);
}

// In milliseconds, a fraction allowed; the question's own check has the range.
absl::Status ParseMilliseconds(absl::string_view name, absl::string_view text,
                               double& seconds) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value > 0) ||
      !std::isfinite(value)) {
    return NotAllowed(name, Quoted(text), "a number of milliseconds over 0");
  }
  seconds = value * kMillisecond;
  return absl::OkStatus();
}

std::string MillisecondsUnlessNone(double seconds) {
  return std::isfinite(seconds) ? absl::StrCat(seconds / kMillisecond) : "";
}

// The shape that the config.json at `path` describes, called as its folder is,
// or as the file where that has another name.
absl::Status ReadModel(absl::string_view path, Scenario& scenario) {
  if (path.empty()) {
    return NotAllowed("config", "empty", "the path of a config.json");
  }
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(std::string(path), kMostModelBytes));
  std::error_code error;
  const std::filesystem::path whole =
      std::filesystem::absolute(std::string(path), error).lexically_normal();
  const bool in_folder = whole.filename() == "config.json";
  const std::filesystem::path folder = whole.parent_path();
  const std::string name =
      in_folder ? folder.filename().string() : whole.stem().string();
  absl::StatusOr<ModelShape> shape = ParseHuggingFaceConfig(text, name);
  if (!shape.ok()) {
    return absl::Status(shape.status().code(),
                        absl::StrCat(path, ": ", shape.status().message()));
  }
  scenario.config = std::string(path);
  scenario.model = *std::move(shape);
  if (in_folder) scenario.model.repository = folder.string();
  return absl::OkStatus();
}

// One word of a scenario; `set` is given what stands behind its "=".
struct Part {
  const char* name;
  absl::Status (*set)(absl::string_view value, Scenario& scenario);
  std::string (*get)(const Scenario& scenario);  // empty: the default
};

std::string UnlessDefault(int64_t value, int64_t normal) {
  return value == normal ? "" : absl::StrCat(value);
}

const std::vector<Part>& Parts() {
  static const auto& parts = *new std::vector<Part>{
      {"model",
       [](absl::string_view value, Scenario& s) -> absl::Status {
         ASSIGN_OR_RETURN(const ModelShape* const shape, FindPreset(value));
         s.model = *shape;
         return absl::OkStatus();
       },
       [](const Scenario& s) { return s.config.empty() ? s.model.name : ""; }},
      {"config", ReadModel, [](const Scenario& s) { return s.config; }},
      {"concurrency",
       [](absl::string_view value, Scenario& s) {
         return ParseNumber("concurrency", value, 1, kMaxConcurrency,
                            s.question.workload.concurrency);
       },
       [](const Scenario& s) {
         return absl::StrCat(s.question.workload.concurrency);
       }},
      {"engine",
       [](absl::string_view value, Scenario& s) -> absl::Status {
         ASSIGN_OR_RETURN(const EngineId engine, ParseEngine(value));
         s.question.engines = {engine};
         return absl::OkStatus();
       },
       [](const Scenario& s) {
         const auto& engines = s.question.engines;
         return engines.empty() ? "" : std::string(ToString(engines.front()));
       }},
      {"phase",
       [](absl::string_view value, Scenario& s) -> absl::Status {
         ASSIGN_OR_RETURN(s.question.workload.phase, ParsePhase(value));
         return absl::OkStatus();
       },
       [](const Scenario& s) {
         const Phase phase = s.question.workload.phase;
         return phase == Workload().phase ? "" : std::string(ToString(phase));
       }},
      {"objective",
       [](absl::string_view value, Scenario& s) -> absl::Status {
         ASSIGN_OR_RETURN(s.question.objective, ParseObjective(value));
         return absl::OkStatus();
       },
       [](const Scenario& s) {
         const Objective objective = s.question.objective;
         return objective == Question().objective
                    ? ""
                    : std::string(ToString(objective));
       }},
      {"ttft-ms",
       [](absl::string_view value, Scenario& s) {
         return ParseMilliseconds("ttft-ms", value,
                                  s.question.limits.max_ttft_seconds);
       },
       [](const Scenario& s) {
         return MillisecondsUnlessNone(s.question.limits.max_ttft_seconds);
       }},
      {"tpot-ms",
       [](absl::string_view value, Scenario& s) {
         return ParseMilliseconds("tpot-ms", value,
                                  s.question.limits.max_tpot_seconds);
       },
       [](const Scenario& s) {
         return MillisecondsUnlessNone(s.question.limits.max_tpot_seconds);
       }},
      {"input-tokens",
       [](absl::string_view value, Scenario& s) {
         return ParseNumber("input-tokens", value, 1, kMaxTokens,
                            s.question.workload.input_tokens);
       },
       [](const Scenario& s) {
         return UnlessDefault(s.question.workload.input_tokens,
                              Workload().input_tokens);
       }},
      {"output-tokens",
       [](absl::string_view value, Scenario& s) {
         return ParseNumber("output-tokens", value, 1, kMaxTokens,
                            s.question.workload.output_tokens);
       },
       [](const Scenario& s) {
         return UnlessDefault(s.question.workload.output_tokens,
                              Workload().output_tokens);
       }},
      {"context-tokens",
       [](absl::string_view value, Scenario& s) {
         return ParseNumber("context-tokens", value, 1, kMaxTokens,
                            s.question.workload.context_tokens);
       },
       [](const Scenario& s) {
         return UnlessDefault(s.question.workload.context_tokens, 0);
       }},
      {"gpus",
       [](absl::string_view value, Scenario& s) -> absl::Status {
         int64_t count = 0;
         RETURN_IF_ERROR(ParseNumber("gpus", value, 1, kMaxGpus, count));
         s.question.gpus.count = static_cast<int>(count);
         return absl::OkStatus();
       },
       [](const Scenario& s) {
         return UnlessDefault(s.question.gpus.count, 0);
       }},
      {"gpu-indices",
       [](absl::string_view value, Scenario& s) -> absl::Status {
         s.question.gpus.indices.clear();
         for (const absl::string_view one : absl::StrSplit(value, ',')) {
           int64_t index = 0;
           RETURN_IF_ERROR(
               ParseNumber("gpu-indices", one, 0, kMaxGpus - 1, index));
           s.question.gpus.indices.push_back(static_cast<int>(index));
         }
         return absl::OkStatus();
       },
       [](const Scenario& s) {
         return absl::StrJoin(s.question.gpus.indices, ",");
       }},
      {"plan-options",
       [](absl::string_view value, Scenario& s) -> absl::Status {
         PlanOptions& options = s.question.options;
         for (const absl::string_view one : absl::StrSplit(value, ',')) {
           if (one == "tbo") {
             options.two_batch_overlap = true;
           } else if (one == "fp8d") {
             options.fp8_dispatch = true;
           } else {
             return NotAllowed("plan-options", Quoted(one), "tbo, fp8d");
           }
         }
         return absl::OkStatus();
       },
       [](const Scenario& s) {
         const PlanOptions& options = s.question.options;
         std::vector<std::string> names;
         if (options.two_batch_overlap) names.push_back("tbo");
         if (options.fp8_dispatch) names.push_back("fp8d");
         return absl::StrJoin(names, ",");
       }},
  };
  return parts;
}

absl::Status SetPart(absl::string_view word, std::set<std::string>& seen,
                     Scenario& scenario) {
  const std::pair<absl::string_view, absl::string_view> split =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  for (const Part& part : Parts()) {
    if (split.first != part.name) continue;
    if (!seen.insert(part.name).second) {
      return NotAllowed(part.name, "given twice", "once");
    }
    return part.set(split.second, scenario);
  }
  const auto add_name = [](std::string* out, const Part& part) {
    absl::StrAppend(out, part.name, "=");
  };
  return NotAllowed("a scenario's part", Quoted(word),
                    absl::StrJoin(Parts(), ", ", add_name));
}

}  // namespace

absl::StatusOr<Scenario> ParseScenario(absl::string_view text) {
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) {
    return NotAllowed("a scenario", Quoted(text),
                      "NAME: model=PRESET concurrency=N, and more behind it");
  }
  Scenario scenario;
  scenario.name =
      std::string(absl::StripAsciiWhitespace(text.substr(0, colon)));
  RETURN_IF_ERROR(CheckName(scenario.name));
  std::set<std::string> seen;
  for (const absl::string_view word : absl::StrSplit(
           text.substr(colon + 1), absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    RETURN_IF_ERROR(SetPart(word, seen, scenario));
  }
  if (seen.contains("model") == seen.contains("config")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "scenario ", scenario.name,
        seen.contains("model") ? " has model= and config=; allowed: one of them"
                               : " has no model= and no config="));
  }
  if (!seen.contains("concurrency")) {
    return absl::InvalidArgumentError(
        absl::StrCat("scenario ", scenario.name, " has no concurrency="));
  }
  // Which mode, and how it does: that is all that is kept of an answer.
  scenario.question.explain = false;
  scenario.question.max_plans = 1;
  RETURN_IF_ERROR(Validate(scenario.question));
  return scenario;
}

std::string ToString(const Scenario& scenario) {
  std::string text = absl::StrCat(scenario.name, ":");
  for (const Part& part : Parts()) {
    const std::string value = part.get(scenario);
    if (!value.empty()) absl::StrAppend(&text, " ", part.name, "=", value);
  }
  return text;
}

}  // namespace fabricwise
