// SPDX-License-Identifier: Apache-2.0
#include "client/render/curves.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/render/plot.h"
#include "client/render/table.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "client/render/words.h"
#include "server/domain/measurement.h"
#include "server/profile/curve.h"
#include "server/profile/serving.h"

namespace fabricwise {
namespace {

// What a curve's sizes mean.
struct Meaning {
  bool tokens = false;  // tokens per rank, not bytes
  std::optional<CollectiveKey> collective;
};

Meaning MeaningOf(const v1::Curve& curve) {
  // A curve's key is that of its measurements less the size.
  absl::StatusOr<MeasurementKey> bytes =
      ParseMeasurementKey(absl::StrCat(curve.key(), "/1B"));
  if (bytes.ok() && std::holds_alternative<CollectiveKey>(*bytes)) {
    return {false, std::get<CollectiveKey>(*bytes)};
  }
  absl::StatusOr<MeasurementKey> tokens =
      ParseMeasurementKey(absl::StrCat(curve.key(), "/t1"));
  return {tokens.ok() && std::holds_alternative<ExchangeKey>(*tokens),
          std::nullopt};
}

std::string TokenCount(double tokens) {
  return absl::StrCat(FormatQuantity(tokens),
                      tokens == 1 ? " token" : " tokens");
}

std::string FormatSize(const Meaning& meaning, double size) {
  return meaning.tokens ? TokenCount(size) : FormatBytes(size);
}

absl::StatusOr<Curve> ToCurve(const v1::Curve& message) {
  std::vector<CurvePoint> points;
  for (const v1::CurvePoint& point : message.points()) {
    points.push_back({point.size(), point.seconds(), point.relative_sigma()});
  }
  return Curve::Create(std::move(points), message.basis() == v1::BASIS_REFERENCE
                                              ? Origin::kReference
                                              : Origin::kMeasured);
}

std::vector<PlotPoint> ToPlot(const v1::Curve& curve) {
  std::vector<PlotPoint> points;
  for (const v1::CurvePoint& point : curve.points()) {
    points.push_back({point.size(), point.seconds()});
  }
  return points;
}

// "1 to 16 tokens per GPU": sizes of a collective in tokens of a model.
std::string InTokens(const CollectiveKey& key, const ModelShape& model,
                     double from, double to) {
  const double token_bytes =
      BytesPerToken(key.op, key.group.size, model.hidden_size);
  if (token_bytes <= 0) return "";
  absl::string_view what;
  switch (key.op) {
    case CollectiveOp::kAllReduce:
    case CollectiveOp::kSendRecv:
      what = "tokens";
      break;
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatter:
      what = "tokens of all ranks together";
      break;
    case CollectiveOp::kAllToAll:
      what = "tokens per GPU, each sent to every peer";
      break;
  }
  return absl::StrCat(Printable(model.name), ": from ",
                      FormatQuantity(from / token_bytes), " to ",
                      FormatQuantity(to / token_bytes), " ", what);
}

std::string DescribeCliff(const Meaning& meaning, const v1::Cliff& cliff) {
  std::string words =
      absl::StrCat("from ", FormatSize(meaning, cliff.from_size()), " to ",
                   FormatSize(meaning, cliff.to_size()));
  if (meaning.collective && meaning.collective->op == CollectiveOp::kAllToAll &&
      meaning.collective->group.size > 0) {
    double peers = meaning.collective->group.size;
    absl::StrAppend(&words, " (", FormatBytes(cliff.from_size() / peers),
                    " to ", FormatBytes(cliff.to_size() / peers),
                    " to each peer)");
  }
  absl::StrAppend(&words, " time grows from ",
                  FormatSeconds(cliff.from_seconds()), " to ",
                  FormatSeconds(cliff.to_seconds()), ", ",
                  FormatNumber(cliff.factor_per_doubling()),
                  " times for each doubling of size");
  return words;
}

}  // namespace

std::string RenderCurveList(const Style& style,
                            const std::vector<const v1::Curve*>& curves) {
  // The sizes at which serving sends most of its messages.
  constexpr double kKib = 1024, kMib = kKib * kKib;
  constexpr double kSizes[] = {16 * kKib, 256 * kKib, 4 * kMib, 64 * kMib};
  constexpr int kSparkColumns = 14;
  std::vector<Column> columns = {{"curve", Align::kLeft, 0, true},
                                 {"points", Align::kRight, 5},
                                 {"from", Align::kRight, 4},
                                 {"to", Align::kRight, 4}};
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    columns.push_back({FormatBytes(kSizes[i]), Align::kRight, i % 2 ? 1 : 0});
  }
  columns.push_back({"cliffs", Align::kRight, 3});
  columns.push_back({"basis", Align::kLeft, 6});
  columns.push_back({"", Align::kLeft, 7});

  Table table(columns);
  for (const v1::Curve* message : curves) {
    Meaning meaning = MeaningOf(*message);
    int last = message->points_size() - 1;
    std::vector<Cell> row = {
        {Printable(message->key())},
        {absl::StrCat(message->points_size())},
        {last < 0 ? "" : FormatSize(meaning, message->points(0).size())},
        {last < 0 ? "" : FormatSize(meaning, message->points(last).size())}};
    absl::StatusOr<Curve> curve = ToCurve(*message);
    for (double size : kSizes) {
      std::optional<Estimate> estimate =
          curve.ok() && !meaning.tokens ? curve->At(size) : std::nullopt;
      bool exact = std::any_of(
          message->points().begin(), message->points().end(),
          [size](const v1::CurvePoint& p) { return p.size() == size; });
      row.push_back({estimate ? absl::StrCat(exact ? "" : "~",
                                             FormatSeconds(estimate->seconds))
                              : "-",
                     exact ? Paint::kNone : Paint::kDim});
    }
    row.push_back(
        {message->cliffs_size() > 0 ? absl::StrCat(message->cliffs_size()) : "",
         Paint::kBad});
    row.push_back({Words(message->basis()), PaintOf(message->basis())});
    row.push_back(
        {Sparkline(style, ToPlot(*message), kSparkColumns), Paint::kSeries0});
    table.Add(std::move(row));
  }
  return table.Render(style);
}

std::string RenderCurve(const Style& style, const v1::Curve& curve,
                        const ModelShape* model) {
  Meaning meaning = MeaningOf(curve);
  std::string out =
      absl::StrCat(" ", Painted(style, Paint::kBold, Printable(curve.key())),
                   style.unicode ? " · " : ", ", curve.points_size(),
                   curve.points_size() == 1 ? " point" : " points",
                   style.unicode ? " · " : ", ", Words(curve.basis()), "\n\n");
  LogLogPlot plot;
  plot.points = ToPlot(curve);
  plot.format_x = meaning.tokens ? [](double x) { return FormatQuantity(x); }
                                 : [](double x) { return FormatBytes(x); };
  plot.format_y = [](double y) { return FormatRoundSeconds(y); };
  for (const v1::Cliff& cliff : curve.cliffs()) {
    plot.marks.push_back({cliff.from_size(), cliff.to_size()});
  }
  absl::StrAppend(&out, RenderLogLogPlot(style, plot), "\n");
  if (curve.cliffs_size() == 0) {
    absl::StrAppend(&out, " no cliff: no doubling of size costs clearly more ",
                    "than twice\n");
  }
  for (const v1::Cliff& cliff : curve.cliffs()) {
    absl::StrAppend(&out,
                    Paragraph(style, " cliff  ", DescribeCliff(meaning, cliff),
                              Paint::kBad));
    if (model == nullptr || !meaning.collective) continue;
    absl::StrAppend(
        &out, Paragraph(style, "        ",
                        InTokens(*meaning.collective, *model, cliff.from_size(),
                                 cliff.to_size())));
  }
  return out;
}

std::string CurvesCsv(const std::vector<const v1::Curve*>& curves) {
  std::string csv = "key,size,seconds,relative_sigma,basis\n";
  for (const v1::Curve* curve : curves) {
    // Members of a group are separated by commas: the key is quoted.
    std::string key = absl::StrCat("\"", Printable(curve->key()), "\"");
    for (const v1::CurvePoint& point : curve->points()) {
      // 17 digits read back as the same double.
      absl::StrAppendFormat(&csv, "%s,%.17g,%.17g,%.17g,%s\n", key,
                            point.size(), point.seconds(),
                            point.relative_sigma(), Words(curve->basis()));
    }
  }
  return csv;
}

}  // namespace fabricwise
