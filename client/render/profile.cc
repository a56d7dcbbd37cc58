// SPDX-License-Identifier: Apache-2.0
#include "client/render/profile.h"

#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "client/render/words.h"

namespace fabricwise {
namespace {

constexpr size_t kNamesShown = 8;

// "name         value" lines; lines without a value are left out.
class Facts {
 public:
  explicit Facts(const Style& style) : style_(style) {}

  void Add(absl::string_view name, const std::string& value,
           Paint paint = Paint::kNone) {
    if (value.empty()) return;
    constexpr int kNameColumns = 13;
    std::string lines = Paragraph(
        style_, absl::StrCat(" ", Padded(name, kNameColumns, Align::kLeft)),
        paint == Paint::kNone ? value : Painted(style_, paint, value),
        Paint::kDim);
    absl::StrAppend(&text_, lines);
  }
  const std::string& text() const { return text_; }

 private:
  const Style& style_;
  std::string text_;
};

std::string GpuWords(const v1::Fingerprint& node) {
  std::map<std::pair<std::string, int64_t>, int> counts;
  for (const v1::Gpu& gpu : node.gpus()) {
    ++counts[{gpu.name(), gpu.memory_bytes()}];
  }
  std::vector<std::string> words;
  for (const auto& [gpu, count] : counts) {
    words.push_back(absl::StrCat(
        count, "x ", Printable(gpu.first),
        gpu.second > 0
            ? absl::StrCat(", ", FormatBytes(static_cast<double>(gpu.second)))
            : ""));
  }
  return absl::StrJoin(words, "; ");
}

std::string Joined(const google::protobuf::RepeatedPtrField<std::string>& all) {
  return Printable(absl::StrJoin(all, ", "));
}

// A change under this is within what two runs of one node differ by.
constexpr double kNotable = 0.05;

Paint PaintOfChange(double change) {
  if (std::abs(change) < kNotable) return Paint::kDim;
  return change > 0 ? Paint::kBad : Paint::kGood;
}

std::string DescribeSide(const ProfileSide& side, absl::Time now) {
  return absl::StrCat(Printable(side.name), ", fingerprint ",
                      side.fingerprint_id, ", measured ",
                      FormatAge(side.as_of, now));
}

}  // namespace

std::string RenderProfile(const Style& style, const v1::NodeProfile& profile,
                          absl::Time now) {
  const v1::Fingerprint& node = profile.fingerprint();
  Facts facts(style);
  facts.Add("profile", Printable(profile.name()), Paint::kBold);
  facts.Add("node", GpuWords(node));
  facts.Add("fabric", Printable(node.fabric()));
  facts.Add("NCCL env", Joined(node.nccl_environment()));
  facts.Add("versions",
            Printable(absl::StrJoin(
                [&] {
                  std::vector<std::string> parts;
                  auto add = [&](absl::string_view name,
                                 const std::string& version) {
                    if (!version.empty()) {
                      parts.push_back(absl::StrCat(name, " ", version));
                    }
                  };
                  add("driver", node.driver_version());
                  add("CUDA", node.cuda_version());
                  add("NCCL", node.nccl_version());
                  return parts;
                }(),
                ", ")));
  facts.Add("facts", Joined(node.facts()));
  facts.Add("fingerprint", Printable(node.id()));
  absl::Time oldest = TimeOf(profile.oldest_curve_time());
  std::string age = FormatAge(TimeOf(profile.as_of_time()), now);
  if (oldest != absl::UnixEpoch() && FormatAge(oldest, now) != age) {
    absl::StrAppend(&age, ", oldest curve ", FormatAge(oldest, now));
  }
  facts.Add("measured", age);
  facts.Add(
      "holds",
      absl::StrCat(
          FormatCount(profile.measurement_count()), " measurements",
          profile.curves_size() > 0
              ? absl::StrCat(", ", profile.curves_size(),
                             profile.curves_size() == 1 ? " curve" : " curves")
              : ""));
  std::vector<std::string> tables;
  for (const v1::TableSummary& table : profile.tables()) {
    tables.push_back(absl::StrCat(Printable(table.name()), " (",
                                  FormatCount(table.point_count()), ")"));
  }
  facts.Add("tables", tables.empty()
                          ? "none: only communication can be answered"
                          : absl::StrJoin(tables, ", "));
  std::string first = "notes";
  for (const std::string& note : profile.notes()) {
    facts.Add(first, Printable(note));
    first = "";
  }
  return facts.text();
}

std::string RenderDiff(const Style& style, const ProfileDiff& diff,
                       absl::Time now) {
  Facts facts(style);
  facts.Add("from", DescribeSide(diff.first, now));
  facts.Add("to", DescribeSide(diff.second, now));
  std::string first = "node";
  for (const std::string& change : diff.node_changes) {
    facts.Add(first, Printable(change));
    first = "";
  }
  if (diff.node_changes.empty()) facts.Add("node", "the same");

  Table table({{"series", Align::kLeft, 0, true},
               {"compared", Align::kRight, 1},
               {"typical", Align::kRight},
               {"worst", Align::kRight},
               {"at", Align::kLeft, 2, true}});
  for (const SeriesDiff& series : diff.series) {
    if (series.compared == 0) {
      table.Add({{Printable(series.name)},
                 {"0"},
                 {"-"},
                 {"-"},
                 {"no size in common", Paint::kDim}});
      continue;
    }
    table.Add({{Printable(series.name)},
               {absl::StrCat(series.compared)},
               {FormatChange(series.typical_change),
                PaintOfChange(series.typical_change)},
               {FormatChange(series.worst_change),
                PaintOfChange(series.worst_change)},
               {series.worst_change == 0 ? "" : Printable(series.worst_at),
                Paint::kDim}});
  }
  std::string out = facts.text();
  std::string rendered = table.Render(style);
  absl::StrAppend(
      &out, "\n",
      rendered.empty() ? " nothing that both measured\n" : rendered);
  for (const auto& [label, names] :
       {std::pair{" only from    ", &diff.only_first},
        std::pair{" only to      ", &diff.only_second}}) {
    if (names->empty()) continue;
    absl::StrAppend(
        &out, Paragraph(style, label, Printable(JoinSome(*names, kNamesShown)),
                        Paint::kDim));
  }
  return out;
}

std::string RenderStatus(const Style& style, const std::string& target,
                         const v1::GetStatusResponse& status, absl::Time now) {
  Facts facts(style);
  facts.Add("daemon",
            absl::StrCat("fabricwised ", Printable(status.version()), " at ",
                         Printable(target), ", started ",
                         FormatAge(TimeOf(status.start_time()), now)));
  facts.Add("advice",
            status.serving()
                ? "can be given"
                : absl::StrCat("cannot be given: ", Printable(status.reason())),
            status.serving() ? Paint::kGood : Paint::kBad);
  if (!status.profile().empty()) {
    facts.Add("profile",
              absl::StrCat(Printable(status.profile()), ", fingerprint ",
                           Printable(status.fingerprint()), ", measured ",
                           FormatAge(TimeOf(status.as_of_time()), now)));
  }
  facts.Add("measuring",
            absl::StrCat(
                Printable(status.scheduler_state()),
                status.worker_installed() ? "" : " (no worker is installed)"));
  facts.Add(
      "store",
      absl::StrCat(FormatCount(status.measurement_count()), " measurements, ",
                   FormatCount(status.snapshot_count()),
                   status.snapshot_count() == 1 ? " profile taken into use"
                                                : " profiles taken into use"));
  return facts.text();
}

}  // namespace fabricwise
