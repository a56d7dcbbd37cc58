// SPDX-License-Identifier: Apache-2.0
#include "client/render/curves.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command/command.h"
#include "client/command/question.h"
#include "client/model.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

struct Flags {
  ServiceAddress address;
  std::string pattern;
  std::string model, config;
  Format format = Format::kTable;
  bool plot = false;
};

// The curves whose key holds `pattern`; a whole key is that curve alone.
absl::StatusOr<std::vector<const v1::Curve*>> Matching(
    const v1::NodeProfile& profile, const std::string& pattern) {
  std::vector<const v1::Curve*> matching;
  std::vector<std::string> keys;
  for (const v1::Curve& curve : profile.curves()) {
    if (curve.key() == pattern) return std::vector<const v1::Curve*>{&curve};
    if (absl::StrContains(curve.key(), pattern)) matching.push_back(&curve);
    keys.push_back(curve.key());
  }
  if (keys.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("profile ", profile.name(), " holds no curves"));
  }
  if (!matching.empty()) return matching;
  return absl::NotFoundError(
      absl::StrCat("no curve has \"", pattern,
                   "\" in its key; there are: ", absl::StrJoin(keys, ", ")));
}

absl::Status Run(const Flags& flags, const Session& session) {
  std::optional<ModelShape> model;
  if (!flags.model.empty() || !flags.config.empty()) {
    ASSIGN_OR_RETURN(model, FindShape(flags.model, flags.config));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Service> service,
                   session.environment.connect(flags.address));
  ASSIGN_OR_RETURN(v1::NodeProfile profile,
                   service->GetProfile(v1::PROFILE_VIEW_CURVES));
  ASSIGN_OR_RETURN(std::vector<const v1::Curve*> curves,
                   Matching(profile, flags.pattern));
  switch (flags.format) {
    case Format::kJson: {
      v1::NodeProfile chosen = profile;
      chosen.clear_curves();
      for (const v1::Curve* curve : curves) *chosen.add_curves() = *curve;
      return WriteJson(chosen, session.out());
    }
    case Format::kCsv:
      session.out() << CurvesCsv(curves);
      return absl::OkStatus();
    case Format::kTable:
    case Format::kFlags:
      break;
  }
  Style style = session.render_options().style;
  if (curves.size() > 1 && !flags.plot) {
    session.out() << RenderCurveList(style, curves);
    return absl::OkStatus();
  }
  bool first = true;
  for (const v1::Curve* curve : curves) {
    session.out() << (first ? "" : "\n")
                  << RenderCurve(style, *curve, model ? &*model : nullptr);
    first = false;
  }
  return absl::OkStatus();
}

}  // namespace

void AddCurvesCommand(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "curves", "Measured curves: a list, or one drawn with its cliffs");
  auto flags = std::make_shared<Flags>();
  AddAddress(*command, &flags->address, Reach::kEither);
  command
      ->add_option("curve", flags->pattern,
                   "Only curves with this in their key; a single one is drawn")
      ->type_name("PATTERN");
  command->add_flag("--plot", flags->plot, "Draw every curve that matches");
  AddModelFlags(*command, &flags->model, &flags->config);
  AddFormat(*command, &flags->format,
            {Format::kTable, Format::kJson, Format::kCsv});
  command->footer(
      "Examples:\n"
      "  fabricwise curves --profile h200x2-p2p\n"
      "  fabricwise curves --profile seed-8x-rtx-pro-6000 all_to_all --model "
      "Kimi-K2.5");
  command->callback([flags, &session] {
    session.action = [flags, &session] { return Run(*flags, session); };
  });
}

}  // namespace fabricwise
