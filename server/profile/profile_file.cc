// SPDX-License-Identifier: Apache-2.0
#include "server/profile/profile_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "server/base/status_macros.h"
#include "server/profile/json_fields.h"
#include "server/profile/json_text.h"
#include "server/profile/swept_key.h"

namespace fabricwise {
namespace {

// A point's numbers besides its size, each with how it is kept.
struct Column {
  absl::string_view name;
  // Not recorded, and so not written: nothing else reads back as this.
  double absent;
  double (*get)(const Measurement&);
  void (*set)(Measurement&, double);
  bool whole;
};

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();

constexpr Column kColumns[] = {
    {"median_seconds", kRequired,
     [](const Measurement& m) { return m.statistics.median_seconds; },
     [](Measurement& m, double v) { m.statistics.median_seconds = v; }, false},
    {"iqr_seconds", -1,
     [](const Measurement& m) { return m.statistics.iqr_seconds; },
     [](Measurement& m, double v) { m.statistics.iqr_seconds = v; }, false},
    {"p99_seconds", -1,
     [](const Measurement& m) { return m.statistics.p99_seconds; },
     [](Measurement& m, double v) { m.statistics.p99_seconds = v; }, false},
    {"samples", 0,
     [](const Measurement& m) {
       return static_cast<double>(m.statistics.samples);
     },
     [](Measurement& m, double v) {
       m.statistics.samples = static_cast<int64_t>(v);
     },
     true},
    {"discarded", 0,
     [](const Measurement& m) {
       return static_cast<double>(m.statistics.discarded);
     },
     [](Measurement& m, double v) {
       m.statistics.discarded = static_cast<int64_t>(v);
     },
     true},
    {"sm_clock_hertz", -1,
     [](const Measurement& m) { return m.statistics.sm_clock_hertz; },
     [](Measurement& m, double v) { m.statistics.sm_clock_hertz = v; }, false},
    {"rows_local", -1,
     [](const Measurement& m) {
       return static_cast<double>(m.experts.rows_local);
     },
     [](Measurement& m, double v) {
       m.experts.rows_local = static_cast<int64_t>(v);
     },
     true},
    {"experts_hit", -1,
     [](const Measurement& m) {
       return static_cast<double>(m.experts.experts_hit);
     },
     [](Measurement& m, double v) {
       m.experts.experts_hit = static_cast<int64_t>(v);
     },
     true},
    // Beyond the group's start_time, as which it is kept while writing.
    {"start_after_nanoseconds", 0,
     [](const Measurement& m) {
       return static_cast<double>(
           absl::ToInt64Nanoseconds(m.start_time - absl::UnixEpoch()));
     },
     [](Measurement& m, double v) {
       m.start_time += absl::Nanoseconds(static_cast<int64_t>(v));
     },
     true},
};

bool Recorded(const Column& column, const Measurement& measurement) {
  const double value = column.get(measurement);
  return column.absent < 0 ? value >= 0 : value != column.absent;
}

// JSON text of one value.
std::string Quote(absl::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Number(double value) {
  std::array<char, 32> buffer;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string CellText(const Column& column, const Measurement& measurement) {
  if (!Recorded(column, measurement)) return "null";
  const double value = column.get(measurement);
  return column.whole ? absl::StrCat(static_cast<int64_t>(value))
                      : Number(value);
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone());
}

std::string Strings(const std::vector<std::string>& strings) {
  return absl::StrCat(
      "[",
      absl::StrJoin(strings, ", ",
                    [](std::string* out, const std::string& text) {
                      absl::StrAppend(out, Quote(text));
                    }),
      "]");
}

template <typename T>
std::string Matrix(const std::vector<std::vector<T>>& rows) {
  return absl::StrCat(
      "[",
      absl::StrJoin(rows, ", ",
                    [](std::string* out, const std::vector<T>& row) {
                      absl::StrAppend(
                          out, "[",
                          absl::StrJoin(row, ", ",
                                        [](std::string* cell, T value) {
                                          absl::StrAppend(cell, int64_t{value});
                                        }),
                          "]");
                    }),
      "]");
}

// Collects `"name": value` members, leaving out what says nothing.
class Members {
 public:
  void Add(absl::string_view name, absl::string_view json) {
    members_.push_back(absl::StrCat("\"", name, "\": ", json));
  }
  void AddText(absl::string_view name, absl::string_view text) {
    if (!text.empty()) Add(name, Quote(text));
  }
  std::string Join(absl::string_view separator) const {
    return absl::StrCat("{", absl::StrJoin(members_, separator), "}");
  }

 private:
  std::vector<std::string> members_;
};

std::string Text(const Fingerprint& fingerprint) {
  std::vector<std::string> gpus;
  for (const Gpu& gpu : fingerprint.gpus) {
    Members members;
    members.Add("name", Quote(gpu.name));
    members.AddText("uuid", gpu.uuid);
    if (gpu.memory_bytes != 0) {
      members.Add("memory_bytes", absl::StrCat(gpu.memory_bytes));
    }
    if (gpu.compute_capability != 0) {
      members.Add("compute_capability", absl::StrCat(gpu.compute_capability));
    }
    gpus.push_back(members.Join(", "));
  }
  Members members;
  members.Add("gpus", absl::StrCat("[", absl::StrJoin(gpus, ",\n    "), "]"));
  members.AddText("driver_version", fingerprint.driver_version);
  members.AddText("cuda_version", fingerprint.cuda_version);
  members.AddText("nccl_version", fingerprint.nccl_version);
  if (!fingerprint.nccl_environment.empty()) {
    members.Add("nccl_environment", Strings(fingerprint.nccl_environment));
  }
  members.AddText("fabric", fingerprint.fabric);
  if (!fingerprint.peer_access.empty()) {
    members.Add("peer_access", Matrix(fingerprint.peer_access));
  }
  if (!fingerprint.nvlinks.empty()) {
    members.Add("nvlinks", Matrix(fingerprint.nvlinks));
  }
  if (!fingerprint.facts.empty()) {
    members.Add("facts", Strings(fingerprint.facts));
  }
  return members.Join(",\n  ");
}

// Everything that the points of one group share, beside the time.
std::vector<std::string> SharedFields(const Measurement& measurement,
                                      const std::string& pattern) {
  const Statistics& statistics = measurement.statistics;
  return {pattern,
          measurement.source,
          std::string(ToString(measurement.origin)),
          measurement.fingerprint_id,
          std::string(ToString(statistics.stop_reason)),
          statistics.verified ? "true" : "",
          statistics.discard_reason};
}

// Whether `time` is whole nanoseconds from `first`, and so few that those of a
// group are exact.
bool Near(absl::Time time, absl::Time first) {
  constexpr absl::Duration kMost = absl::Nanoseconds(kMaxKeySize / 2);
  const absl::Duration after = time - first;
  return absl::AbsDuration(after) <= kMost &&
         absl::Nanoseconds(absl::ToInt64Nanoseconds(after)) == after;
}

std::string GroupText(std::vector<Measurement> group,
                      const std::string& pattern) {
  const absl::Time start =
      std::min_element(group.begin(), group.end(),
                       [](const Measurement& a, const Measurement& b) {
                         return a.start_time < b.start_time;
                       })
          ->start_time;
  for (Measurement& measurement : group) {
    measurement.start_time =
        absl::UnixEpoch() + (measurement.start_time - start);
  }
  const Measurement& first = group.front();
  Members members;
  members.Add("key", Quote(pattern));
  members.AddText("source", first.source);
  if (first.origin != Origin::kMeasured) {
    members.AddText("origin", ToString(first.origin));
  }
  members.AddText("fingerprint_id", first.fingerprint_id);
  if (start != absl::UnixEpoch()) {
    members.AddText("start_time", TimeText(start));
  }
  if (first.statistics.stop_reason != StopReason::kUnknown) {
    members.AddText("stop_reason", ToString(first.statistics.stop_reason));
  }
  if (first.statistics.verified) members.Add("verified", "true");
  members.AddText("discard_reason", first.statistics.discard_reason);

  std::vector<std::string> names = {"\"*\""};
  std::vector<const Column*> columns;
  for (const Column& column : kColumns) {
    if (std::any_of(group.begin(), group.end(), [&](const Measurement& m) {
          return Recorded(column, m);
        })) {
      names.push_back(Quote(column.name));
      columns.push_back(&column);
    }
  }
  std::vector<std::string> points;
  for (const Measurement& measurement : group) {
    std::string point = absl::StrCat(SplitSweptSize(measurement.key).size);
    for (const Column* column : columns) {
      absl::StrAppend(&point, ", ", CellText(*column, measurement));
    }
    points.push_back(absl::StrCat("[", point, "]"));
  }
  members.Add("columns", absl::StrCat("[", absl::StrJoin(names, ", "), "]"));
  members.Add("points",
              absl::StrCat("[\n  ", absl::StrJoin(points, ",\n  "), "]"));
  return members.Join(", ");
}

// Curve by curve, both in the order in which they come: a node is measured row
// by row of its tables, and would have a group a point.
std::vector<const Measurement*> ByCurve(
    const std::vector<Measurement>& measurements) {
  absl::flat_hash_map<std::string, size_t> place;
  std::vector<std::vector<const Measurement*>> curves;
  for (const Measurement& measurement : measurements) {
    const auto [entry, inserted] = place.try_emplace(
        SplitSweptSize(measurement.key).pattern, curves.size());
    if (inserted) curves.emplace_back();
    curves[entry->second].push_back(&measurement);
  }
  std::vector<const Measurement*> ordered;
  for (const auto& curve : curves) {
    ordered.insert(ordered.end(), curve.begin(), curve.end());
  }
  return ordered;
}

std::string GroupsText(const std::vector<Measurement>& measurements) {
  std::vector<std::string> groups;
  std::vector<Measurement> group;
  std::vector<std::string> shared;
  std::string pattern;
  const auto close = [&] {
    if (!group.empty()) groups.push_back(GroupText(std::move(group), pattern));
    group.clear();
  };
  for (const Measurement* each : ByCurve(measurements)) {
    const Measurement& measurement = *each;
    std::string its_pattern = SplitSweptSize(measurement.key).pattern;
    std::vector<std::string> its_shared =
        SharedFields(measurement, its_pattern);
    if (its_shared != shared ||
        !Near(measurement.start_time, group.front().start_time)) {
      close();
      shared = std::move(its_shared);
      pattern = std::move(its_pattern);
    }
    group.push_back(measurement);
  }
  close();
  return absl::StrCat("[\n ", absl::StrJoin(groups, ",\n "), "]");
}

// From here on a time has no four-digit year, and would not read back.
absl::Time EndOfTimes() {
  return absl::FromCivil(absl::CivilYear(10000), absl::UTCTimeZone());
}

// Reading. Each function fills one part from its place.

absl::Status ReadText(const JsonPlace& parent, absl::string_view key,
                      std::string* text) {
  if (!parent.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JsonPlace place, parent.At(key));
  ASSIGN_OR_RETURN(*text, place.String());
  return absl::OkStatus();
}

absl::Status ReadStrings(const JsonPlace& parent, absl::string_view key,
                         std::vector<std::string>* strings) {
  if (!parent.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JsonPlace place, parent.At(key));
  ASSIGN_OR_RETURN(*strings, place.Strings());
  return absl::OkStatus();
}

absl::Status ReadTime(const JsonPlace& parent, absl::string_view key,
                      absl::Time* time) {
  if (!parent.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JsonPlace place, parent.At(key));
  ASSIGN_OR_RETURN(const std::string text, place.String());
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, text, time, &error) &&
      *time >= absl::UnixEpoch() && *time < EndOfTimes()) {
    return absl::OkStatus();
  }
  return place.Refuse("an RFC 3339 time from 1970 to 9999");
}

template <typename T>
absl::Status ReadMatrix(const JsonPlace& parent, absl::string_view key,
                        int64_t highest, std::vector<std::vector<T>>* matrix) {
  if (!parent.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JsonPlace place, parent.At(key));
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> rows, place.Elements());
  for (const JsonPlace& row : rows) {
    ASSIGN_OR_RETURN(const std::vector<JsonPlace> cells, row.Elements());
    if (cells.size() != rows.size()) {
      return row.Refuse(absl::StrCat(rows.size(), " numbers, as many as rows"));
    }
    std::vector<T> values;
    for (const JsonPlace& cell : cells) {
      ASSIGN_OR_RETURN(const int64_t value, cell.Int(0, highest));
      values.push_back(static_cast<T>(value));
    }
    matrix->push_back(std::move(values));
  }
  return absl::OkStatus();
}

absl::Status ReadGpu(const JsonPlace& place, Gpu* gpu) {
  RETURN_IF_ERROR(
      place.CheckOnly({"name", "uuid", "memory_bytes", "compute_capability"}));
  ASSIGN_OR_RETURN(const JsonPlace name, place.At("name"));
  ASSIGN_OR_RETURN(gpu->name, name.String());
  RETURN_IF_ERROR(ReadText(place, "uuid", &gpu->uuid));
  if (place.Has("memory_bytes")) {
    ASSIGN_OR_RETURN(const JsonPlace memory, place.At("memory_bytes"));
    ASSIGN_OR_RETURN(gpu->memory_bytes, memory.Int(0, kMaxKeySize));
  }
  if (place.Has("compute_capability")) {
    ASSIGN_OR_RETURN(const JsonPlace cc, place.At("compute_capability"));
    ASSIGN_OR_RETURN(const int64_t value,
                     cc.Int(0, std::numeric_limits<int>::max()));
    gpu->compute_capability = static_cast<int>(value);
  }
  return absl::OkStatus();
}

absl::Status ReadFingerprint(const JsonPlace& place, Fingerprint* fingerprint) {
  RETURN_IF_ERROR(place.CheckOnly({"gpus", "driver_version", "cuda_version",
                                   "nccl_version", "nccl_environment", "fabric",
                                   "peer_access", "nvlinks", "facts"}));
  ASSIGN_OR_RETURN(const JsonPlace list, place.At("gpus"));
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> gpus, list.Elements());
  for (const JsonPlace& gpu : gpus) {
    RETURN_IF_ERROR(ReadGpu(gpu, &fingerprint->gpus.emplace_back()));
  }
  RETURN_IF_ERROR(
      ReadText(place, "driver_version", &fingerprint->driver_version));
  RETURN_IF_ERROR(ReadText(place, "cuda_version", &fingerprint->cuda_version));
  RETURN_IF_ERROR(ReadText(place, "nccl_version", &fingerprint->nccl_version));
  RETURN_IF_ERROR(
      ReadStrings(place, "nccl_environment", &fingerprint->nccl_environment));
  RETURN_IF_ERROR(ReadText(place, "fabric", &fingerprint->fabric));
  RETURN_IF_ERROR(
      ReadMatrix(place, "peer_access", 1, &fingerprint->peer_access));
  RETURN_IF_ERROR(ReadMatrix(place, "nvlinks", std::numeric_limits<int>::max(),
                             &fingerprint->nvlinks));
  return ReadStrings(place, "facts", &fingerprint->facts);
}

absl::StatusOr<Measurement> ReadShared(const JsonPlace& place) {
  Measurement shared;
  Statistics& statistics = shared.statistics;
  RETURN_IF_ERROR(ReadText(place, "source", &shared.source));
  RETURN_IF_ERROR(ReadText(place, "fingerprint_id", &shared.fingerprint_id));
  RETURN_IF_ERROR(
      ReadText(place, "discard_reason", &statistics.discard_reason));
  RETURN_IF_ERROR(ReadTime(place, "start_time", &shared.start_time));
  if (place.Has("origin")) {
    ASSIGN_OR_RETURN(const JsonPlace origin, place.At("origin"));
    ASSIGN_OR_RETURN(const std::string text, origin.String());
    absl::StatusOr<Origin> parsed = ParseOrigin(text);
    if (!parsed.ok()) return origin.Annotate(parsed.status());
    shared.origin = *parsed;
  }
  if (place.Has("stop_reason")) {
    ASSIGN_OR_RETURN(const JsonPlace reason, place.At("stop_reason"));
    ASSIGN_OR_RETURN(const std::string text, reason.String());
    absl::StatusOr<StopReason> parsed = ParseStopReason(text);
    if (!parsed.ok()) return reason.Annotate(parsed.status());
    statistics.stop_reason = *parsed;
  }
  if (place.Has("verified")) {
    ASSIGN_OR_RETURN(const JsonPlace verified, place.At("verified"));
    ASSIGN_OR_RETURN(statistics.verified, verified.Bool());
  }
  return shared;
}

absl::StatusOr<std::vector<const Column*>> ReadColumns(const JsonPlace& place) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, place.Strings());
  std::vector<const Column*> columns;
  for (size_t i = 1; i < names.size(); ++i) {
    const auto column = std::find_if(
        std::begin(kColumns), std::end(kColumns),
        [&](const Column& candidate) { return candidate.name == names[i]; });
    if (column == std::end(kColumns) ||
        std::find(columns.begin(), columns.end(), column) != columns.end()) {
      columns.clear();
      break;
    }
    columns.push_back(column);
  }
  const bool has_median =
      std::find(columns.begin(), columns.end(), kColumns) != columns.end();
  if (!names.empty() && names[0] == "*" && has_median) return columns;
  return place.Refuse(absl::StrCat(
      "'*', then 'median_seconds' and each at most once of ",
      absl::StrJoin(kColumns, ", ", [](std::string* out, const Column& c) {
        absl::StrAppend(out, c.name);
      })));
}

absl::Status ReadPoint(const JsonPlace& place, const std::string& pattern,
                       const std::vector<const Column*>& columns,
                       Measurement* measurement) {
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> cells, place.Elements());
  if (cells.size() != columns.size() + 1) {
    return place.Refuse(
        absl::StrCat(columns.size() + 1, " numbers, one a column"));
  }
  const bool swept = absl::StrContains(pattern, "*");
  ASSIGN_OR_RETURN(const int64_t size,
                   cells[0].Int(0, swept ? kMaxKeySize : 0));
  absl::StatusOr<MeasurementKey> key = ParseMeasurementKey(
      absl::StrReplaceAll(pattern, {{"*", absl::StrCat(size)}}));
  if (!key.ok()) return place.Annotate(key.status());
  measurement->key = *std::move(key);
  for (size_t i = 0; i < columns.size(); ++i) {
    const JsonPlace& cell = cells[i + 1];
    if (cell.IsNull() && columns[i]->absent <= 0) continue;
    double value = 0;
    if (columns[i]->whole) {
      ASSIGN_OR_RETURN(const int64_t whole, cell.Int(0, kMaxKeySize));
      value = static_cast<double>(whole);
    } else {
      ASSIGN_OR_RETURN(value, cell.Number());
      if (!(value >= 0)) return cell.Refuse("0 or more");
    }
    columns[i]->set(*measurement, value);
  }
  if (measurement->start_time >= EndOfTimes()) {
    return place.Refuse("a time before the year 10000");
  }
  return place.Annotate(Validate(*measurement));
}

absl::Status ReadGroup(const JsonPlace& place,
                       std::vector<Measurement>* measurements) {
  RETURN_IF_ERROR(place.CheckOnly({"key", "source", "origin", "fingerprint_id",
                                   "start_time", "stop_reason", "verified",
                                   "discard_reason", "columns", "points"}));
  ASSIGN_OR_RETURN(const JsonPlace key, place.At("key"));
  ASSIGN_OR_RETURN(const std::string pattern, key.String());
  if (std::count(pattern.begin(), pattern.end(), '*') > 1) {
    return key.Refuse("at most one *");
  }
  ASSIGN_OR_RETURN(const Measurement shared, ReadShared(place));
  ASSIGN_OR_RETURN(const JsonPlace columns_place, place.At("columns"));
  ASSIGN_OR_RETURN(const std::vector<const Column*> columns,
                   ReadColumns(columns_place));
  ASSIGN_OR_RETURN(const JsonPlace points_place, place.At("points"));
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> points,
                   points_place.Elements());
  for (const JsonPlace& point : points) {
    Measurement measurement = shared;
    RETURN_IF_ERROR(ReadPoint(point, pattern, columns, &measurement));
    measurements->push_back(std::move(measurement));
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(const JsonPlace& document) {
  ASSIGN_OR_RETURN(const JsonPlace format, document.At("format"));
  ASSIGN_OR_RETURN(const std::string format_name, format.String());
  if (format_name != kProfileFormat) return format.Refuse(kProfileFormat);
  ASSIGN_OR_RETURN(const JsonPlace version, document.At("version"));
  ASSIGN_OR_RETURN(const int64_t number,
                   version.Int(1, std::numeric_limits<int64_t>::max()));
  if (number <= kProfileVersion) return absl::OkStatus();
  return version.Annotate(absl::FailedPreconditionError(
      absl::StrCat("the file is of version ", number,
                   "; this program reads up to ", kProfileVersion,
                   ": update it, or export the profile with an older one")));
}

}  // namespace

std::string WriteProfile(const ProfileData& data) {
  Members members;
  members.Add("format", Quote(kProfileFormat));
  members.Add("version", absl::StrCat(kProfileVersion));
  members.Add("name", Quote(data.name));
  members.Add("as_of", Quote(TimeText(data.as_of)));
  members.Add("fingerprint", Text(data.fingerprint));
  if (!data.notes.empty()) members.Add("notes", Strings(data.notes));
  members.Add("measurements", GroupsText(data.measurements));
  return absl::StrCat(members.Join(",\n"), "\n");
}

absl::StatusOr<ProfileData> ReadProfile(const std::string& name,
                                        absl::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json,
                   ParseJsonObject(name, text, kMaxProfileBytes));
  const JsonPlace document(json, name, "");
  RETURN_IF_ERROR(CheckVersion(document));
  RETURN_IF_ERROR(document.CheckOnly({"format", "version", "name", "as_of",
                                      "fingerprint", "notes", "measurements"}));
  ProfileData data;
  ASSIGN_OR_RETURN(const JsonPlace name_place, document.At("name"));
  ASSIGN_OR_RETURN(data.name, name_place.String());
  RETURN_IF_ERROR(ReadTime(document, "as_of", &data.as_of));
  ASSIGN_OR_RETURN(const JsonPlace fingerprint, document.At("fingerprint"));
  RETURN_IF_ERROR(ReadFingerprint(fingerprint, &data.fingerprint));
  RETURN_IF_ERROR(ReadStrings(document, "notes", &data.notes));
  ASSIGN_OR_RETURN(const JsonPlace list, document.At("measurements"));
  ASSIGN_OR_RETURN(const std::vector<JsonPlace> groups, list.Elements());
  for (const JsonPlace& group : groups) {
    RETURN_IF_ERROR(ReadGroup(group, &data.measurements));
  }
  return data;
}

}  // namespace fabricwise
