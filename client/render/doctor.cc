// SPDX-License-Identifier: Apache-2.0
#include "client/render/doctor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "client/render/words.h"
#include "server/domain/measurement.h"

namespace fabricwise {
namespace {

constexpr size_t kNamesShown = 6;

// A full measurement is due once a day: two that did not happen are worth a
// word.
constexpr absl::Duration kStale = absl::Hours(48);

Check CheckAge(const v1::NodeProfile& profile, absl::Time now) {
  absl::Time as_of = TimeOf(profile.as_of_time());
  std::string words = absl::StrCat(Printable(profile.name()), ", measured ",
                                   FormatAge(as_of, now));
  if (as_of == absl::UnixEpoch()) {
    return {Finding::kWorthKnowing, "age",
            absl::StrCat(words, ": whether it still holds cannot be told")};
  }
  if (now - as_of > kStale) {
    return {Finding::kWorthKnowing, "age",
            absl::StrCat(words, ": measure again")};
  }
  return {Finding::kGood, "age", words};
}

Check CheckNode(const v1::Fingerprint& node) {
  std::set<std::string> names;
  bool memory_known = node.gpus_size() > 0;
  for (const v1::Gpu& gpu : node.gpus()) {
    names.insert(gpu.name());
    memory_known &= gpu.memory_bytes() > 0;
  }
  std::string words = absl::StrCat(node.gpus_size(), "x ",
                                   Printable(absl::StrJoin(names, " and ")));
  if (!memory_known) {
    return {Finding::kWorthKnowing, "node",
            absl::StrCat(words,
                         ", memory not known: no plan is ruled out for "
                         "want of it")};
  }
  if (names.size() > 1) {
    return {Finding::kWorthKnowing, "node",
            absl::StrCat(words, ": GPUs differ, the slowest sets the pace")};
  }
  return {Finding::kGood, "node", words};
}

Check CheckCollectives(const v1::NodeProfile& profile) {
  std::set<std::string> keys;
  for (const v1::Curve& curve : profile.curves()) keys.insert(curve.key());
  std::vector<std::string> missing;
  int measured = 0;
  int gpus = profile.fingerprint().gpus_size();
  for (CollectiveOp op : {CollectiveOp::kAllReduce, CollectiveOp::kAllGather,
                          CollectiveOp::kReduceScatter, CollectiveOp::kAllToAll,
                          CollectiveOp::kSendRecv}) {
    // Stages of a pipeline pass on between two GPUs, however many there are.
    int largest = op == CollectiveOp::kSendRecv ? std::min(gpus, 2) : gpus;
    for (int group = 2; group <= largest; group *= 2) {
      std::string stem = absl::StrCat(ToString(op), "/n", group);
      // Of any implementation and any members, in a CUDA graph: what a decode
      // step runs.
      bool found = std::any_of(keys.begin(), keys.end(), [&](const auto& key) {
        return absl::StartsWith(key, stem) &&
               (key[stem.size()] == '/' || key[stem.size()] == '[') &&
               absl::StrContains(key, "/graph");
      });
      if (found) {
        ++measured;
      } else {
        missing.push_back(stem);
      }
    }
  }
  if (gpus < 2) {
    return {Finding::kGood, "collectives", "none needed on one GPU"};
  }
  if (missing.empty()) {
    return {Finding::kGood, "collectives",
            absl::StrCat("all ", measured, " measured in CUDA graphs")};
  }
  return {Finding::kBad, "collectives",
          absl::StrCat(
              "not measured in CUDA graphs: ", JoinSome(missing, kNamesShown),
              "; plans that need them are not answerable")};
}

struct Family {
  absl::string_view name;  // how its tables' names begin
  Finding without;
  absl::string_view words;  // what is so without it
};

constexpr Family kFamilies[] = {
    {"gemm", Finding::kBad, "no step can be answered"},
    {"experts", Finding::kBad, "no model with experts can be answered"},
    {"attention", Finding::kWorthKnowing,
     "the time to read the KV cache stands in"},
    {"memory read", Finding::kBad,
     "attention cannot be answered unless it was measured itself"},
    {"launch", Finding::kBad, "small kernels cannot be answered"},
};

std::vector<Check> CheckTables(const v1::NodeProfile& profile) {
  std::vector<Check> checks;
  for (const Family& family : kFamilies) {
    std::vector<std::string> found;
    for (const v1::TableSummary& table : profile.tables()) {
      if (absl::StartsWith(table.name(), std::string(family.name))) {
        found.push_back(absl::StrCat(Printable(table.name()), " (",
                                     FormatCount(table.point_count()), ")"));
      }
    }
    checks.push_back(found.empty()
                         ? Check{family.without, std::string(family.name),
                                 absl::StrCat("not measured: ", family.words)}
                         : Check{Finding::kGood, std::string(family.name),
                                 absl::StrJoin(found, ", ")});
  }
  return checks;
}

}  // namespace

std::vector<Check> CheckDaemon(const v1::GetStatusResponse& status,
                               absl::Time now) {
  std::vector<Check> checks;
  checks.push_back(
      {Finding::kGood, "daemon",
       absl::StrCat("fabricwised ", Printable(status.version()), ", started ",
                    FormatAge(TimeOf(status.start_time()), now))});
  if (!status.serving()) {
    checks.push_back(
        {Finding::kBad, "advice",
         absl::StrCat("cannot be given: ", Printable(status.reason()))});
  }
  if (status.worker_installed()) {
    checks.push_back(
        {Finding::kGood, "worker",
         absl::StrCat("installed, ", Printable(status.scheduler_state()),
                      status.scheduler_detail().empty() ? "" : ": ",
                      Printable(status.scheduler_detail()))});
    if (status.serving() && !status.node_fingerprint().empty() &&
        status.node_fingerprint() != status.fingerprint()) {
      checks.push_back({Finding::kWorthKnowing, "profile",
                        "the one in use is not of this node as it is now; "
                        "`fabricwise measure` makes one"});
    }
  } else {
    checks.push_back({Finding::kWorthKnowing, "worker",
                      "none installed: this node is not measured, profiles "
                      "can be imported"});
  }
  return checks;
}

std::vector<Check> CheckNode(const v1::DiagnoseNodeResponse& diagnosis,
                             absl::Time now) {
  const v1::Fingerprint& node = diagnosis.fingerprint();
  std::vector<Check> checks;
  checks.push_back(
      {Finding::kGood, "hardware",
       absl::StrCat(node.gpus_size(), "x ",
                    Printable(node.gpus_size() > 0 ? node.gpus(0).name() : ""),
                    ", ", Printable(node.fabric()), ", looked at ",
                    FormatAge(TimeOf(diagnosis.probe_time()), now))});
  for (const v1::NodeFinding& finding : diagnosis.findings()) {
    std::string words = absl::StrCat(Printable(finding.subject()), ": ",
                                     Printable(finding.detail()));
    if (!finding.remedy().empty()) {
      absl::StrAppend(&words, ". Remedy: ", Printable(finding.remedy()));
    }
    checks.push_back({finding.severity() == v1::FINDING_SEVERITY_ERROR
                          ? Finding::kBad
                          : Finding::kWorthKnowing,
                      "hardware", std::move(words)});
  }
  return checks;
}

std::vector<Check> CheckProfile(const v1::NodeProfile& profile,
                                absl::Time now) {
  std::vector<Check> checks = {CheckAge(profile, now),
                               CheckNode(profile.fingerprint()),
                               CheckCollectives(profile)};
  for (Check& check : CheckTables(profile)) {
    checks.push_back(std::move(check));
  }
  std::vector<std::string> reference, cliffs;
  for (const v1::Curve& curve : profile.curves()) {
    if (curve.basis() == v1::BASIS_REFERENCE) {
      reference.push_back(Printable(curve.key()));
    }
    if (curve.cliffs_size() > 0) cliffs.push_back(Printable(curve.key()));
  }
  if (!reference.empty()) {
    checks.push_back({Finding::kWorthKnowing, "origin",
                      absl::StrCat("from another node of this kind: ",
                                   JoinSome(reference, kNamesShown))});
  }
  if (!cliffs.empty()) {
    checks.push_back({Finding::kWorthKnowing, "cliffs",
                      absl::StrCat("on ", JoinSome(cliffs, kNamesShown),
                                   "; `fabricwise curves KEY` draws one")});
  }
  return checks;
}

std::string RenderChecks(const Style& style, const std::vector<Check>& checks) {
  std::string out;
  for (const Check& check : checks) {
    absl::string_view mark;
    Paint paint = Paint::kNone;
    switch (check.finding) {
      case Finding::kGood:
        mark = style.unicode ? "✓" : "ok  ";
        paint = Paint::kGood;
        break;
      case Finding::kWorthKnowing:
        mark = style.unicode ? "!" : "note";
        paint = Paint::kWarn;
        break;
      case Finding::kBad:
        mark = style.unicode ? "✗" : "bad ";
        paint = Paint::kBad;
        break;
    }
    constexpr int kNameColumns = 13;
    absl::StrAppend(
        &out,
        Paragraph(style,
                  absl::StrCat(" ", mark, " ",
                               Padded(check.name, kNameColumns, Align::kLeft)),
                  check.words, paint));
  }
  return out;
}

}  // namespace fabricwise
