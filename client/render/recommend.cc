// SPDX-License-Identifier: Apache-2.0
#include "client/render/recommend.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/render/plan_columns.h"
#include "client/render/plot.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "client/render/words.h"
#include "server/engines/launch.h"

namespace fabricwise {
namespace {

using Plans = google::protobuf::RepeatedPtrField<v1::PlanAdvice>;

constexpr int kPlansShown = 10;      // without --explain
constexpr size_t kGroupsShown = 4;   // of ruled-out or unanswered plans
constexpr size_t kModesShown = 6;    // of one such group
constexpr size_t kMissingShown = 2;  // measurements that a group waits for
constexpr int kPlansExplained = 2;
constexpr absl::string_view kTie = "a tie (within 1 %), where ";
constexpr absl::string_view kHeldFirst = "the best so far is held, then ";
constexpr absl::string_view kPreferred =
    "fewer GPUs, then the simpler plan go first";

template <typename List>
bool SeveralEngines(const List& plans) {
  return std::any_of(plans.begin(), plans.end(), [&](const auto& plan) {
    return plan.engine() != plans[0].engine();
  });
}

// The share of a step's time that is read from this node's curves: measured, or
// between two measured sizes, of the very work. "" where no terms are told.
std::string MeasuredShare(const v1::PlanAdvice& plan) {
  double total = 0, measured = 0;
  for (const v1::Term& term : plan.terms()) {
    total += term.seconds();
    if (term.note().empty() && (term.basis() == v1::BASIS_MEASURED ||
                                term.basis() == v1::BASIS_INTERPOLATED)) {
      measured += term.seconds();
    }
  }
  return total > 0 ? FormatPercent(measured / total) : "";
}

std::string PlanTable(const v1::RecommendParallelismRequest& question,
                      const Plans& plans, int shown,
                      const RenderOptions& options) {
  std::vector<const v1::PlanAdvice*> rows;
  for (int i = 0; i < shown; ++i) rows.push_back(&plans[i]);
  PlanColumns shared(KindOf(question), rows);
  // One plan of any engine, asked for alone, may be of each.
  bool engines =
      SeveralEngines(plans) || (question.max_plans() == 1 &&
                                question.engine() == v1::ENGINE_UNSPECIFIED);
  std::vector<Column> columns = {{"#", Align::kRight},
                                 {"mode", Align::kLeft, 0, true}};
  if (engines) columns.push_back({"engine", Align::kLeft});
  shared.AddTo(&columns);
  columns.push_back({"vs first", Align::kRight, 4});
  columns.push_back({"measured", Align::kRight, 5});
  columns.push_back({"", Align::kLeft, 6});

  double best = 0;
  for (const v1::PlanAdvice* plan : rows) {
    best = std::max(best, plan->output_tokens_per_second());
  }
  Table table(columns);
  for (int i = 0; i < shown; ++i) {
    const v1::PlanAdvice& plan = plans[i];
    bool missed = plan.misses_size() > 0;
    Paint paint = i == 0 ? Paint::kBold : missed ? Paint::kDim : Paint::kNone;
    std::vector<Cell> row = {{absl::StrCat(i + 1), Paint::kDim},
                             {absl::StrCat(ModeCell(plan), missed ? " *" : ""),
                              i == 0 ? Paint::kGood : paint}};
    if (engines) row.push_back({Words(plan.engine()), paint});
    shared.AddTo(options.style, plan, paint, &row);
    row.push_back({i == 0 ? "" : VersusFirst(shared.kind(), plan, plans[0]),
                   Paint::kDim});
    row.push_back({MeasuredShare(plan), Paint::kDim});
    constexpr int kBarColumns = 12;
    row.push_back(
        {options.style.unicode && !shared.kind().communication
             ? Bar(options.style, plan.output_tokens_per_second() / best,
                   kBarColumns)
             : "",
         i == 0 ? Paint::kGood : Paint::kDim});
    table.Add(std::move(row));
  }
  return table.Render(options.style);
}

// The bytes of `key` with every run of digits as one '#', so that refusals that
// differ in numbers alone fall together.
std::string WithoutNumbers(const std::string& key) {
  std::string out;
  for (char c : key) {
    bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && !out.empty() && out.back() == '#') continue;
    out += digit ? '#' : c;
  }
  return out;
}

struct Group {
  std::string reason;  // of its first plan
  bool alike = false;  // others' reasons differ in numbers
  std::vector<std::string> modes;
};

// "TP8", or of several engines "TP8 on vllm".
template <typename Plan>
std::string ModeOf(const google::protobuf::RepeatedPtrField<Plan>& plans,
                   const Plan& plan) {
  std::string mode = Printable(plan.mode());
  return SeveralEngines(plans)
             ? absl::StrCat(mode, " on ", Words(plan.engine()))
             : mode;
}

std::vector<Group> GroupByReason(
    const google::protobuf::RepeatedPtrField<v1::RuledOut>& ruled_out,
    bool exactly) {
  std::vector<Group> groups;
  std::map<std::string, size_t> index;
  for (const v1::RuledOut& plan : ruled_out) {
    std::string key = exactly ? plan.reason() : WithoutNumbers(plan.reason());
    auto [found, is_new] = index.emplace(key, groups.size());
    if (is_new) groups.push_back({plan.reason(), false, {}});
    Group& group = groups[found->second];
    group.alike |= group.reason != plan.reason();
    std::string mode = ModeOf(ruled_out, plan);
    if (std::find(group.modes.begin(), group.modes.end(), mode) ==
        group.modes.end()) {
      group.modes.push_back(mode);
    }
  }
  return groups;
}

std::vector<Group> GroupByMissing(
    const google::protobuf::RepeatedPtrField<v1::NotAnswerable>& plans,
    size_t most_missing) {
  std::vector<Group> groups;
  std::map<std::string, size_t> index;
  for (const v1::NotAnswerable& plan : plans) {
    std::string key = absl::StrJoin(plan.missing_measurements(), "; ");
    auto [found, is_new] = index.emplace(key, groups.size());
    if (is_new) {
      std::vector<std::string> missing(plan.missing_measurements().begin(),
                                       plan.missing_measurements().end());
      groups.push_back(
          {absl::StrCat("needs ", JoinSome(missing, most_missing)), false, {}});
    }
    groups[found->second].modes.push_back(ModeOf(plans, plan));
  }
  return groups;
}

std::string RenderGroups(const RenderOptions& options, std::string first,
                         Paint paint, const std::vector<Group>& groups) {
  std::string out;
  size_t shown =
      options.explain ? groups.size() : std::min(groups.size(), kGroupsShown);
  for (size_t i = 0; i < shown; ++i) {
    const Group& group = groups[i];
    absl::StrAppend(
        &out,
        Paragraph(
            options.style, first,
            absl::StrCat(
                JoinSome(group.modes, options.explain ? 0 : kModesShown), ": ",
                Printable(group.reason), group.alike ? " (others alike)" : ""),
            paint));
    first.assign(first.size(), ' ');
  }
  if (shown < groups.size()) {
    absl::StrAppend(&out, first, "and for ", groups.size() - shown,
                    " other reasons (--explain tells all)\n");
  }
  return out;
}

// No model is as sure as "100 %".
std::string ProbabilityWords(double probability) {
  if (probability > 0.99) return "over 99 %";
  if (probability < 0.01) return "under 1 %";
  return FormatPercent(probability);
}

std::string RenderConfidence(const Style& style, const Plans& plans,
                             const v1::Confidence& confidence,
                             const std::string& current, int max_plans) {
  if (plans.size() < 2 && max_plans != 1) {
    return Paragraph(style, " confidence   ",
                     "only one plan can be answered, so there is no contest",
                     Paint::kDim);
  }
  // Bounds chosen for words only: nothing is decided by them.
  constexpr double kSure = 0.95, kLikely = 0.8, kLeaning = 0.6;
  double probability = confidence.probability_first_is_best();
  absl::string_view verdict = probability >= kSure      ? "sure"
                              : probability >= kLikely  ? "likely"
                              : probability >= kLeaning ? "leaning"
                                                        : "a toss-up";
  Paint paint = probability >= kLikely    ? Paint::kGood
                : probability >= kLeaning ? Paint::kWarn
                                          : Paint::kBad;
  std::string first = Printable(plans[0].plan().mode());
  // Asked for one alone, the others are not told.
  std::string second =
      plans.size() > 1 ? Printable(plans[1].plan().mode()) : std::string();
  if (first == second) {
    absl::StrAppend(&first, " on ", Words(plans[0].engine()));
    absl::StrAppend(&second, " on ", Words(plans[1].engine()));
  }
  double margin = confidence.margin_ratio();
  std::string words =
      absl::StrCat(verdict, ": ", first, " is best with ",
                   ProbabilityWords(probability), " probability");
  if (!second.empty()) absl::StrAppend(&words, ", ");
  if (second.empty()) {
    margin = 0;
  } else if (plans[0].misses_size() < plans[1].misses_size()) {
    // Only plans that miss as little are compared: there is no margin.
    absl::StrAppend(&words, "all others miss more limits");
  } else {
    absl::StrAppend(&words, FormatPercent(std::abs(margin)),
                    margin >= 0 ? " ahead of " : " behind ", second);
  }
  if (margin < 0) {
    absl::StrAppend(&words, plans[0].plan().mode() == current
                                ? ", kept because it runs now"
                                : absl::StrCat(", ", kTie, kPreferred));
  }
  if (double residual = confidence.model_residual_ratio(); residual > 0) {
    absl::StrAppend(&words, " (model error ", FormatPercent(residual),
                    confidence.residual_measured() ? ", found on this node)"
                                                   : ", assumed)");
  } else {
    absl::StrAppend(&words, " (by the spread of the curves alone)");
  }
  std::string out = Paragraph(style, " confidence   ", words, Paint::kDim);
  if (style.color) {
    size_t at = out.find(std::string(verdict));
    out.replace(at, verdict.size(), Painted(style, paint, verdict));
  }
  return out;
}

// Whether `source` is asked in bytes: collectives and memory are.
bool AskedInBytes(const v1::Term& term) {
  for (absl::string_view family :
       {"all_reduce/", "all_gather/", "reduce_scatter/", "all_to_all/",
        "send_recv/", "memory/"}) {
    if (absl::StrContains(term.source(), std::string(family))) return true;
  }
  return false;
}

std::string RenderTerms(const v1::PlanAdvice& plan, const Style& style) {
  double total = 0, communication = 0;
  std::vector<const v1::Term*> terms;
  for (const v1::Term& term : plan.terms()) {
    total += term.seconds();
    if (term.communication()) communication += term.seconds();
    terms.push_back(&term);
  }
  std::stable_sort(terms.begin(), terms.end(),
                   [](const v1::Term* a, const v1::Term* b) {
                     return a->seconds() > b->seconds();
                   });
  std::string head = absl::StrCat(
      IsBound(plan) ? AtMost(style) : "", FormatSeconds(total), " a step, ",
      FormatPercent(total > 0 ? communication / total : 0),
      " of it communication");
  std::string out = absl::StrCat(
      "\n ", Painted(style, Paint::kBold, Printable(plan.plan().mode())),
      Dot(style), Words(plan.engine()), Dot(style), head, "\n");

  constexpr int kBarColumns = 16;
  Table table({{"term", Align::kLeft, 0, true},
               {"time", Align::kRight},
               {"share", Align::kRight},
               {"", Align::kLeft, 3},
               {"count", Align::kRight, 2},
               {"each", Align::kRight, 2},
               {"at", Align::kRight, 1},
               {"from", Align::kLeft, 0, true},
               {"basis", Align::kLeft, 1}});
  double largest = terms.empty() ? 1 : terms.front()->seconds();
  for (const v1::Term* term : terms) {
    Paint paint = term->communication() ? Paint::kSeries0 : Paint::kSeries3;
    std::string at;
    if (term->size() > 0) {
      at = AskedInBytes(*term) ? FormatBytes(term->size())
                               : FormatQuantity(term->size());
    }
    table.Add(
        {{Printable(term->name()),
          term->communication() ? Paint::kSeries0 : Paint::kNone},
         {absl::StrCat(term->upper_bound() ? AtMost(style) : "",
                       FormatSeconds(term->seconds()))},
         {FormatPercent(total > 0 ? term->seconds() / total : 0)},
         {Bar(style, largest > 0 ? term->seconds() / largest : 0, kBarColumns),
          paint},
         {term->count() > 0 ? FormatQuantity(term->count()) : ""},
         {term->count() > 0 ? FormatSeconds(term->seconds() / term->count())
                            : ""},
         {at},
         {Printable(term->source()), Paint::kDim},
         {Words(term->basis()), PaintOf(term->basis())}});
  }
  absl::StrAppend(&out, table.Render(style));
  std::set<std::string> said;
  for (const v1::Term* term : terms) {
    if (term->note().empty()) continue;
    std::string note =
        absl::StrCat(Printable(term->name()), ": ", Printable(term->note()));
    if (said.insert(note).second) {
      absl::StrAppend(&out, Paragraph(style, "   ", note));
    }
  }
  return out;
}

// The mode that flip points lead to; empty: not known, or none runs there.
std::string HeldAt(
    int64_t concurrency,
    const google::protobuf::RepeatedPtrField<v1::FlipPoint>& flips) {
  std::string held = flips.empty() ? "" : flips[0].from_mode();
  for (const v1::FlipPoint& flip : flips) {
    if (flip.concurrency() <= concurrency) held = flip.to_mode();
  }
  return held;
}

std::string RenderMisses(const Style& style, const Plans& plans, int shown) {
  std::string out;
  std::string first = " * misses     ";
  for (int i = 0; i < shown; ++i) {
    if (plans[i].misses_size() == 0) continue;
    absl::StrAppend(
        &out, Paragraph(style, first,
                        absl::StrCat(
                            Printable(plans[i].plan().mode()), ": ",
                            Printable(absl::StrJoin(plans[i].misses(), "; "))),
                        Paint::kWarn));
    first.assign(first.size(), ' ');
  }
  return out;
}

// "NAME=value" as a shell takes it before a command.
std::string Assignment(const std::string& variable) {
  const size_t value = variable.find('=') + 1;
  return variable.substr(0, value) + ShellWord(variable.substr(value));
}

}  // namespace

std::string RenderRecommendation(
    const v1::RecommendParallelismRequest& question,
    const v1::RecommendParallelismResponse& answer,
    const RenderOptions& options) {
  const Style& style = options.style;
  // All that were asked for by number are shown.
  const bool all = options.explain || question.has_max_plans();
  int shown =
      all ? answer.plans_size() : std::min(answer.plans_size(), kPlansShown);
  std::string out = Heading(
      style, answer.model().name(),
      DescribeLoad(question, FormatCount(question.workload().concurrency())));
  absl::StrAppend(&out, "\n",
                  PlanTable(question, answer.plans(), shown, options));
  if (shown < answer.plans_size()) {
    absl::StrAppend(
        &out,
        Painted(style, Paint::kDim,
                absl::StrCat("    and ", answer.plans_size() - shown,
                             " more (--explain lists all)")),
        "\n");
  }
  std::vector<const v1::PlanAdvice*> plans;
  for (int i = 0; i < shown; ++i) plans.push_back(&answer.plans(i));
  absl::StrAppend(&out, "\n", RenderUpperBounds(style, plans),
                  RenderMisses(style, answer.plans(), shown),
                  RenderCaveats(style, plans));
  absl::StrAppend(
      &out, RenderConfidence(style, answer.plans(), answer.confidence(),
                             question.current_plan(), question.max_plans()));
  std::string flips = DescribeFlips(answer.flip_points());
  const std::string held =
      HeldAt(question.workload().concurrency(), answer.flip_points());
  const auto is_held = [&](const v1::PlanAdvice& plan) {
    return plan.plan().mode() == held;
  };
  if (std::any_of(answer.plans().begin(), answer.plans().end(), is_held) &&
      !is_held(answer.plans(0))) {
    absl::StrAppend(&flips, "; going up, ", Printable(held),
                    " is still held at ",
                    FormatCount(question.workload().concurrency()),
                    ", as equals (within 1 %) do not take turns");
  }
  absl::StrAppend(
      &out,
      Paragraph(style, " flip points  ",
                flips.empty() ? "none found where it can be answered" : flips,
                Paint::kDim));
  absl::StrAppend(
      &out, RenderGroups(options, " unanswered   ", Paint::kWarn,
                         GroupByMissing(answer.not_answerable(),
                                        options.explain ? 0 : kMissingShown)));
  absl::StrAppend(
      &out, RenderGroups(options, " ruled out    ", Paint::kDim,
                         GroupByReason(answer.ruled_out(), options.explain)));
  absl::StrAppend(&out, RenderGrounds(style, answer.grounds(), options.now,
                                      options.explain));
  if (options.explain) {
    int explained = std::min(answer.plans_size(), kPlansExplained);
    for (int i = 0; i < explained; ++i) {
      absl::StrAppend(&out, RenderTerms(answer.plans(i), style));
    }
  }
  return out;
}

std::string RenderSweep(const v1::RecommendParallelismRequest& question,
                        const v1::SweepConcurrencyResponse& answer,
                        const RenderOptions& options) {
  const Style& style = options.style;
  std::string out =
      Heading(style, answer.model().name(), DescribeLoad(question, ""));

  // Where each mode is best, one lane a mode in order of appearance.
  std::vector<Lane> lanes;
  std::vector<double> ticks;
  auto extend = [&](const std::string& mode, double from, double to) {
    if (to <= from || mode.empty()) return;
    std::string name = Printable(mode);
    auto lane = std::find_if(lanes.begin(), lanes.end(),
                             [&](const Lane& l) { return l.name == name; });
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), {name, {}});
    lane->on.push_back({from, to});
  };
  for (int i = 0; i < answer.points_size(); ++i) {
    const v1::SweepPoint& point = answer.points(i);
    auto from = static_cast<double>(point.concurrency());
    double to = i + 1 < answer.points_size()
                    ? static_cast<double>(answer.points(i + 1).concurrency())
                    : std::numeric_limits<double>::infinity();
    ticks.push_back(from);
    std::string mode;
    if (point.plans_size() > 0) mode = point.plans(0).plan().mode();
    for (const v1::FlipPoint& flip : answer.flip_points()) {
      auto at = static_cast<double>(flip.concurrency());
      if (at <= from || at >= to) continue;
      extend(mode, from, at);
      mode = flip.to_mode();
      from = at;
    }
    extend(mode, from, to);
  }
  if (answer.points_size() > 1) {
    absl::StrAppend(
        &out, "\n",
        RenderLanes(style, lanes, ticks.front(), ticks.back(), ticks,
                    [](double value) {
                      return FormatCount(static_cast<int64_t>(value));
                    }));
  }

  std::vector<const v1::PlanAdvice*> best;
  // Whether plans of several engines are shown.
  bool engines = false;
  for (const v1::SweepPoint& point : answer.points()) {
    if (point.plans_size() == 0) continue;
    best.push_back(&point.plans(0));
    for (const v1::PlanAdvice& plan : point.plans()) {
      engines |= plan.engine() != best.front()->engine();
    }
  }
  PlanColumns shared(KindOf(question), best);
  std::vector<Column> columns = {{"sequences", Align::kRight},
                                 {"best", Align::kLeft, 0, true}};
  if (engines) columns.push_back({"engine", Align::kLeft});
  shared.AddTo(&columns);
  columns.push_back({"ahead of", Align::kLeft, 4});
  columns.push_back({"by", Align::kRight, 4});
  columns.push_back({"measured", Align::kRight, 5});
  Table table(columns);
  std::vector<std::string> unanswered;
  bool ties = false, kept = false, misses = false;
  for (const v1::SweepPoint& point : answer.points()) {
    std::vector<Cell> row = {{FormatCount(point.concurrency())}};
    if (point.plans_size() == 0) {
      row.push_back({"none", Paint::kBad});
      unanswered.push_back(
          absl::StrCat(FormatCount(point.concurrency()),
                       " sequences: ", Printable(point.unanswered())));
      table.Add(std::move(row));
      continue;
    }
    const v1::PlanAdvice& first = point.plans(0);
    std::string mode = Printable(first.plan().mode());
    auto lane = std::find_if(lanes.begin(), lanes.end(),
                             [&](const Lane& l) { return l.name == mode; });
    const bool missed = first.misses_size() > 0;
    misses |= missed;
    row.push_back({absl::StrCat(ModeCell(first), missed ? " *" : ""),
                   SeriesPaint(static_cast<int>(lane - lanes.begin()))});
    if (engines) row.push_back({Words(first.engine())});
    shared.AddTo(style, first, Paint::kNone, &row);
    if (point.plans_size() > 1) {
      const v1::PlanAdvice& second = point.plans(1);
      double margin = shared.kind().by_time()
                          ? second.tpot_seconds() / first.tpot_seconds() - 1
                          : first.output_tokens_per_second() /
                                    second.output_tokens_per_second() -
                                1;
      if (margin < 0) {
        (first.plan().mode() == question.current_plan() ? kept : ties) = true;
      }
      std::string behind = Printable(second.plan().mode());
      if (engines) absl::StrAppend(&behind, " on ", Words(second.engine()));
      row.push_back({std::move(behind), Paint::kDim});
      row.push_back(
          {std::isfinite(margin) ? FormatPercent(margin) : "", Paint::kDim});
    } else {
      row.push_back({});
      row.push_back({});
    }
    row.push_back({MeasuredShare(first), Paint::kDim});
    table.Add(std::move(row));
  }
  absl::StrAppend(&out, "\n", table.Render(style), "\n",
                  RenderUpperBounds(style, best), RenderCaveats(style, best));
  if (misses) {
    absl::StrAppend(&out,
                    Paragraph(style, " *            ",
                              "no plan meets the limits there", Paint::kWarn));
  }
  if (ties || kept) {
    absl::StrAppend(
        &out,
        Paragraph(style, " by < 0       ",
                  absl::StrCat(
                      kept ? "kept because it runs now" : "",
                      kept && ties ? ", or " : "",
                      ties ? absl::StrCat(kTie, kHeldFirst, kPreferred) : ""),
                  Paint::kDim));
  }
  std::string first = " unanswered   ";
  for (const std::string& words : unanswered) {
    absl::StrAppend(&out, Paragraph(style, first, words, Paint::kWarn));
    first.assign(first.size(), ' ');
  }
  std::string flips = DescribeFlips(answer.flip_points());
  absl::StrAppend(
      &out, Paragraph(style, " flip points  ",
                      flips.empty() ? "none within the range asked" : flips,
                      Paint::kDim));
  absl::StrAppend(&out, RenderGrounds(style, answer.grounds(), options.now,
                                      options.explain));
  if (options.explain) {
    for (const v1::SweepPoint& point : answer.points()) {
      if (point.plans_size() == 0) continue;
      absl::StrAppend(&out, "\n ", FormatCount(point.concurrency()),
                      point.concurrency() == 1 ? " sequence" : " sequences",
                      RenderTerms(point.plans(0), style));
    }
  }
  return out;
}

std::string RenderLaunches(const Plans& plans, const std::string& load) {
  auto plan = std::find_if(plans.begin(), plans.end(), [](const auto& each) {
    return each.launch().commands_size() > 0;
  });
  std::string out = absl::StrCat("# ", Printable(load), "\n");
  if (plan == plans.end()) {
    if (plans.empty()) return out + "# nothing to launch: no plan answered\n";
    return absl::StrCat(out, "# ", Printable(plans[0].plan().mode()), " on ",
                        Words(plans[0].engine()),
                        ": nothing to launch, this engine has no server\n");
  }
  const v1::Launch& launch = plan->launch();
  absl::StrAppend(&out, "# ", Printable(plan->plan().mode()), " on ",
                  Words(plan->engine()));
  if (!launch.engine_version().empty()) {
    absl::StrAppend(&out, ", flags as of ", Printable(launch.engine_version()));
  }
  if (plan != plans.begin()) {
    absl::StrAppend(&out, "; place ", plan - plans.begin() + 1,
                    ", the first with a server to launch");
  }
  if (!plan->caveat().empty()) {
    absl::StrAppend(&out, "\n# ", Printable(plan->caveat()));
  }
  for (const std::string& miss : plan->misses()) {
    absl::StrAppend(&out, "\n# misses a limit: ", Printable(miss));
  }
  out += "\n";
  if (absl::StrContains(launch.commands(0), " MODEL ")) {
    out +=
        "# MODEL stands for the model's folder or its name on Hugging Face\n";
  }
  for (int i = 0; i < launch.commands_size(); ++i) {
    if (launch.commands_size() > 1) {
      absl::StrAppend(&out, "# replica ", i + 1, " of ", launch.commands_size(),
                      "\n");
    }
    for (const std::string& variable : launch.environment()) {
      absl::StrAppend(&out, Printable(Assignment(variable)), " ");
    }
    for (absl::string_view line : absl::StrSplit(launch.commands(i), '\n')) {
      absl::StrAppend(&out, Printable(line), "\n");
    }
  }
  return out;
}

}  // namespace fabricwise
