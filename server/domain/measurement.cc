// SPDX-License-Identifier: Apache-2.0
#include "server/domain/measurement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"

namespace fabricwise {
namespace {

// Interquartile range of a normal distribution over its standard deviation.
constexpr double kNormalIqr = 1.3489795;

template <typename Enum>
using Names = absl::Span<const std::pair<Enum, absl::string_view>>;

constexpr std::pair<CollectiveOp, absl::string_view> kOps[] = {
    {CollectiveOp::kAllReduce, "all_reduce"},
    {CollectiveOp::kAllGather, "all_gather"},
    {CollectiveOp::kReduceScatter, "reduce_scatter"},
    {CollectiveOp::kAllToAll, "all_to_all"},
    {CollectiveOp::kSendRecv, "send_recv"}};
constexpr std::pair<CollectiveImpl, absl::string_view> kImpls[] = {
    {CollectiveImpl::kNccl, "nccl"},
    {CollectiveImpl::kNcclSymmetric, "nccl_symmetric"},
    {CollectiveImpl::kOneShot, "one_shot"},
    {CollectiveImpl::kTwoShot, "two_shot"},
    {CollectiveImpl::kVllmCustom, "vllm_custom"},
    {CollectiveImpl::kSglangCustom, "sglang_custom"},
    {CollectiveImpl::kTrtllm, "trtllm"}};
constexpr std::pair<Launch, absl::string_view> kLaunches[] = {
    {Launch::kGraph, "graph"},
    {Launch::kEager, "eager"},
    {Launch::kGraphInterleaved, "graph+gemm"}};
constexpr std::pair<MemoryOp, absl::string_view> kMemoryOps[] = {
    {MemoryOp::kRead, "read"}, {MemoryOp::kCopy, "copy"}};
constexpr std::pair<ExchangeImpl, absl::string_view> kExchanges[] = {
    {ExchangeImpl::kDeepEpLowLatency, "deepep_low_latency"},
    {ExchangeImpl::kDeepEpHighThroughput, "deepep_high_throughput"},
    {ExchangeImpl::kPplx, "pplx"}};
constexpr std::pair<ExchangeStage, absl::string_view> kStages[] = {
    {ExchangeStage::kDispatch, "dispatch"},
    {ExchangeStage::kCombine, "combine"}};
constexpr std::pair<Origin, absl::string_view> kOrigins[] = {
    {Origin::kMeasured, "measured"}, {Origin::kReference, "reference"}};
constexpr std::pair<StopReason, absl::string_view> kStopReasons[] = {
    {StopReason::kUnknown, "unknown"},
    {StopReason::kGood, "good"},
    {StopReason::kSettledNoisy, "settled_noisy"},
    {StopReason::kOutOfBudget, "out_of_budget"}};

template <typename Enum>
absl::string_view NameOf(Names<Enum> names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "?";  // not a value of the enum
}

template <typename Enum>
absl::StatusOr<Enum> ParseName(Names<Enum> names, absl::string_view what,
                               absl::string_view text) {
  for (const auto& [value, name] : names) {
    if (name == text) return value;
  }
  return NotAllowed(
      what, Quoted(text),
      absl::StrJoin(names, ", ", [](std::string* out, const auto& entry) {
        absl::StrAppend(out, entry.second);
      }));
}

// The shortest text that reads back as the same double.
std::string Shortest(double value) {
  std::array<char, 32> buffer;
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string Skew(double alpha) {
  return alpha == 0 ? "" : absl::StrCat("/a", Shortest(alpha));
}

std::string Text(const WeightFormat& format) {
  return format.group_size == 0
             ? std::string(ToString(format.number))
             : absl::StrCat(ToString(format.number), ":", format.group_size);
}

std::string Text(const CollectiveKey& key) {
  return absl::StrCat(ToString(key.op), "/", ToString(key.group), "/",
                      ToString(key.implementation), "/", ToString(key.launch),
                      key.concurrent_groups == 1
                          ? ""
                          : absl::StrCat("/x", key.concurrent_groups),
                      Skew(key.skew_alpha), "/", key.size_bytes, "B");
}

std::string Text(const GemmKey& key) {
  return absl::StrCat("gemm/", ToString(key.format), "/m", key.m, "n", key.n,
                      "k", key.k);
}

std::string Text(const ExpertsKey& key) {
  return absl::StrCat("experts/", Text(key.format), "/h", key.hidden_size, "i",
                      key.intermediate_size, "e", key.num_experts, "k",
                      key.experts_per_token, "/tp", key.moe_tp, "ep",
                      key.expert_parallel, Skew(key.skew_alpha), "/t",
                      key.tokens);
}

std::string Text(const AttentionKey& key) {
  return absl::StrCat("attention/", key.latent ? "mla" : "gqa", "/",
                      ToString(key.kv_format), "/b", key.batch, "q",
                      key.query_tokens, "c", key.context_tokens, "/h",
                      key.q_heads, "kv", key.kv_heads, "d", key.head_dim);
}

std::string Text(const MemoryKey& key) {
  return absl::StrCat("memory/", ToString(key.op), "/", key.size_bytes, "B");
}

std::string Text(const LaunchKey&) { return "launch/graph_node"; }

std::string Text(const ExchangeKey& key) {
  return absl::StrCat("exchange/", ToString(key.implementation), "/",
                      ToString(key.stage), "/", ToString(key.group), "/h",
                      key.hidden_size, "e", key.num_experts, "k",
                      key.experts_per_token, "/t", key.tokens_per_rank);
}

// Walks the parts of a key between slashes.
class Parts {
 public:
  explicit Parts(absl::string_view text) : parts_(absl::StrSplit(text, '/')) {}

  // The next part, or empty past the end (which no part may be).
  absl::string_view Next() {
    return at_ < parts_.size() ? parts_[at_++] : absl::string_view();
  }
  // The next part if it starts with `letter` and a digit.
  std::optional<absl::string_view> NextIf(char letter) {
    if (at_ >= parts_.size()) return std::nullopt;
    const absl::string_view part = parts_[at_];
    if (part.size() < 2 || part[0] != letter ||
        !absl::ascii_isdigit(static_cast<unsigned char>(part[1]))) {
      return std::nullopt;
    }
    ++at_;
    return part.substr(1);
  }
  absl::Status End() const {
    if (at_ >= parts_.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(parts_[at_]), " follows its end"));
  }

 private:
  std::vector<absl::string_view> parts_;
  size_t at_ = 0;
};

struct Field {
  absl::string_view label;
  int64_t* value;
};

// Reads "h7168e256" as the numbers behind the labels "h" and "e".
absl::Status ReadFields(absl::string_view part,
                        std::initializer_list<Field> fields) {
  absl::string_view rest = part;
  for (const Field& field : fields) {
    const size_t digits =
        absl::StartsWith(rest, field.label)
            ? std::min(rest.size(),
                       rest.find_first_not_of("0123456789", field.label.size()))
            : 0;
    if (digits <= field.label.size() ||
        !absl::SimpleAtoi(
            rest.substr(field.label.size(), digits - field.label.size()),
            field.value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          Quoted(part), " lacks a 64-bit number after ", Quoted(field.label)));
    }
    rest.remove_prefix(digits);
  }
  if (rest.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(part), " has ", Quoted(rest), " behind its numbers"));
}

absl::Status ReadSize(absl::string_view part, int64_t* size) {
  if (absl::ConsumeSuffix(&part, "B") && absl::SimpleAtoi(part, size)) {
    return absl::OkStatus();
  }
  return NotAllowed("size", Quoted(part), "a 64-bit number and B");
}

absl::Status ReadInt(absl::string_view what, absl::string_view text,
                     int* value) {
  if (absl::SimpleAtoi(text, value)) return absl::OkStatus();
  return NotAllowed(what, Quoted(text), "a 32-bit number");
}

absl::Status ReadGroup(absl::string_view part, GpuGroup* group) {
  const absl::string_view whole = part;
  if (absl::ConsumePrefix(&part, "n")) {
    const size_t open = part.find('[');
    if (open == absl::string_view::npos) {
      return ReadInt("group size", part, &group->size);
    }
    if (absl::EndsWith(part, "]")) {
      group->members =
          std::string(part.substr(open + 1, part.size() - open - 2));
      return ReadInt("group size", part.substr(0, open), &group->size);
    }
  }
  return NotAllowed("group", Quoted(whole), "as 'n2' or 'n2[0,1]'");
}

absl::Status ReadSkew(Parts& parts, double* alpha) {
  const std::optional<absl::string_view> text = parts.NextIf('a');
  if (!text.has_value()) return absl::OkStatus();
  const auto result =
      std::from_chars(text->data(), text->data() + text->size(), *alpha);
  if (result.ec == std::errc() && result.ptr == text->data() + text->size()) {
    return absl::OkStatus();
  }
  return NotAllowed("skew", Quoted(*text), "a number");
}

absl::StatusOr<WeightFormat> ReadWeightFormat(absl::string_view part) {
  WeightFormat format;
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(part, absl::MaxSplits(':', 1));
  ASSIGN_OR_RETURN(format.number, ParseNumberFormat(halves.first));
  if (!halves.second.empty() &&
      !absl::SimpleAtoi(halves.second, &format.group_size)) {
    return NotAllowed("format group", Quoted(halves.second), "a 64-bit number");
  }
  return format;
}

absl::StatusOr<MeasurementKey> ReadCollective(absl::string_view op,
                                              Parts& parts) {
  CollectiveKey key;
  ASSIGN_OR_RETURN(key.op, ParseCollectiveOp(op));
  RETURN_IF_ERROR(ReadGroup(parts.Next(), &key.group));
  ASSIGN_OR_RETURN(key.implementation, ParseCollectiveImpl(parts.Next()));
  ASSIGN_OR_RETURN(key.launch, ParseLaunch(parts.Next()));
  if (const auto groups = parts.NextIf('x')) {
    RETURN_IF_ERROR(
        ReadInt("concurrent groups", *groups, &key.concurrent_groups));
  }
  RETURN_IF_ERROR(ReadSkew(parts, &key.skew_alpha));
  RETURN_IF_ERROR(ReadSize(parts.Next(), &key.size_bytes));
  return key;
}

absl::StatusOr<MeasurementKey> ReadGemm(Parts& parts) {
  GemmKey key;
  ASSIGN_OR_RETURN(key.format, ParseNumberFormat(parts.Next()));
  RETURN_IF_ERROR(
      ReadFields(parts.Next(), {{"m", &key.m}, {"n", &key.n}, {"k", &key.k}}));
  return key;
}

absl::StatusOr<MeasurementKey> ReadExperts(Parts& parts) {
  ExpertsKey key;
  ASSIGN_OR_RETURN(key.format, ReadWeightFormat(parts.Next()));
  RETURN_IF_ERROR(ReadFields(parts.Next(), {{"h", &key.hidden_size},
                                            {"i", &key.intermediate_size},
                                            {"e", &key.num_experts},
                                            {"k", &key.experts_per_token}}));
  RETURN_IF_ERROR(ReadFields(
      parts.Next(), {{"tp", &key.moe_tp}, {"ep", &key.expert_parallel}}));
  RETURN_IF_ERROR(ReadSkew(parts, &key.skew_alpha));
  RETURN_IF_ERROR(ReadFields(parts.Next(), {{"t", &key.tokens}}));
  return key;
}

absl::StatusOr<MeasurementKey> ReadAttention(Parts& parts) {
  AttentionKey key;
  const absl::string_view kind = parts.Next();
  if (kind != "mla" && kind != "gqa") {
    return NotAllowed("attention", Quoted(kind), "gqa, mla");
  }
  key.latent = kind == "mla";
  ASSIGN_OR_RETURN(key.kv_format, ParseNumberFormat(parts.Next()));
  RETURN_IF_ERROR(ReadFields(parts.Next(), {{"b", &key.batch},
                                            {"q", &key.query_tokens},
                                            {"c", &key.context_tokens}}));
  RETURN_IF_ERROR(ReadFields(
      parts.Next(),
      {{"h", &key.q_heads}, {"kv", &key.kv_heads}, {"d", &key.head_dim}}));
  return key;
}

absl::StatusOr<MeasurementKey> ReadMemory(Parts& parts) {
  MemoryKey key;
  ASSIGN_OR_RETURN(key.op, ParseName<MemoryOp>(kMemoryOps, "memory operation",
                                               parts.Next()));
  RETURN_IF_ERROR(ReadSize(parts.Next(), &key.size_bytes));
  return key;
}

absl::StatusOr<MeasurementKey> ReadLaunch(Parts& parts) {
  const absl::string_view what = parts.Next();
  if (what == "graph_node") return LaunchKey{};
  return NotAllowed("launch", Quoted(what), "graph_node");
}

absl::StatusOr<MeasurementKey> ReadExchange(Parts& parts) {
  ExchangeKey key;
  ASSIGN_OR_RETURN(
      key.implementation,
      ParseName<ExchangeImpl>(kExchanges, "exchange", parts.Next()));
  ASSIGN_OR_RETURN(key.stage, ParseName<ExchangeStage>(
                                  kStages, "exchange stage", parts.Next()));
  RETURN_IF_ERROR(ReadGroup(parts.Next(), &key.group));
  RETURN_IF_ERROR(ReadFields(parts.Next(), {{"h", &key.hidden_size},
                                            {"e", &key.num_experts},
                                            {"k", &key.experts_per_token}}));
  RETURN_IF_ERROR(ReadFields(parts.Next(), {{"t", &key.tokens_per_rank}}));
  return key;
}

absl::StatusOr<MeasurementKey> ReadKey(Parts& parts) {
  const absl::string_view family = parts.Next();
  if (family == "gemm") return ReadGemm(parts);
  if (family == "experts") return ReadExperts(parts);
  if (family == "attention") return ReadAttention(parts);
  if (family == "memory") return ReadMemory(parts);
  if (family == "launch") return ReadLaunch(parts);
  if (family == "exchange") return ReadExchange(parts);
  for (const auto& [op, name] : kOps) {
    if (name == family) return ReadCollective(family, parts);
  }
  return NotAllowed("family", Quoted(family),
                    "a collective's name, gemm, experts, attention, memory, "
                    "launch, exchange");
}

absl::Status AllWithin(
    std::initializer_list<std::pair<absl::string_view, int64_t>> sizes) {
  for (const auto& [what, value] : sizes) {
    RETURN_IF_ERROR(CheckRange(what, value, 1, kMaxKeySize));
  }
  return absl::OkStatus();
}

absl::Status CheckSkew(double alpha) {
  return CheckRange("skew_alpha", alpha, 0.0, kMaxSkewAlpha);
}

absl::Status CheckGroup(const GpuGroup& group) {
  RETURN_IF_ERROR(
      CheckRange("group.size", int64_t{group.size}, 2, kMaxGroupGpus));
  if (group.members.empty()) return absl::OkStatus();
  for (const char c : group.members) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        !absl::StrContains("._-:,;", c)) {
      return NotAllowed("group.members", Quoted(group.members),
                        "letters, digits and . _ - : , ;");
    }
  }
  const auto separators =
      std::count_if(group.members.begin(), group.members.end(),
                    [](char c) { return c == ',' || c == ';'; });
  if (separators + 1 == group.size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("group.members ", Quoted(group.members), " names ",
                   separators + 1, " GPUs; allowed: group.size, ", group.size));
}

absl::Status CheckFormat(const WeightFormat& format) {
  const bool grouped = format.number == NumberFormat::kInt4Group;
  return CheckRange("format.group_size", format.group_size, grouped ? 1 : 0,
                    grouped ? kMaxKeySize : 0);
}

absl::Status Check(const CollectiveKey& key) {
  RETURN_IF_ERROR(CheckGroup(key.group));
  RETURN_IF_ERROR(CheckRange("concurrent_groups",
                             int64_t{key.concurrent_groups}, 1, kMaxGroupGpus));
  RETURN_IF_ERROR(CheckSkew(key.skew_alpha));
  return AllWithin({{"size_bytes", key.size_bytes}});
}

absl::Status Check(const GemmKey& key) {
  return AllWithin({{"m", key.m}, {"n", key.n}, {"k", key.k}});
}

absl::Status Check(const ExpertsKey& key) {
  RETURN_IF_ERROR(CheckFormat(key.format));
  RETURN_IF_ERROR(CheckSkew(key.skew_alpha));
  RETURN_IF_ERROR(AllWithin({{"hidden_size", key.hidden_size},
                             {"intermediate_size", key.intermediate_size},
                             {"num_experts", key.num_experts},
                             {"moe_tp", key.moe_tp},
                             {"tokens", key.tokens}}));
  RETURN_IF_ERROR(CheckRange("experts_per_token", key.experts_per_token, 1,
                             key.num_experts));
  return CheckRange("expert_parallel", key.expert_parallel, 1, key.num_experts);
}

absl::Status Check(const AttentionKey& key) {
  RETURN_IF_ERROR(AllWithin({{"batch", key.batch},
                             {"query_tokens", key.query_tokens},
                             {"context_tokens", key.context_tokens},
                             {"q_heads", key.q_heads},
                             {"kv_heads", key.kv_heads},
                             {"head_dim", key.head_dim}}));
  return CheckRange("query_tokens", key.query_tokens, 1, key.context_tokens);
}

absl::Status Check(const MemoryKey& key) {
  return AllWithin({{"size_bytes", key.size_bytes}});
}

absl::Status Check(const LaunchKey&) { return absl::OkStatus(); }

absl::Status Check(const ExchangeKey& key) {
  RETURN_IF_ERROR(CheckGroup(key.group));
  RETURN_IF_ERROR(AllWithin({{"hidden_size", key.hidden_size},
                             {"num_experts", key.num_experts},
                             {"tokens_per_rank", key.tokens_per_rank}}));
  return CheckRange("experts_per_token", key.experts_per_token, 1,
                    key.num_experts);
}

// A statistic is negative where it was not recorded.
absl::Status CheckStatistic(absl::string_view what, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return NotAllowed(what, absl::StrCat(value), "a finite number");
}

absl::Status Check(const Statistics& statistics) {
  if (!(statistics.median_seconds > 0) ||
      !std::isfinite(statistics.median_seconds)) {
    return NotAllowed("median_seconds", absl::StrCat(statistics.median_seconds),
                      "positive and finite");
  }
  RETURN_IF_ERROR(CheckStatistic("iqr_seconds", statistics.iqr_seconds));
  RETURN_IF_ERROR(CheckStatistic("iqr_seconds over median_seconds",
                                 RelativeSigma(statistics)));
  RETURN_IF_ERROR(CheckStatistic("p99_seconds", statistics.p99_seconds));
  RETURN_IF_ERROR(CheckStatistic("sm_clock_hertz", statistics.sm_clock_hertz));
  RETURN_IF_ERROR(CheckRange("samples", statistics.samples, 0, kMaxKeySize));
  return CheckRange("discarded", statistics.discarded, 0, kMaxKeySize);
}

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(context, ": ", status.message()));
}

}  // namespace

std::string ToString(const MeasurementKey& key) {
  return std::visit([](const auto& k) { return Text(k); }, key);
}

absl::StatusOr<MeasurementKey> ParseMeasurementKey(absl::string_view text) {
  const std::string context = absl::StrCat("measurement key ", Quoted(text));
  Parts parts(text);
  absl::StatusOr<MeasurementKey> key = ReadKey(parts);
  if (!key.ok()) return Annotate(key.status(), context);
  RETURN_IF_ERROR(Annotate(parts.End(), context));
  RETURN_IF_ERROR(Annotate(Validate(*key), context));
  // One key has one text: no leading zeros, no "x1".
  if (const std::string canonical = ToString(*key); canonical != text) {
    return absl::InvalidArgumentError(
        absl::StrCat(context, ": is not canonical; allowed: ", canonical));
  }
  return key;
}

std::string ToString(const GpuGroup& group) {
  return group.members.empty()
             ? absl::StrCat("n", group.size)
             : absl::StrCat("n", group.size, "[", group.members, "]");
}

absl::Status Validate(const MeasurementKey& key) {
  return std::visit([](const auto& k) { return Check(k); }, key);
}

absl::Status Validate(const Measurement& measurement) {
  absl::Status status = Validate(measurement.key);
  if (status.ok()) status = Check(measurement.statistics);
  if (status.ok()) return status;
  return Annotate(status, ToString(measurement.key));
}

double RelativeSigma(const Statistics& statistics) {
  if (statistics.iqr_seconds < 0) return kUnrecordedSigma;
  return statistics.iqr_seconds / kNormalIqr / statistics.median_seconds;
}

absl::string_view ToString(CollectiveOp op) {
  return NameOf<CollectiveOp>(kOps, op);
}
absl::string_view ToString(CollectiveImpl implementation) {
  return NameOf<CollectiveImpl>(kImpls, implementation);
}
absl::string_view ToString(Launch launch) {
  return NameOf<Launch>(kLaunches, launch);
}
absl::string_view ToString(MemoryOp op) {
  return NameOf<MemoryOp>(kMemoryOps, op);
}
absl::string_view ToString(ExchangeImpl implementation) {
  return NameOf<ExchangeImpl>(kExchanges, implementation);
}
absl::string_view ToString(ExchangeStage stage) {
  return NameOf<ExchangeStage>(kStages, stage);
}
absl::string_view ToString(Origin origin) {
  return NameOf<Origin>(kOrigins, origin);
}
absl::string_view ToString(StopReason reason) {
  return NameOf<StopReason>(kStopReasons, reason);
}
absl::StatusOr<CollectiveOp> ParseCollectiveOp(absl::string_view text) {
  return ParseName<CollectiveOp>(kOps, "collective", text);
}
absl::StatusOr<CollectiveImpl> ParseCollectiveImpl(absl::string_view text) {
  return ParseName<CollectiveImpl>(kImpls, "implementation", text);
}
absl::StatusOr<Launch> ParseLaunch(absl::string_view text) {
  return ParseName<Launch>(kLaunches, "launch", text);
}
absl::StatusOr<Origin> ParseOrigin(absl::string_view text) {
  return ParseName<Origin>(kOrigins, "origin", text);
}
absl::StatusOr<StopReason> ParseStopReason(absl::string_view text) {
  return ParseName<StopReason>(kStopReasons, "stop reason", text);
}

}  // namespace fabricwise
