// SPDX-License-Identifier: Apache-2.0
#include "server/domain/plan.h"

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"

namespace fabricwise {
namespace {

constexpr std::array kTransports = {ExpertTransport::kNone,
                                    ExpertTransport::kAllGatherReduceScatter,
                                    ExpertTransport::kNcclAllToAll,
                                    ExpertTransport::kDeepEpLowLatency,
                                    ExpertTransport::kDeepEpHighThroughput,
                                    ExpertTransport::kFlashinferNvlink};

constexpr absl::string_view kForm =
    "a name such as TP8, DP8+EP8, 2xTP4, PP2xTP4, TP8+EP4xMTP2, "
    "DP8+EP8:deepep-ll";

// With one attention-DP rank every GPU of the stage holds every token anyway.
ExpertTransport UnsaidTransport(const Plan& plan) {
  const bool shares_experts = plan.expert_parallel * plan.moe_tp > 1;
  return shares_experts && plan.attention_dp > 1
             ? ExpertTransport::kAllGatherReduceScatter
             : ExpertTransport::kNone;
}

// Takes "`prefix`N" off the front of `text` into `value`. False, and `text` as
// it was, where something else stands there.
bool ConsumeSize(absl::string_view* text, absl::string_view prefix,
                 int* value) {
  absl::string_view rest = *text;
  if (!absl::ConsumePrefix(&rest, prefix)) return false;
  size_t digits = 0;
  while (digits < rest.size() &&
         absl::ascii_isdigit(static_cast<unsigned char>(rest[digits])))
    ++digits;
  int parsed = 0;
  if (!absl::SimpleAtoi(rest.substr(0, digits), &parsed)) return false;
  if (parsed < 1 || parsed > kMaxGpus) return false;
  *value = parsed;
  *text = rest.substr(digits);
  return true;
}

bool ConsumeTransport(absl::string_view* text, ExpertTransport* transport) {
  absl::string_view rest = *text;
  if (!absl::ConsumePrefix(&rest, ":")) return false;
  const absl::string_view name = rest.substr(0, rest.find('+'));
  for (const ExpertTransport candidate : kTransports) {
    if (name != ToString(candidate)) continue;
    *transport = candidate;
    *text = rest.substr(name.size());
    return true;
  }
  return false;
}

absl::Status Refuse(absl::string_view mode, absl::string_view allowed) {
  return NotAllowed("mode", Quoted(mode), allowed);
}

}  // namespace

std::string ModeName(const Plan& plan) {
  std::vector<std::string> parts;
  if (plan.replicas > 1) parts.push_back(absl::StrCat(plan.replicas));
  if (plan.pipeline > 1) parts.push_back(absl::StrCat("PP", plan.pipeline));
  if (plan.attention_dp > 1) {
    parts.push_back(absl::StrCat("DP", plan.attention_dp));
  }
  if (plan.attention_tp > 1 || (plan.pipeline == 1 && plan.attention_dp == 1)) {
    parts.push_back(absl::StrCat("TP", plan.attention_tp));
  }
  std::string name = absl::StrJoin(parts, "x");
  if (plan.expert_parallel > 1) {
    absl::StrAppend(&name, "+EP", plan.expert_parallel);
    if (plan.moe_tp > 1) absl::StrAppend(&name, "xMTP", plan.moe_tp);
  }
  if (plan.transport != UnsaidTransport(plan)) {
    absl::StrAppend(&name, ":", ToString(plan.transport));
  }
  if (plan.two_batch_overlap) name += "+tbo";
  if (plan.fp8_dispatch) name += "+fp8d";
  return name;
}

absl::StatusOr<Plan> ParseMode(absl::string_view mode, bool is_moe) {
  Plan plan;
  absl::string_view rest = mode;
  if (ConsumeSize(&rest, "", &plan.replicas) &&
      !absl::ConsumePrefix(&rest, "x")) {
    return Refuse(mode, kForm);
  }
  // Each part may end the list; ModeName below settles whether the whole is
  // spelled as it should be.
  bool more = true;
  if (more && ConsumeSize(&rest, "PP", &plan.pipeline)) {
    more = absl::ConsumePrefix(&rest, "x");
  }
  if (more && ConsumeSize(&rest, "DP", &plan.attention_dp)) {
    more = absl::ConsumePrefix(&rest, "x");
  }
  if (more && !ConsumeSize(&rest, "TP", &plan.attention_tp)) {
    return Refuse(mode, kForm);
  }
  const int64_t gpus = int64_t{plan.replicas} * plan.pipeline *
                       int64_t{plan.attention_dp} * plan.attention_tp;
  // Each factor is at most 2^10, so the product above cannot overflow.
  if (gpus > kMaxGpus) {
    return NotAllowed("mode", absl::StrCat(Quoted(mode), " on ", gpus, " GPUs"),
                      absl::StrCat("at most ", kMaxGpus, " GPUs"));
  }

  if (ConsumeSize(&rest, "+EP", &plan.expert_parallel)) {
    if (!is_moe) return Refuse(mode, "no +EP; the model has no experts");
    ConsumeSize(&rest, "xMTP", &plan.moe_tp);
    if (int64_t{plan.expert_parallel} * plan.moe_tp != plan.stage_gpus()) {
      return Refuse(mode, absl::StrCat("EP x MTP equal to the ",
                                       plan.stage_gpus(), " GPUs of a stage"));
    }
  } else if (is_moe) {
    plan.moe_tp = plan.stage_gpus();
  }

  plan.transport = UnsaidTransport(plan);
  const bool says_transport = ConsumeTransport(&rest, &plan.transport);
  plan.two_batch_overlap = absl::ConsumePrefix(&rest, "+tbo");
  plan.fp8_dispatch = absl::ConsumePrefix(&rest, "+fp8d");
  if (!is_moe && (says_transport || plan.fp8_dispatch)) {
    return Refuse(mode, "no transport; the model has no experts");
  }
  if (!rest.empty() || ModeName(plan) != std::string(mode)) {
    return Refuse(mode, kForm);
  }
  return plan;
}

absl::string_view ToString(ExpertTransport transport) {
  switch (transport) {
    case ExpertTransport::kNone:
      return "none";
    case ExpertTransport::kAllGatherReduceScatter:
      return "agrs";
    case ExpertTransport::kNcclAllToAll:
      return "a2a";
    case ExpertTransport::kDeepEpLowLatency:
      return "deepep-ll";
    case ExpertTransport::kDeepEpHighThroughput:
      return "deepep-ht";
    case ExpertTransport::kFlashinferNvlink:
      return "flashinfer";
  }
  return "unknown";
}

}  // namespace fabricwise
