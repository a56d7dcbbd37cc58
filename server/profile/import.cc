// SPDX-License-Identifier: Apache-2.0
#include "server/profile/import.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/imported.h"
#include "server/profile/profile_file.h"
#include "server/profile/swept_key.h"

namespace fabricwise {
namespace {

std::string BaseName(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// How far into a JSON file its format is looked for: it is the first member.
constexpr size_t kFormatWithinBytes = 256;

absl::StatusOr<Imported> ImportProfile(const std::string& name,
                                       const std::string& content) {
  ASSIGN_OR_RETURN(ProfileData data, ReadProfile(name, content));
  Imported imported;
  imported.measurements = std::move(data.measurements);
  for (const std::string& note : data.notes) {
    imported.notes.push_back(absl::StrCat(name, ": ", note));
  }
  imported.end_time = data.as_of;
  imported.nccl_version = data.fingerprint.nccl_version;
  if (!data.fingerprint.nccl_environment.empty()) {
    imported.nccl_environment = data.fingerprint.nccl_environment;
  }
  imported.fingerprint = std::move(data.fingerprint);
  return imported;
}

absl::StatusOr<Imported> ImportOne(const std::string& name,
                                   const std::string& content,
                                   const ImportHints& hints) {
  if (content.size() > kMaxImportBytes) {
    return NotAllowed(absl::StrCat(name, ": its length"),
                      absl::StrCat(content.size(), " bytes"),
                      absl::StrCat("at most ", kMaxImportBytes));
  }
  // A byte order mark, as some editors and spreadsheets put before UTF-8.
  constexpr absl::string_view kMark = "\xEF\xBB\xBF";
  if (absl::StartsWith(content, kMark)) {
    return ImportOne(name, content.substr(kMark.size()), hints);
  }
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(content);
  if (text.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": is empty"));
  }
  if (text.front() == '{') {
    return absl::StrContains(text.substr(0, kFormatWithinBytes), kProfileFormat)
               ? ImportProfile(name, content)
               : ImportNcclTestsJson(name, content);
  }
  if (LooksLikeNcclTestsText(content)) {
    return ImportNcclTestsText(name, content, hints);
  }
  return ImportCsv(name, content, hints);
}

bool OnThisNode(const Imported& imported) {
  return std::any_of(
      imported.measurements.begin(), imported.measurements.end(),
      [](const Measurement& m) { return m.origin == Origin::kMeasured; });
}

// Takes `found` for a fact that nobody stated; refuses one that contradicts.
template <typename T>
absl::Status Settle(absl::string_view what, const std::string& name,
                    const T& found, const T& none, T* known,
                    std::string (*text)(const T&)) {
  if (found == none || found == *known) return absl::OkStatus();
  if (*known != none) {
    return NotAllowed(absl::StrCat(name, ": ", what), text(found),
                      absl::StrCat(text(*known), ", that of the profile"));
  }
  *known = found;
  return absl::OkStatus();
}

std::string ItsQuote(const std::string& text) { return Quoted(text); }

// The GPUs' name and count must agree with the fingerprint's, or fill it.
absl::Status SettleGpus(const std::string& name, const Imported& imported,
                        Fingerprint* fingerprint) {
  if (imported.gpu_name.empty()) return absl::OkStatus();
  if (fingerprint->gpus.empty()) {
    fingerprint->gpus.assign(static_cast<size_t>(imported.gpu_count),
                             Gpu{.name = imported.gpu_name});
  }
  for (Gpu& gpu : fingerprint->gpus) {
    RETURN_IF_ERROR(Settle<std::string>("the GPU", name, imported.gpu_name, "",
                                        &gpu.name, ItsQuote));
  }
  return absl::OkStatus();
}

template <typename T>
std::string Rows(const std::vector<std::vector<T>>& matrix) {
  return Quoted(absl::StrJoin(matrix, "; ",
                              [](std::string* out, const std::vector<T>& row) {
                                absl::StrAppend(out, absl::StrJoin(row, " "));
                              }));
}

std::string Words(const std::vector<std::string>& words) {
  return Quoted(absl::StrJoin(words, " "));
}

// The GPUs of a profile file's node: as many, and of that name. `stated`: those
// known are the caller's word, not another file's, which may tell of a group of
// them alone.
absl::Status SettleGpus(const std::string& name, const std::vector<Gpu>& found,
                        bool stated, std::vector<Gpu>* known) {
  if (found.empty()) return absl::OkStatus();
  if (stated && found.size() != known->size()) {
    return NotAllowed("gpus", absl::StrCat(known->size()),
                      absl::StrCat(found.size(), ", those of ", name));
  }
  if (found.size() < known->size()) {
    return NotAllowed(absl::StrCat(name, ": the number of GPUs"),
                      absl::StrCat(found.size()),
                      absl::StrCat(known->size(), ", that of the profile"));
  }
  known->resize(found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    Gpu& gpu = (*known)[i];
    RETURN_IF_ERROR(Settle<std::string>("the GPU", name, found[i].name, "",
                                        &gpu.name, ItsQuote));
    if (gpu.uuid.empty()) gpu.uuid = found[i].uuid;
    if (gpu.memory_bytes == 0) gpu.memory_bytes = found[i].memory_bytes;
    if (gpu.compute_capability == 0) {
      gpu.compute_capability = found[i].compute_capability;
    }
  }
  return absl::OkStatus();
}

// What only a profile file tells of its node.
absl::Status SettleNode(const std::string& name, const Fingerprint& found,
                        bool gpus_stated, Fingerprint* known) {
  RETURN_IF_ERROR(SettleGpus(name, found.gpus, gpus_stated, &known->gpus));
  const auto text = [&](absl::string_view what, const std::string& value,
                        std::string* place) {
    return Settle<std::string>(what, name, value, "", place, ItsQuote);
  };
  RETURN_IF_ERROR(
      text("the driver", found.driver_version, &known->driver_version));
  RETURN_IF_ERROR(text("CUDA", found.cuda_version, &known->cuda_version));
  RETURN_IF_ERROR(text("the fabric", found.fabric, &known->fabric));
  RETURN_IF_ERROR(Settle<std::vector<std::vector<bool>>>(
      "peer access", name, found.peer_access, {}, &known->peer_access, Rows));
  RETURN_IF_ERROR(Settle<std::vector<std::vector<int>>>(
      "the count of NVLinks", name, found.nvlinks, {}, &known->nvlinks, Rows));
  return Settle<std::vector<std::string>>("what was seen", name, found.facts,
                                          {}, &known->facts, Words);
}

// What the caller said of the node.
struct Stated {
  bool gpus = false;
  bool environment = false;
};

absl::Status SettleFacts(const std::string& name, const Imported& imported,
                         const Stated& stated, Fingerprint* fingerprint,
                         bool* environment_known) {
  RETURN_IF_ERROR(SettleGpus(name, imported, fingerprint));
  if (imported.fingerprint.has_value()) {
    RETURN_IF_ERROR(
        SettleNode(name, *imported.fingerprint, stated.gpus, fingerprint));
  }
  RETURN_IF_ERROR(Settle<std::string>("NCCL's version", name,
                                      imported.nccl_version, "",
                                      &fingerprint->nccl_version, ItsQuote));
  if (!imported.nccl_environment.has_value()) return absl::OkStatus();
  // No variable set is a fact too, once a file or the caller has said so.
  if (!stated.environment && !*environment_known) {
    fingerprint->nccl_environment = *imported.nccl_environment;
    *environment_known = true;
    return absl::OkStatus();
  }
  if (*imported.nccl_environment == fingerprint->nccl_environment) {
    return absl::OkStatus();
  }
  return NotAllowed(
      absl::StrCat(name, ": NCCL's environment"),
      Quoted(absl::StrJoin(*imported.nccl_environment, " ")),
      absl::StrCat(Quoted(absl::StrJoin(fingerprint->nccl_environment, " ")),
                   ", that of the profile"));
}

int GroupSize(const MeasurementKey& key) {
  if (const auto* collective = std::get_if<CollectiveKey>(&key)) {
    return collective->group.size;
  }
  if (const auto* exchange = std::get_if<ExchangeKey>(&key)) {
    return exchange->group.size;
  }
  return 1;
}

}  // namespace

absl::StatusOr<ProfileData> AssembleProfile(
    const ImportOptions& options, const std::vector<ImportFile>& files) {
  if (options.name.empty()) {
    return NotAllowed("name", "''", "the name of the profile");
  }
  if (files.empty()) return NotAllowed("files", "empty", "at least one");

  ProfileData data;
  data.name = options.name;
  data.fingerprint = options.fingerprint;
  data.notes = options.notes;
  data.as_of = options.time;
  std::sort(data.fingerprint.nccl_environment.begin(),
            data.fingerprint.nccl_environment.end());
  const Stated stated = {
      .gpus = !options.fingerprint.gpus.empty(),
      .environment = !options.fingerprint.nccl_environment.empty()};
  bool environment_known = false;
  const ImportHints hints{.op = options.op,
                          .system = options.system,
                          .int4_group_size = options.int4_group_size};
  for (const ImportFile& file : files) {
    const std::string name = BaseName(file.name);
    ASSIGN_OR_RETURN(Imported imported, ImportOne(name, file.content, hints));
    for (Measurement& measurement : imported.measurements) {
      if (options.origin.has_value()) measurement.origin = *options.origin;
      if (measurement.start_time == absl::UnixEpoch()) {
        measurement.start_time = options.time;
      }
      data.as_of = std::max(data.as_of, measurement.start_time);
    }
    if (imported.end_time.has_value()) {
      data.as_of = std::max(data.as_of, *imported.end_time);
    }
    if (OnThisNode(imported)) {
      RETURN_IF_ERROR(SettleFacts(name, imported, stated, &data.fingerprint,
                                  &environment_known));
    }
    data.notes.insert(data.notes.end(), imported.notes.begin(),
                      imported.notes.end());
    std::move(imported.measurements.begin(), imported.measurements.end(),
              std::back_inserter(data.measurements));
  }

  const auto gpus = static_cast<int64_t>(data.fingerprint.gpus.size());
  const std::string fingerprint_id = FingerprintId(data.fingerprint);
  for (Measurement& measurement : data.measurements) {
    RETURN_IF_ERROR(Validate(measurement));
    if (measurement.origin != Origin::kMeasured) continue;
    if (gpus > 0) {
      RETURN_IF_ERROR(
          CheckRange(absl::StrCat(measurement.source, ": ",
                                  ToString(measurement.key), ": the group"),
                     int64_t{GroupSize(measurement.key)}, int64_t{1}, gpus));
    }
    measurement.fingerprint_id = fingerprint_id;
  }
  // In order of curves, so that a file of them is small and diffs well.
  std::vector<std::pair<SweptKey, size_t>> order;
  for (size_t i = 0; i < data.measurements.size(); ++i) {
    order.emplace_back(SplitSweptSize(data.measurements[i].key), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<Measurement> sorted;
  sorted.reserve(order.size());
  for (const auto& [key, index] : order) {
    sorted.push_back(std::move(data.measurements[index]));
  }
  data.measurements = std::move(sorted);
  return data;
}

}  // namespace fabricwise
