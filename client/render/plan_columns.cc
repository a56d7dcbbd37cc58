// SPDX-License-Identifier: Apache-2.0
#include "client/render/plan_columns.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/text.h"
#include "client/render/words.h"

namespace fabricwise {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr size_t kLabelColumns = 14;  // before what is said under a table

std::string MemoryCell(const v1::MemoryUse& memory) {
  double used = static_cast<double>(memory.weights_bytes()) +
                static_cast<double>(memory.kv_cache_bytes()) +
                static_cast<double>(memory.activation_bytes()) +
                static_cast<double>(memory.communicator_bytes());
  if (used <= 0) return "";
  std::string text = FormatNumber(used / kGib);
  if (memory.available_bytes() > 0) {
    absl::StrAppend(
        &text, " / ",
        FormatNumber(static_cast<double>(memory.available_bytes()) / kGib));
  }
  return text;
}

std::string In(TimeUnit unit, double seconds) {
  return FormatNumber(seconds / unit.seconds);
}

// The smallest positive value of `get` over `plans`, for a column's unit.
template <typename Get>
double Smallest(const std::vector<const v1::PlanAdvice*>& plans, Get get) {
  double smallest = std::numeric_limits<double>::infinity();
  for (const v1::PlanAdvice* plan : plans) {
    double value = get(*plan);
    if (value > 0) smallest = std::min(smallest, value);
  }
  return smallest;
}

}  // namespace

std::string Dot(const Style& style) { return style.unicode ? " · " : ", "; }
std::string Dash(const Style& style) { return style.unicode ? "–" : "-"; }
std::string AtMost(const Style& style) { return style.unicode ? "≤ " : "<= "; }
std::string AtLeast(const Style& style) { return style.unicode ? "≥ " : ">= "; }

std::string Heading(const Style& style, const std::string& model,
                    const std::string& load) {
  std::string name = Printable(model.empty() ? "model" : model);
  std::string out;
  for (const std::string& line :
       Wrapped(absl::StrCat(name, Dot(style), load),
               style.width > 0 ? style.width - 1 : 0)) {
    bool first = out.empty();
    std::string text = line;
    if (first && absl::StartsWith(line, name)) {
      text = absl::StrCat(Painted(style, Paint::kBold, name),
                          line.substr(name.size()));
    }
    absl::StrAppend(&out, " ", text, "\n");
  }
  return out;
}

Kind KindOf(const v1::RecommendParallelismRequest& question) {
  return {question.objective() == v1::OBJECTIVE_LATENCY,
          question.workload().phase() == v1::PHASE_PREFILL,
          question.cost_scope() == v1::COST_SCOPE_COMMUNICATION};
}

std::string ModeCell(const v1::PlanAdvice& plan) {
  return absl::StrCat(Printable(plan.plan().mode()),
                      plan.caveat().empty() ? "" : " ?");
}

bool IsBound(const v1::PlanAdvice& plan) {
  return plan.has_interval() && !plan.interval().has_tpot_low_seconds();
}

std::string RenderUpperBounds(const Style& style,
                              const std::vector<const v1::PlanAdvice*>& plans) {
  if (std::none_of(plans.begin(), plans.end(),
                   [](const auto* plan) { return IsBound(*plan); })) {
    return "";
  }
  std::map<std::string, std::vector<std::string>> names;  // by note
  for (const v1::PlanAdvice* plan : plans) {
    for (const v1::Term& term : plan->terms()) {
      if (!term.upper_bound()) continue;
      std::vector<std::string>& of_note = names[Printable(term.note())];
      std::string name = Printable(term.name());
      if (std::find(of_note.begin(), of_note.end(), name) == of_note.end()) {
        of_note.push_back(std::move(name));
      }
    }
  }
  std::string first = absl::StrCat(" ", AtMost(style), AtLeast(style));
  first.append(kLabelColumns - static_cast<size_t>(DisplayWidth(first)), ' ');
  std::string out = Paragraph(
      style, first,
      "times are at most, tok/s at least what is shown: parts of a step are "
      "upper bounds",
      Paint::kWarn);
  const std::string label(kLabelColumns, ' ');
  for (const auto& [note, terms] : names) {
    absl::StrAppend(
        &out, Paragraph(style, label,
                        absl::StrCat(absl::StrJoin(terms, ", "), ": ", note),
                        Paint::kWarn));
  }
  return out;
}

std::string RenderCaveats(const Style& style,
                          const std::vector<const v1::PlanAdvice*>& plans) {
  std::string out;
  std::string first = " ? in doubt   ";
  std::set<v1::Engine> said;
  for (const v1::PlanAdvice* plan : plans) {
    if (plan->caveat().empty() || !said.insert(plan->engine()).second) continue;
    absl::StrAppend(&out, Paragraph(style, first,
                                    absl::StrCat(Words(plan->engine()), ": ",
                                                 Printable(plan->caveat())),
                                    Paint::kWarn));
    first.assign(first.size(), ' ');
  }
  return out;
}

std::string VersusFirst(const Kind& kind, const v1::PlanAdvice& plan,
                        const v1::PlanAdvice& first) {
  if (kind.communication && kind.prefill) {
    return FormatChange(plan.ttft_seconds() / first.ttft_seconds() - 1);
  }
  return FormatChange(kind.by_time()
                          ? plan.tpot_seconds() / first.tpot_seconds() - 1
                          : plan.output_tokens_per_second() /
                                    first.output_tokens_per_second() -
                                1);
}

PlanColumns::PlanColumns(const Kind& kind,
                         const std::vector<const v1::PlanAdvice*>& plans)
    : kind_(kind),
      tpot_(TimeUnitFor(
          Smallest(plans, [](const auto& p) { return p.tpot_seconds(); }))),
      ttft_(TimeUnitFor(
          Smallest(plans, [](const auto& p) { return p.ttft_seconds(); }))) {}

void PlanColumns::AddTo(std::vector<Column>* columns) const {
  columns->push_back({"GPUs", Align::kRight});
  if (!kind_.communication) {
    columns->push_back(
        {kind_.prefill ? "prompt tok/s" : "tok/s", Align::kRight});
  }
  columns->push_back(
      {absl::StrCat(kind_.communication ? "comm/step " : "TPOT ", tpot_.name),
       Align::kRight});
  columns->push_back({"90 %", Align::kRight, 3});
  columns->push_back(
      {absl::StrCat(kind_.communication ? "comm/prompt " : "TTFT ", ttft_.name),
       Align::kRight, 2});
  columns->push_back({"GiB/GPU", Align::kRight, 1});
}

void PlanColumns::AddTo(const Style& style, const v1::PlanAdvice& plan,
                        Paint paint, std::vector<Cell>* row) const {
  row->push_back({absl::StrCat(plan.plan().gpus()), paint});
  const bool bound = IsBound(plan);
  if (!kind_.communication) {
    row->push_back({absl::StrCat(bound ? AtLeast(style) : "",
                                 FormatNumber(plan.output_tokens_per_second())),
                    paint});
  }
  const auto time = [&](TimeUnit unit, double seconds) {
    return absl::StrCat(bound ? AtMost(style) : "", In(unit, seconds));
  };
  // A step without collectives takes 0 of them.
  const bool has_tpot =
      plan.tpot_seconds() > 0 || (kind_.communication && !kind_.prefill);
  row->push_back({has_tpot ? time(tpot_, plan.tpot_seconds()) : "", paint});
  const v1::Interval& interval = plan.interval();
  row->push_back(
      {has_tpot && interval.tpot_high_seconds() > 0
           ? absl::StrCat(
                 interval.has_tpot_low_seconds()
                     ? absl::StrCat(In(tpot_, interval.tpot_low_seconds()),
                                    Dash(style))
                     : AtMost(style),
                 In(tpot_, interval.tpot_high_seconds()))
           : "",
       Paint::kDim});
  row->push_back(
      {plan.has_ttft_seconds() ? time(ttft_, plan.ttft_seconds()) : "", paint});
  const v1::MemoryUse& memory = plan.memory();
  bool over = memory.available_bytes() > 0 && !memory.fits();
  row->push_back({absl::StrCat(MemoryCell(memory), over ? " !" : ""),
                  over ? Paint::kBad : paint});
}

}  // namespace fabricwise
