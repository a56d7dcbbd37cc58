// SPDX-License-Identifier: Apache-2.0
#include "client/render/words.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/render/text.h"
#include "client/render/units.h"
#include "server/domain/workload.h"

namespace fabricwise {
namespace {

// Values that a newer server may send are shown by number.
template <typename Enum>
std::string Unknown(Enum value) {
  return absl::StrCat("value ", static_cast<int>(value));
}

}  // namespace

std::string Words(v1::Basis basis) {
  switch (basis) {
    case v1::BASIS_UNSPECIFIED:
      return "";
    case v1::BASIS_MEASURED:
      return "measured";
    case v1::BASIS_INTERPOLATED:
      return "interpolated";
    case v1::BASIS_EXTRAPOLATED:
      return "extrapolated";
    case v1::BASIS_REFERENCE:
      return "reference";
    case v1::BASIS_STATED:
      return "stated";
    case v1::Basis_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Basis_INT_MAX_SENTINEL_DO_NOT_USE_:
      break;
  }
  return Unknown(basis);
}

Paint PaintOf(v1::Basis basis) {
  switch (basis) {
    case v1::BASIS_MEASURED:
    case v1::BASIS_INTERPOLATED:
      return Paint::kGood;
    case v1::BASIS_EXTRAPOLATED:
    case v1::BASIS_STATED:
    case v1::BASIS_REFERENCE:
      return Paint::kWarn;
    case v1::BASIS_UNSPECIFIED:
    case v1::Basis_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Basis_INT_MAX_SENTINEL_DO_NOT_USE_:
      break;
  }
  return Paint::kNone;
}

std::string Words(v1::Engine engine) {
  switch (engine) {
    case v1::ENGINE_UNSPECIFIED:
      return "any";
    case v1::ENGINE_REFERENCE:
      return "reference";
    case v1::ENGINE_VLLM:
      return "vllm";
    case v1::ENGINE_SGLANG:
      return "sglang";
    case v1::ENGINE_TRTLLM:
      return "trtllm";
    case v1::Engine_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Engine_INT_MAX_SENTINEL_DO_NOT_USE_:
      break;
  }
  return Unknown(engine);
}

absl::Time TimeOf(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) +
         absl::Nanoseconds(timestamp.nanos());
}

std::string DescribeLoad(const v1::RecommendParallelismRequest& question,
                         const std::string& concurrency) {
  const v1::Workload& load = question.workload();
  std::vector<std::string> parts;
  if (!concurrency.empty()) {
    parts.push_back(absl::StrCat(
        concurrency, concurrency == "1" ? " sequence" : " sequences"));
  }
  const Workload defaults;
  int64_t input =
      load.has_input_tokens() ? load.input_tokens() : defaults.input_tokens;
  int64_t output =
      load.has_output_tokens() ? load.output_tokens() : defaults.output_tokens;
  int64_t context =
      load.has_context_tokens() ? load.context_tokens() : input + output / 2;
  switch (load.phase()) {
    case v1::PHASE_DECODE:
      parts.push_back(absl::StrCat("decode at ", FormatCount(context),
                                   " tokens of context"));
      break;
    case v1::PHASE_PREFILL:
      parts.push_back(
          absl::StrCat("prefill of ", FormatCount(input), " tokens"));
      break;
    case v1::PHASE_UNSPECIFIED:
    case v1::PHASE_STEADY_STATE:
    case v1::Phase_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Phase_INT_MAX_SENTINEL_DO_NOT_USE_:
      parts.push_back(absl::StrCat("steady state, ", FormatCount(input),
                                   " in + ", FormatCount(output), " out"));
      break;
  }
  if (load.has_routing_skew() && load.routing_skew() > 0) {
    parts.push_back(
        absl::StrCat("routing skew ", FormatNumber(load.routing_skew())));
  }
  if (question.gpus().has_count()) {
    parts.push_back(absl::StrCat(question.gpus().count(), " GPUs"));
  }
  if (const auto& named = question.gpus().indices(); !named.empty()) {
    parts.push_back(absl::StrCat(question.gpus().has_count() ? "of " : "",
                                 named.size() == 1 ? "GPU " : "GPUs ",
                                 absl::StrJoin(named, ",")));
  }
  const bool communication =
      question.cost_scope() == v1::COST_SCOPE_COMMUNICATION;
  if (communication) parts.push_back("communication only");
  switch (question.objective()) {
    case v1::OBJECTIVE_LATENCY:
      parts.push_back("least time per token");
      break;
    case v1::OBJECTIVE_THROUGHPUT_IN_LIMITS:
      parts.push_back(communication ? "least of it within limits"
                                    : "most tokens/s within limits");
      break;
    case v1::OBJECTIVE_UNSPECIFIED:
    case v1::OBJECTIVE_THROUGHPUT:
    case v1::Objective_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Objective_INT_MAX_SENTINEL_DO_NOT_USE_:
      parts.push_back(communication ? "least of it" : "most tokens/s");
      break;
  }
  if (question.limits().ignore_memory()) parts.push_back("memory ignored");
  return absl::StrJoin(parts, ", ");
}

std::string DescribeFlips(
    const google::protobuf::RepeatedPtrField<v1::FlipPoint>& flips) {
  std::set<v1::Engine> engines;
  for (const v1::FlipPoint& flip : flips) {
    engines.insert({flip.from_engine(), flip.to_engine()});
  }
  engines.erase(v1::ENGINE_UNSPECIFIED);
  const auto best = [&](const std::string& mode, v1::Engine engine) {
    if (mode.empty()) return std::string("none");
    return engines.size() > 1
               ? absl::StrCat(Printable(mode), " on ", Words(engine))
               : Printable(mode);
  };
  std::string words;
  for (const v1::FlipPoint& flip : flips) {
    if (words.empty()) {
      absl::StrAppend(&words, best(flip.from_mode(), flip.from_engine()),
                      " up to ", FormatCount(flip.concurrency() - 1),
                      flip.concurrency() == 2 ? " sequence" : " sequences");
    }
    absl::StrAppend(&words, ", ", best(flip.to_mode(), flip.to_engine()),
                    " from ", FormatCount(flip.concurrency()));
  }
  return words;
}

std::string RenderGrounds(const Style& style, const v1::Grounds& grounds,
                          absl::Time now, bool with_notes) {
  absl::Time as_of = TimeOf(grounds.as_of_time());
  absl::Time oldest = TimeOf(grounds.oldest_curve_time());
  std::vector<std::string> parts = {Printable(grounds.profile())};
  if (!grounds.fingerprint().empty()) {
    parts.push_back(
        absl::StrCat("fingerprint ", Printable(grounds.fingerprint())));
  }
  std::string age = FormatAge(as_of, now);
  parts.push_back(absl::StrCat("measured ", age));
  if (oldest != absl::UnixEpoch() && FormatAge(oldest, now) != age) {
    parts.push_back(absl::StrCat("oldest curve ", FormatAge(oldest, now)));
  }
  if (grounds.basis() != v1::BASIS_UNSPECIFIED) {
    parts.push_back(absl::StrCat("worst basis ", Words(grounds.basis())));
  }
  if (int notes = grounds.notes_size(); notes > 0 && !with_notes) {
    parts.push_back(
        absl::StrCat(notes, notes == 1 ? " note" : " notes", " (--explain)"));
  }
  std::string out = Paragraph(style, " grounds      ",
                              absl::StrJoin(parts, ", "), Paint::kDim);
  if (!with_notes) return out;
  for (const std::string& note : grounds.notes()) {
    absl::StrAppend(&out, Paragraph(style, "              ", Printable(note)));
  }
  return out;
}

std::string JoinSome(const std::vector<std::string>& items, size_t most) {
  if (most == 0 || items.size() <= most) return absl::StrJoin(items, ", ");
  return absl::StrCat(
      absl::StrJoin(items.begin(), items.begin() + static_cast<long>(most),
                    ", "),
      " and ", items.size() - most, " more");
}

}  // namespace fabricwise
