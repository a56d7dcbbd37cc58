// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/decimal.h"
#include "server/profile/imported.h"
#include "server/profile/json_fields.h"
#include "server/profile/json_text.h"

namespace fabricwise {
namespace {

constexpr absl::string_view kOurPrograms =
    "all_reduce_perf, all_gather_perf, reduce_scatter_perf, alltoall_perf, "
    "sendrecv_perf";

constexpr absl::string_view kOtherPrograms[] = {
    "alltoallv", "alltoallv2", "bisection", "broadcast",
    "gather",    "hypercube",  "reduce",    "scatter"};

// More than nccl-tests writes for a sweep with the times of each iteration.
constexpr size_t kMaxNcclTestsBytes = size_t{16} << 20;

// time, algbw, busbw, #wrong ("error" before 2.13).
constexpr size_t kWrongBehindTime = 3;

// A timestamp is a date and a time.
constexpr size_t kTimestampWords = 2;

// "2.9.0" is where NCCL's version code went from hundreds to ten thousands.
constexpr int64_t kLongVersionCode = 10000;

// One run's setting, as its heading says it.
struct Setting {
  std::optional<CollectiveOp> op;
  std::string tests_version;  // of nccl-tests; empty: not said
  int64_t threads = 1, gpus_per_thread = 1;
  int64_t iterations = 0;
  bool validated = false;
  bool graph = false;
  bool symmetric = false;
  absl::Time start_time = absl::UnixEpoch();
  // Communicator -> ranks seen in it (NCCL_TESTS_SPLIT makes several, which
  // run at once).
  std::map<int64_t, std::set<int64_t>> ranks;

  int64_t RankCount() const {
    size_t seen = 0;
    for (const auto& [group, members] : ranks) seen += members.size();
    // Long device lists are cut by nccl-tests itself.
    return std::max(static_cast<int64_t>(seen), threads * gpus_per_thread);
  }
  int64_t GroupCount() const {
    return std::max<int64_t>(1, static_cast<int64_t>(ranks.size()));
  }
};

absl::StatusOr<CollectiveKey> KeyOf(const Setting& setting) {
  const int64_t groups = setting.GroupCount();
  const int64_t ranks = setting.RankCount();
  if (ranks % groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        ranks, " ranks in ", groups, " groups; allowed: groups of one size"));
  }
  RETURN_IF_ERROR(CheckRange("the number of ranks", ranks / groups, int64_t{2},
                             int64_t{kMaxGroupGpus}));
  return CollectiveKey{
      .op = *setting.op,
      .group = {.size = static_cast<int>(ranks / groups)},
      .implementation = setting.symmetric ? CollectiveImpl::kNcclSymmetric
                                          : CollectiveImpl::kNccl,
      .launch = setting.graph ? Launch::kGraph : Launch::kEager,
      .concurrent_groups = static_cast<int>(groups)};
}

Measurement MeasurementOf(const Setting& setting, const CollectiveKey& key,
                          int64_t size, double seconds, bool checked,
                          absl::string_view nccl_version,
                          absl::string_view name) {
  Measurement measurement;
  CollectiveKey sized = key;
  sized.size_bytes = size;
  measurement.key = sized;
  measurement.statistics.median_seconds = seconds;
  measurement.statistics.samples = setting.iterations;
  measurement.statistics.verified = checked && setting.validated;
  measurement.source =
      absl::StrCat("nccl-tests", setting.tests_version.empty() ? "" : " ",
                   setting.tests_version, nccl_version.empty() ? "" : ", NCCL ",
                   nccl_version, ", ", name);
  measurement.start_time = setting.start_time;
  return measurement;
}

std::vector<absl::string_view> Words(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
}

bool IsNumber(absl::string_view word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(),
                     [](unsigned char c) { return absl::ascii_isdigit(c); });
}

// The number behind `label` in a comment ("iters: 20"), or `fallback`.
int64_t NumberBehind(absl::string_view line, absl::string_view label,
                     int64_t fallback) {
  const size_t at = line.find(label);
  if (at == absl::string_view::npos) return fallback;
  const std::vector<absl::string_view> words =
      Words(line.substr(at + label.size()));
  int64_t value = 0;
  return !words.empty() && absl::SimpleAtoi(words[0], &value) ? value
                                                              : fallback;
}

class TextReader {
 public:
  TextReader(std::string name, const ImportHints& hints)
      : name_(std::move(name)), hints_(hints) {}

  absl::StatusOr<Imported> Read(absl::string_view content) {
    for (absl::string_view line : absl::StrSplit(content, '\n')) {
      ++line_number_;
      line = absl::StripAsciiWhitespace(line);
      if (absl::Status status = ReadLine(line); !status.ok()) {
        return Here(status);
      }
    }
    if (in_run_) {
      return Here(absl::InvalidArgumentError(
          "the run does not close with its average bus bandwidth; the file "
          "was cut off"));
    }
    if (imported_.measurements.empty()) {
      return Here(absl::InvalidArgumentError("holds no result"));
    }
    return std::move(imported_);
  }

 private:
  absl::Status Here(const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat(name_, ":", line_number_,
                                                    ": ", status.message()));
  }

  absl::Status ReadLine(absl::string_view line) {
    RETURN_IF_ERROR(FindProgram(line));
    if (absl::ConsumePrefix(&line, "#")) return ReadComment(line);
    const std::vector<absl::string_view> words = Words(line);
    if (columns_.empty() || words.empty() || !IsNumber(words[0])) {
      return absl::OkStatus();  // of mpirun, of NCCL's log
    }
    return ReadRow(words);
  }

  // Versions before 2.17 do not say what they ran; a command line above the
  // output often does.
  absl::Status FindProgram(absl::string_view line) {
    if (absl::StrContains(line, "test concluded")) return absl::OkStatus();
    for (absl::string_view word : Words(line)) {
      if (!absl::ConsumeSuffix(&word, "_perf")) continue;
      word = word.substr(word.rfind('/') + 1);
      if (const auto op = CollectiveOfProgram(word)) {
        program_ = op;
      } else if (std::find(std::begin(kOtherPrograms), std::end(kOtherPrograms),
                           word) != std::end(kOtherPrograms)) {
        return NotAllowed("the program", Quoted(absl::StrCat(word, "_perf")),
                          kOurPrograms);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadComment(absl::string_view line) {
    const std::vector<absl::string_view> words = Words(line);
    if (words.empty()) return absl::OkStatus();
    if (words[0] == "nThread") {
      StartRun(line);
    } else if (absl::StrContains(line, "nccl-tests version")) {
      ReadVersions(words);
    } else if (words[0] == "Rank") {
      return ReadRank(words);
    } else if (words[0] == "size") {
      return ReadColumns(words);
    } else if (absl::StrContains(line, "Avg bus bandwidth")) {
      in_run_ = false;
      columns_.clear();
      program_.reset();
    }
    return absl::OkStatus();
  }

  void ReadVersions(const std::vector<absl::string_view>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      absl::string_view word = words[i];
      int64_t code = 0;
      if (word == "version" && i + 1 < words.size()) {
        tests_version_ = std::string(words[i + 1]);
      } else if (absl::ConsumePrefix(&word, "nccl-library=") &&
                 absl::SimpleAtoi(word, &code)) {
        imported_.nccl_version = NcclVersionText(code);
      }
    }
  }

  void StartRun(absl::string_view line) {
    in_run_ = true;
    columns_.clear();
    setting_ = Setting{};
    setting_.tests_version = tests_version_;
    setting_.threads = std::clamp(NumberBehind(line, "nThread ", 1), int64_t{1},
                                  int64_t{kMaxGroupGpus});
    setting_.gpus_per_thread = std::clamp(NumberBehind(line, "nGpus ", 1),
                                          int64_t{1}, int64_t{kMaxGroupGpus});
    // "warmup iters: 5 iters: 20": the second.
    constexpr absl::string_view kWarmup = "warmup iters:";
    const size_t warmup = line.find(kWarmup);
    if (warmup != absl::string_view::npos) {
      setting_.iterations =
          NumberBehind(line.substr(warmup + kWarmup.size()), " iters: ", 0);
    }
    setting_.validated = NumberBehind(line, "validation: ", 0) > 0;
    setting_.graph = NumberBehind(line, "graph: ", 0) > 0;
  }

  // "Rank  0 Group  0 Pid  100 on  node device  0 [0000:00:06] NVIDIA H200"
  absl::Status ReadRank(const std::vector<absl::string_view>& words) {
    int64_t rank = 0, group = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &rank)) {
      return absl::InvalidArgumentError("the rank has no number");
    }
    if (words.size() > 3 && words[2] == "Group" &&
        !absl::SimpleAtoi(words[3], &group)) {
      return absl::InvalidArgumentError("the rank's group has no number");
    }
    if (!setting_.ranks[group].insert(rank).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank,
                       " is there twice; nccl-tests was built without MPI and "
                       "ran in parts"));
    }
    const auto bus = std::find_if(
        words.begin(), words.end(),
        [](absl::string_view word) { return absl::StartsWith(word, "["); });
    if (bus != words.end()) {
      std::string gpu;
      for (auto word = bus + 1; word != words.end(); ++word) {
        absl::StrAppend(&gpu, gpu.empty() ? "" : " ", *word);
      }
      imported_.gpu_name = gpu;
    }
    return absl::OkStatus();
  }

  absl::Status ReadColumns(const std::vector<absl::string_view>& words) {
    columns_.clear();
    for (const absl::string_view word : words) columns_.emplace_back(word);
    has_timestamp_ = columns_.back() == "timestamp";
    if (has_timestamp_) columns_.pop_back();
    const auto time = std::find(columns_.begin(), columns_.end(), "time");
    if (time == columns_.end()) {
      return absl::InvalidArgumentError(
          "no column 'time'; CPU times say nothing of a collective");
    }
    from_time_ = static_cast<size_t>(columns_.end() - time);
    if (from_time_ <= kWrongBehindTime || time == columns_.begin()) {
      return absl::InvalidArgumentError(
          "allowed columns: size, ... time, algbw, busbw, #wrong, ...");
    }
    setting_.op = program_.has_value() ? program_ : hints_.op;
    if (!setting_.op.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the output does not name its operation; state which of ",
          kOurPrograms));
    }
    ASSIGN_OR_RETURN(key_, KeyOf(setting_));
    imported_.gpu_count =
        std::max(imported_.gpu_count, static_cast<int>(setting_.RankCount()));
    return absl::OkStatus();
  }

  // Times are counted from the right: before there was a root, the reduction's
  // column could be blank.
  absl::Status ReadRow(std::vector<absl::string_view> words) {
    if (has_timestamp_) {
      words.resize(words.size() - std::min(kTimestampWords, words.size()));
    }
    const bool has_root =
        std::find(columns_.begin(), columns_.end(), "root") != columns_.end();
    const size_t fewest = columns_.size() - (has_root ? 0 : 1);
    if (words.size() < fewest || words.size() > columns_.size()) {
      return NotAllowed("the number of fields", absl::StrCat(words.size()),
                        absl::StrCat(fewest, " to ", columns_.size()));
    }
    int64_t size = 0;
    if (!absl::SimpleAtoi(words[0], &size) || size > kMaxKeySize) {
      return NotAllowed("size", Quoted(words[0]),
                        absl::StrCat("0 to ", kMaxKeySize));
    }
    const size_t time = words.size() - from_time_;
    const std::optional<double> seconds = SecondsFromMicros(words[time]);
    if (!seconds.has_value() || *seconds < 0) {
      return NotAllowed("time", Quoted(words[time]),
                        "a finite number of microseconds");
    }
    const absl::string_view wrong = words[time + kWrongBehindTime];
    const bool checked = wrong != "N/A";
    const bool counts =
        columns_[columns_.size() - from_time_ + kWrongBehindTime] == "#wrong";
    if (checked && counts && ParseDecimal(wrong).value_or(1) != 0) {
      return NotAllowed("#wrong", Quoted(wrong),
                        "0; a collective with wrong results has no time");
    }
    if (size == 0) return absl::OkStatus();
    if (*seconds == 0) {
      return NotAllowed("time", Quoted(words[time]), "more than 0");
    }
    imported_.measurements.push_back(
        MeasurementOf(setting_, key_, size, *seconds, checked,
                      imported_.nccl_version, name_));
    return absl::OkStatus();
  }

  const std::string name_;
  const ImportHints& hints_;
  Imported imported_;
  int64_t line_number_ = 0;
  std::string tests_version_;
  std::optional<CollectiveOp> program_;
  bool in_run_ = false;
  Setting setting_;
  CollectiveKey key_;
  std::vector<std::string> columns_;  // empty: outside a table
  size_t from_time_ = 0;              // columns from the first time on
  bool has_timestamp_ = false;        // two words more in each row
};

// "2026-11-29 16:58:21", without a zone: taken as UTC.
absl::StatusOr<absl::Time> TimeOf(const JsonPlace& place) {
  ASSIGN_OR_RETURN(const std::string text, place.String());
  absl::Time time;
  std::string error;
  if (absl::ParseTime("%Y-%m-%d %H:%M:%S", text, &time, &error)) return time;
  return place.Refuse("a time as 2026-11-29 16:58:21");
}

absl::StatusOr<bool> UsesSymmetricMemory(const JsonPlace& document) {
  ASSIGN_OR_RETURN(const JsonPlace place, document.At("args"));
  ASSIGN_OR_RETURN(const std::vector<std::string> arguments, place.Strings());
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if ((arguments[i] == "-R" || arguments[i] == "--local_register") &&
        arguments[i + 1] == "2") {
      return true;
    }
  }
  return false;
}

absl::StatusOr<CollectiveOp> OperationOf(const JsonPlace& document) {
  ASSIGN_OR_RETURN(const JsonPlace place, document.At("args"));
  ASSIGN_OR_RETURN(const std::vector<std::string> arguments, place.Strings());
  if (!arguments.empty()) {
    const absl::string_view path = arguments[0];
    if (const auto op = CollectiveOfProgram(path.substr(path.rfind('/') + 1))) {
      return *op;
    }
  }
  return place.Refuse(absl::StrCat("one of ", kOurPrograms, " first"));
}

absl::Status ReadConfig(const JsonPlace& document, Setting* setting,
                        Imported* imported) {
  ASSIGN_OR_RETURN(const JsonPlace config, document.At("config"));
  const auto number = [&](absl::string_view key, int64_t low,
                          int64_t* value) -> absl::Status {
    ASSIGN_OR_RETURN(const JsonPlace place, config.At(key));
    ASSIGN_OR_RETURN(*value, place.Int(low, kMaxKeySize));
    return absl::OkStatus();
  };
  int64_t validation = 0, graph = 0;
  RETURN_IF_ERROR(number("nthreads", 1, &setting->threads));
  RETURN_IF_ERROR(number("ngpus", 1, &setting->gpus_per_thread));
  RETURN_IF_ERROR(config.Annotate(
      CheckRange("nthreads x ngpus",
                 static_cast<double>(setting->threads) *
                     static_cast<double>(setting->gpus_per_thread),
                 2.0, double{kMaxGroupGpus})));
  RETURN_IF_ERROR(number("iterations", 0, &setting->iterations));
  RETURN_IF_ERROR(number("graph", 0, &graph));
  RETURN_IF_ERROR(number("validation", 0, &validation));
  setting->graph = graph > 0;
  setting->validated = validation > 0;

  ASSIGN_OR_RETURN(const JsonPlace list, config.At("devices"));
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> devices, list.Elements());
  for (const JsonPlace& device : devices) {
    ASSIGN_OR_RETURN(const JsonPlace rank, device.At("rank"));
    ASSIGN_OR_RETURN(const int64_t rank_number, rank.Int(0, kMaxKeySize));
    ASSIGN_OR_RETURN(const JsonPlace group, device.At("group"));
    ASSIGN_OR_RETURN(const int64_t group_number, group.Int(0, kMaxKeySize));
    ASSIGN_OR_RETURN(const JsonPlace info, device.At("device_info"));
    ASSIGN_OR_RETURN(imported->gpu_name, info.String());
    setting->ranks[group_number].insert(rank_number);
  }
  return absl::OkStatus();
}

absl::Status ReadFacts(const JsonPlace& document, Setting* setting,
                       Imported* imported) {
  if (document.Has("nccl_version")) {
    ASSIGN_OR_RETURN(const JsonPlace place, document.At("nccl_version"));
    ASSIGN_OR_RETURN(const int64_t code, place.Int(0, kMaxKeySize));
    imported->nccl_version = NcclVersionText(code);
  }
  if (document.Has("env")) {
    ASSIGN_OR_RETURN(const JsonPlace place, document.At("env"));
    ASSIGN_OR_RETURN(std::vector<std::string> environment, place.Strings());
    std::sort(environment.begin(), environment.end());
    imported->nccl_environment = std::move(environment);
  }
  if (document.Has("start_time")) {
    ASSIGN_OR_RETURN(const JsonPlace place, document.At("start_time"));
    ASSIGN_OR_RETURN(setting->start_time, TimeOf(place));
  }
  if (document.Has("end_time")) {
    ASSIGN_OR_RETURN(const JsonPlace place, document.At("end_time"));
    ASSIGN_OR_RETURN(const absl::Time end, TimeOf(place));
    imported->end_time = end;
  }
  return absl::OkStatus();
}

absl::Status ReadResult(const JsonPlace& result, const Setting& setting,
                        const CollectiveKey& key, const std::string& name,
                        Imported* imported) {
  ASSIGN_OR_RETURN(const JsonPlace size_place, result.At("size"));
  ASSIGN_OR_RETURN(const int64_t size, size_place.Int(0, kMaxKeySize));
  ASSIGN_OR_RETURN(const JsonPlace out_of_place, result.At("out_of_place"));
  ASSIGN_OR_RETURN(const JsonPlace time, out_of_place.At("time"));
  ASSIGN_OR_RETURN(const double micros, time.Number());
  const bool checked = out_of_place.Has("nwrong");
  if (checked) {
    ASSIGN_OR_RETURN(const JsonPlace wrong, out_of_place.At("nwrong"));
    ASSIGN_OR_RETURN(const double count, wrong.Number());
    if (count != 0) {
      return wrong.Refuse("0; a collective with wrong results has no time");
    }
  }
  if (size == 0) return absl::OkStatus();
  const double seconds = SecondsFromMicros(micros);
  if (!(seconds > 0)) return time.Refuse("more than 0 microseconds");
  imported->measurements.push_back(MeasurementOf(
      setting, key, size, seconds, checked, imported->nccl_version, name));
  return absl::OkStatus();
}

}  // namespace

std::optional<CollectiveOp> CollectiveOfProgram(absl::string_view name) {
  absl::ConsumeSuffix(&name, "_perf");
  if (name == "alltoall") return CollectiveOp::kAllToAll;
  if (name == "sendrecv") return CollectiveOp::kSendRecv;
  const absl::StatusOr<CollectiveOp> op = ParseCollectiveOp(name);
  return op.ok() ? std::optional(*op) : std::nullopt;
}

std::string NcclVersionText(int64_t code) {
  const int64_t major_unit = code < kLongVersionCode ? 1000 : 10000;
  return absl::StrCat(code / major_unit, ".", code % major_unit / 100, ".",
                      code % 100);
}

bool LooksLikeNcclTestsText(absl::string_view content) {
  return absl::StrContains(content, "# nThread ");
}

absl::StatusOr<Imported> ImportNcclTestsText(const std::string& name,
                                             absl::string_view content,
                                             const ImportHints& hints) {
  return TextReader(name, hints).Read(content);
}

absl::StatusOr<Imported> ImportNcclTestsJson(const std::string& name,
                                             absl::string_view content) {
  ASSIGN_OR_RETURN(const nlohmann::json json,
                   ParseJsonObject(name, content, kMaxNcclTestsBytes));
  const JsonPlace document(json, name, "");
  if (!document.Has("args") || !document.Has("results")) {
    return absl::InvalidArgumentError(absl::StrCat(
        name,
        ": is neither a profile nor JSON of nccl-tests, which has 'args' "
        "and 'results'"));
  }
  Imported imported;
  Setting setting;
  ASSIGN_OR_RETURN(setting.op, OperationOf(document));
  ASSIGN_OR_RETURN(setting.symmetric, UsesSymmetricMemory(document));
  RETURN_IF_ERROR(ReadFacts(document, &setting, &imported));
  RETURN_IF_ERROR(ReadConfig(document, &setting, &imported));
  absl::StatusOr<CollectiveKey> key = KeyOf(setting);
  if (!key.ok()) return document.Annotate(key.status());
  imported.gpu_count = static_cast<int>(setting.RankCount());

  ASSIGN_OR_RETURN(const JsonPlace list, document.At("results"));
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> results, list.Elements());
  for (const JsonPlace& result : results) {
    RETURN_IF_ERROR(ReadResult(result, setting, *key, name, &imported));
  }
  if (imported.measurements.empty()) return list.Refuse("at least one result");
  return imported;
}

}  // namespace fabricwise
