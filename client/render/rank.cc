// SPDX-License-Identifier: Apache-2.0
#include "client/render/rank.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/render/plan_columns.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "client/render/words.h"

namespace fabricwise {

void SortNodes(const v1::RecommendParallelismRequest& question,
               v1::NodeRanking* ranking) {
  const bool latency = KindOf(question).latency;
  auto better = [&](const v1::RankedNode& a, const v1::RankedNode& b) {
    if (a.has_plan() != b.has_plan()) return a.has_plan();
    if (!a.has_plan()) return false;
    if (a.plan().misses_size() != b.plan().misses_size()) {
      return a.plan().misses_size() < b.plan().misses_size();
    }
    return latency ? a.plan().tpot_seconds() < b.plan().tpot_seconds()
                   : a.plan().output_tokens_per_second() >
                         b.plan().output_tokens_per_second();
  };
  std::stable_sort(ranking->mutable_nodes()->begin(),
                   ranking->mutable_nodes()->end(), better);
}

std::string RenderRanking(const v1::RecommendParallelismRequest& question,
                          const std::string& model,
                          const v1::NodeRanking& ranking,
                          const RenderOptions& options) {
  const Style& style = options.style;
  std::vector<const v1::RankedNode*> answered;
  std::vector<const v1::PlanAdvice*> plans;
  for (const v1::RankedNode& node : ranking.nodes()) {
    if (!node.has_plan()) continue;
    answered.push_back(&node);
    plans.push_back(&node.plan());
  }
  std::string out = Heading(
      style, model,
      absl::StrCat(DescribeLoad(question,
                                FormatCount(question.workload().concurrency())),
                   Dot(style),
                   FormatCount(static_cast<int64_t>(answered.size())), " of ",
                   FormatCount(ranking.nodes_size()), " nodes"));
  if (!answered.empty()) {
    const PlanColumns shared(KindOf(question), plans);
    std::vector<Column> columns = {{"#", Align::kRight},
                                   {"node", Align::kLeft, 0, true},
                                   {"mode", Align::kLeft, 0, true},
                                   {"engine", Align::kLeft, 5}};
    shared.AddTo(&columns);
    columns.push_back({"vs first", Align::kRight, 4});
    columns.push_back({"measured", Align::kLeft, 6});
    Table table(columns);
    for (size_t i = 0; i < answered.size(); ++i) {
      const v1::RankedNode& node = *answered[i];
      const bool missed = node.plan().misses_size() > 0;
      const Paint paint = i == 0   ? Paint::kBold
                          : missed ? Paint::kDim
                                   : Paint::kNone;
      std::vector<Cell> row = {
          {absl::StrCat(i + 1), Paint::kDim},
          {Printable(node.target()), i == 0 ? Paint::kGood : paint},
          {absl::StrCat(ModeCell(node.plan()), missed ? " *" : ""), paint},
          {Words(node.plan().engine()), paint}};
      shared.AddTo(style, node.plan(), paint, &row);
      row.push_back(
          {i == 0 ? "" : VersusFirst(shared.kind(), node.plan(), *plans[0]),
           Paint::kDim});
      const auto& as_of = node.grounds().as_of_time();
      row.push_back(
          {FormatAge(absl::FromUnixSeconds(as_of.seconds()), options.now),
           Paint::kDim});
      table.Add(std::move(row));
    }
    absl::StrAppend(&out, "\n", table.Render(style),
                    RenderUpperBounds(style, plans),
                    RenderCaveats(style, plans));
    for (const v1::RankedNode* node : answered) {
      for (const std::string& miss : node->plan().misses()) {
        absl::StrAppend(&out, Paragraph(style, " * misses     ",
                                        absl::StrCat(Printable(node->target()),
                                                     ": ", Printable(miss)),
                                        Paint::kWarn));
      }
    }
  }
  for (const v1::RankedNode& node : ranking.nodes()) {
    if (node.has_plan()) continue;
    absl::StrAppend(&out, Paragraph(style, " no answer    ",
                                    absl::StrCat(Printable(node.target()), ": ",
                                                 Printable(node.error())),
                                    Paint::kWarn));
  }
  return out;
}

}  // namespace fabricwise
