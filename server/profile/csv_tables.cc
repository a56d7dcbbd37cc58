// SPDX-License-Identifier: Apache-2.0
//
// The kinds of CSV tables, one function a kind.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/csv.h"
#include "server/profile/decimal.h"
#include "server/profile/import.h"
#include "server/profile/imported.h"

namespace fabricwise {
namespace {

// GPUs of one node in tables that count nodes (their own headers say so).
constexpr int kGpusPerNode = 8;

// Streaming multiprocessors that DeepEP's normal mode takes by default
// (deep_ep.Buffer.num_sms) and vLLM leaves it (deepep_ht): of a table that
// holds several settings, the one that runs.
constexpr int64_t kDeepEpSms = 20;

struct Reading {
  const CsvTable& table;
  const ImportHints& hints;
  Imported* imported;
  std::map<std::string, int64_t> left_out;  // why -> rows

  void Add(MeasurementKey key, Statistics statistics, Origin origin,
           absl::string_view detail, ExpertsObserved experts = {}) {
    Measurement measurement;
    measurement.key = std::move(key);
    measurement.statistics = std::move(statistics);
    measurement.experts = experts;
    measurement.origin = origin;
    measurement.source =
        absl::StrCat(table.name(), detail.empty() ? "" : ", ", detail);
    imported->measurements.push_back(std::move(measurement));
  }
};

using Row = CsvTable::Row;

absl::StatusOr<GpuGroup> GroupOf(const Row& row, absl::string_view column,
                                 int factor = 1) {
  ASSIGN_OR_RETURN(const int64_t size, row.Int(column, factor == 1 ? 2 : 1,
                                               kMaxGroupGpus / factor));
  return GpuGroup{.size = static_cast<int>(size) * factor};
}

// nullopt: an int4 format whose group size nobody stated.
absl::StatusOr<std::optional<WeightFormat>> FormatOf(const Row& row,
                                                     Reading& reading) {
  const absl::string_view text = row.Text("dtype");
  if (text == "bfloat16" || text == "float16") {
    return WeightFormat{NumberFormat::kBf16};  // the same bytes
  }
  if (text == "w4a16_mxfp4") return WeightFormat{NumberFormat::kMxfp4};
  if (text == "int4_wo") {
    if (reading.hints.int4_group_size > 0) {
      return WeightFormat{NumberFormat::kInt4Group,
                          reading.hints.int4_group_size};
    }
    ++reading.left_out["int4 without a stated group size"];
    return std::nullopt;
  }
  absl::StatusOr<NumberFormat> number = ParseNumberFormat(text);
  if (!number.ok()) {
    return row.Refuse("dtype",
                      "bfloat16, float16, bf16, fp8, fp8_block, nvfp4, mxfp4, "
                      "w4a16_mxfp4, int4_wo");
  }
  return WeightFormat{*number};
}

absl::StatusOr<Statistics> TimeOf(const Row& row) {
  Statistics statistics;
  ASSIGN_OR_RETURN(statistics.median_seconds, row.Seconds("time_us"));
  ASSIGN_OR_RETURN(statistics.iqr_seconds, row.SecondsOrNone("iqr_us"));
  return statistics;
}

// "op: all_gather" among "; "-separated facts of the comments, or empty.
absl::string_view Fact(const CsvTable& table, absl::string_view label) {
  for (const std::string& comment : table.comments()) {
    for (absl::string_view fact : absl::StrSplit(comment, "; ")) {
      if (absl::ConsumePrefix(&fact, label)) return fact;
    }
  }
  return "";
}

// A sweep of nccl-tests as size_bytes, time_us; what was swept is in its
// comments.
absl::Status ReadNcclSweep(const Row& row, Reading& reading) {
  const CsvTable& table = reading.table;
  const auto op = CollectiveOfProgram(Fact(table, "op: "));
  if (!op.has_value()) {
    return row.Annotate(
        NotAllowed("'op: ' in the comments", Quoted(Fact(table, "op: ")),
                   "all_reduce, all_gather, reduce_scatter, alltoall, "
                   "sendrecv"));
  }
  int gpus = 0;
  if (!absl::SimpleAtoi(Fact(table, "ngpus: "), &gpus)) {
    return row.Annotate(NotAllowed("'ngpus: ' in the comments",
                                   Quoted(Fact(table, "ngpus: ")), "a number"));
  }
  // nccl-tests runs eagerly unless told -G.
  const bool graph =
      std::any_of(table.comments().begin(), table.comments().end(),
                  [](const std::string& comment) {
                    return absl::StrContains(comment, "-G ");
                  });
  CollectiveKey key{.op = *op,
                    .group = {.size = gpus},
                    .launch = graph ? Launch::kGraph : Launch::kEager};
  ASSIGN_OR_RETURN(key.size_bytes, row.Size("size_bytes"));
  ASSIGN_OR_RETURN(Statistics statistics, TimeOf(row));
  const absl::string_view version = Fact(table, "NCCL ");
  reading.Add(key, std::move(statistics), Origin::kReference,
              version.empty() ? "" : absl::StrCat("NCCL ", version));
  return absl::OkStatus();
}

// The all-reduce of the serving engines themselves.
absl::Status ReadCustomAllReduce(const Row& row, Reading& reading) {
  static constexpr std::pair<absl::string_view, CollectiveImpl> kFrameworks[] =
      {{"vllm", CollectiveImpl::kVllmCustom},
       {"sglang", CollectiveImpl::kSglangCustom},
       {"trtllm", CollectiveImpl::kTrtllm}};
  const auto framework = std::find_if(
      std::begin(kFrameworks), std::end(kFrameworks),
      [&](const auto& entry) { return entry.first == row.Text("framework"); });
  if (framework == std::end(kFrameworks)) {
    return row.Refuse("framework", "vllm, sglang, trtllm");
  }
  const absl::string_view backend = row.Text("backend");
  const bool eager = absl::EndsWith(backend, "_eager");
  // TensorRT-LLM was measured in a CUDA graph and names no launch.
  if (!eager && !absl::EndsWith(backend, "_graph") &&
      framework->second != CollectiveImpl::kTrtllm) {
    return row.Refuse("backend", "a name that ends in _graph or _eager");
  }
  CollectiveKey key{.op = CollectiveOp::kAllReduce,
                    .implementation = framework->second,
                    .launch = eager ? Launch::kEager : Launch::kGraph};
  ASSIGN_OR_RETURN(key.group, GroupOf(row, "num_gpus"));
  ASSIGN_OR_RETURN(key.size_bytes, row.Size("size_bytes"));
  ASSIGN_OR_RETURN(Statistics statistics, TimeOf(row));
  reading.Add(key, std::move(statistics), Origin::kReference,
              absl::StrCat(row.Text("framework"), " ", row.Text("version")));
  return absl::OkStatus();
}

absl::Status ReadGemmAs(const Row& row, Reading& reading, Origin origin) {
  ASSIGN_OR_RETURN(const std::optional<WeightFormat> format,
                   FormatOf(row, reading));
  if (!format.has_value()) return absl::OkStatus();
  GemmKey key{.format = format->number};
  ASSIGN_OR_RETURN(key.m, row.Size("m"));
  ASSIGN_OR_RETURN(key.n, row.Size("n"));
  ASSIGN_OR_RETURN(key.k, row.Size("k"));
  ASSIGN_OR_RETURN(Statistics statistics, TimeOf(row));
  reading.Add(key, std::move(statistics), origin, row.Text("kernel"));
  return absl::OkStatus();
}

absl::Status ReadGemm(const Row& row, Reading& reading) {
  return ReadGemmAs(row, reading, Origin::kReference);
}

absl::Status ReadOwnGemm(const Row& row, Reading& reading) {
  return ReadGemmAs(row, reading, Origin::kMeasured);
}

absl::StatusOr<double> SkewOf(const Row& row) {
  absl::string_view text = row.Text("distribution");
  if (text == "balanced" || text == "uniform") return 0;
  if (absl::ConsumePrefix(&text, "power_law_")) {
    if (const std::optional<double> alpha = ParseDecimal(text)) return *alpha;
  }
  return row.Refuse("distribution", "balanced, uniform, power_law_<exponent>");
}

// The routed experts of one layer, as aiconfigurator measured the engines'
// kernels. Its "balanced" routing stands as skew 0.
absl::Status ReadExperts(const Row& row, Reading& reading) {
  ASSIGN_OR_RETURN(const std::optional<WeightFormat> format,
                   FormatOf(row, reading));
  if (!format.has_value()) return absl::OkStatus();
  ExpertsKey key{.format = *format};
  ASSIGN_OR_RETURN(key.hidden_size, row.Size("hidden"));
  ASSIGN_OR_RETURN(key.intermediate_size, row.Size("inter"));
  ASSIGN_OR_RETURN(key.num_experts, row.Size("experts"));
  ASSIGN_OR_RETURN(key.experts_per_token, row.Size("topk"));
  ASSIGN_OR_RETURN(key.moe_tp, row.Size("moe_tp"));
  ASSIGN_OR_RETURN(key.expert_parallel, row.Size("moe_ep"));
  ASSIGN_OR_RETURN(key.skew_alpha, SkewOf(row));
  ASSIGN_OR_RETURN(key.tokens, row.Size("num_tokens"));
  ASSIGN_OR_RETURN(Statistics statistics, TimeOf(row));
  reading.Add(key, std::move(statistics), Origin::kReference,
              row.Text("kernel"));
  return absl::OkStatus();
}

absl::Status ReadOwnExperts(const Row& row, Reading& reading) {
  ASSIGN_OR_RETURN(const std::optional<WeightFormat> format,
                   FormatOf(row, reading));
  if (!format.has_value()) return absl::OkStatus();
  ExpertsKey key{.format = *format};
  ASSIGN_OR_RETURN(key.hidden_size, row.Size("hidden"));
  ASSIGN_OR_RETURN(key.intermediate_size, row.Size("intermediate"));
  ASSIGN_OR_RETURN(key.num_experts, row.Size("experts"));
  ASSIGN_OR_RETURN(key.experts_per_token, row.Size("topk"));
  ASSIGN_OR_RETURN(key.moe_tp, row.Size("moe_tp"));
  ASSIGN_OR_RETURN(key.expert_parallel, row.Size("moe_ep"));
  ASSIGN_OR_RETURN(key.tokens, row.Size("tokens"));
  ExpertsObserved observed;
  ASSIGN_OR_RETURN(observed.rows_local, row.Int("rows_local", 0, kMaxKeySize));
  ASSIGN_OR_RETURN(observed.experts_hit,
                   row.Int("experts_hit", 0, key.num_experts));
  ASSIGN_OR_RETURN(Statistics statistics, TimeOf(row));
  reading.Add(key, std::move(statistics), Origin::kMeasured, "", observed);
  return absl::OkStatus();
}

absl::Status ReadOwnMemory(const Row& row, Reading& reading) {
  ASSIGN_OR_RETURN(Statistics statistics, TimeOf(row));
  const absl::string_view op = row.Text("op");
  if (op == "graph_kernel_node") {
    reading.Add(LaunchKey{}, std::move(statistics), Origin::kMeasured, "");
    return absl::OkStatus();
  }
  if (op != "read" && op != "copy") {
    return row.Refuse("op", "read, copy, graph_kernel_node");
  }
  MemoryKey key{.op = op == "read" ? MemoryOp::kRead : MemoryOp::kCopy};
  ASSIGN_OR_RETURN(key.size_bytes, row.Size("bytes"));
  reading.Add(key, std::move(statistics), Origin::kMeasured, "");
  return absl::OkStatus();
}

absl::StatusOr<ExchangeKey> ExchangeOf(const Row& row,
                                       ExchangeImpl implementation) {
  ExchangeKey key{.implementation = implementation};
  ASSIGN_OR_RETURN(key.group, GroupOf(row, "node_num", kGpusPerNode));
  ASSIGN_OR_RETURN(key.hidden_size, row.Size("hidden_size"));
  ASSIGN_OR_RETURN(key.num_experts, row.Size("num_experts"));
  ASSIGN_OR_RETURN(key.experts_per_token, row.Size("num_topk"));
  ASSIGN_OR_RETURN(key.tokens_per_rank, row.Size("num_token"));
  return key;
}

void AddStage(ExchangeKey key, ExchangeStage stage, double seconds,
              absl::string_view detail, Reading& reading) {
  key.stage = stage;
  reading.Add(key, {.median_seconds = seconds}, Origin::kReference, detail);
}

absl::Status ReadDeepEpLowLatency(const Row& row, Reading& reading) {
  ASSIGN_OR_RETURN(const ExchangeKey key,
                   ExchangeOf(row, ExchangeImpl::kDeepEpLowLatency));
  ASSIGN_OR_RETURN(const double dispatch, row.Seconds("dispatch_us"));
  ASSIGN_OR_RETURN(const double combine, row.Seconds("combine_us"));
  AddStage(key, ExchangeStage::kDispatch, dispatch, "", reading);
  AddStage(key, ExchangeStage::kCombine, combine, "", reading);
  return absl::OkStatus();
}

absl::Status ReadDeepEpNormal(const Row& row, Reading& reading) {
  ASSIGN_OR_RETURN(const ExchangeKey key,
                   ExchangeOf(row, ExchangeImpl::kDeepEpHighThroughput));
  for (const auto& [stage, name] :
       {std::pair(ExchangeStage::kDispatch, "dispatch"),
        std::pair(ExchangeStage::kCombine, "combine")}) {
    ASSIGN_OR_RETURN(const int64_t sms, row.Size(absl::StrCat(name, "_sms")));
    ASSIGN_OR_RETURN(const double transmit,
                     row.Seconds(absl::StrCat(name, "_transmit_us")));
    ASSIGN_OR_RETURN(const double notify,
                     row.SecondsOrNone(absl::StrCat(name, "_notify_us")));
    if (sms != kDeepEpSms) {
      ++reading.left_out[absl::StrCat(name, " with ", sms, " SMs where ",
                                      kDeepEpSms, " run")];
      continue;
    }
    AddStage(key, stage, transmit + std::max(notify, 0.0),
             absl::StrCat(sms, " SMs"), reading);
  }
  return absl::OkStatus();
}

// The published table of DeepEP. Only its low-latency rows have times; what
// they were measured at stands in a comment: "V1 low-latency: 128 tokens/batch,
// hidden 7168, top-8 of 256".
absl::Status ReadDeepEpReadme(const Row& row, Reading& reading) {
  if (row.Text("mode") != "low_latency") {
    ++reading.left_out["no time, a bandwidth only"];
    return absl::OkStatus();
  }
  ExchangeKey key{.implementation = ExchangeImpl::kDeepEpLowLatency};
  absl::string_view facts = Fact(reading.table, "V1 low-latency: ");
  int values = 0;
  for (int64_t* value : {&key.tokens_per_rank, &key.hidden_size,
                         &key.experts_per_token, &key.num_experts}) {
    const size_t from =
        std::min(facts.find_first_of("0123456789"), facts.size());
    const size_t to =
        std::min(facts.find_first_not_of("0123456789", from), facts.size());
    values += absl::SimpleAtoi(facts.substr(from, to - from), value) ? 1 : 0;
    facts.remove_prefix(to);
  }
  if (values != 4) {
    return row.Annotate(absl::InvalidArgumentError(
        "no comment says 'V1 low-latency: <tokens> tokens/batch, hidden "
        "<size>, top-<k> of <experts>'"));
  }
  ASSIGN_OR_RETURN(key.group, GroupOf(row, "ep"));
  ASSIGN_OR_RETURN(const double dispatch, row.Seconds("dispatch_us"));
  ASSIGN_OR_RETURN(const double combine, row.Seconds("combine_us"));
  AddStage(key, ExchangeStage::kDispatch, dispatch, row.Text("link"), reading);
  AddStage(key, ExchangeStage::kCombine, combine, row.Text("link"), reading);
  return absl::OkStatus();
}

absl::Status ReadPplxReadme(const Row& row, Reading&) {
  return row.Annotate(absl::InvalidArgumentError(
      "the table says neither hidden size nor experts, so that nothing can be "
      "asked of it; measure with columns hidden_size, num_experts, num_topk"));
}

struct Kind {
  absl::string_view name;
  std::vector<absl::string_view> columns;  // that it is known by
  absl::Status (*read)(const Row& row, Reading& reading);
};

// The first kind whose columns are all there.
const std::vector<Kind>& Kinds() {
  static const auto* kinds = new std::vector<Kind>{
      {"all-reduce of the engines",
       {"system", "framework", "version", "backend", "num_gpus", "size_bytes",
        "time_us"},
       ReadCustomAllReduce},
      {"nccl-tests sweep", {"size_bytes", "time_us"}, ReadNcclSweep},
      {"products by system",
       {"system", "dtype", "kernel", "m", "n", "k", "time_us"},
       ReadGemm},
      {"products", {"dtype", "m", "n", "k", "time_us"}, ReadOwnGemm},
      {"experts by system",
       {"system", "hidden", "inter", "topk", "experts", "dtype", "kernel",
        "moe_tp", "moe_ep", "distribution", "num_tokens", "time_us"},
       ReadExperts},
      {"experts",
       {"dtype", "hidden", "intermediate", "experts", "topk", "moe_tp",
        "moe_ep", "tokens", "rows_local", "experts_hit", "time_us"},
       ReadOwnExperts},
      {"memory", {"op", "bytes", "time_us"}, ReadOwnMemory},
      {"DeepEP low latency",
       {"node_num", "hidden_size", "num_token", "num_topk", "num_experts",
        "dispatch_us", "combine_us"},
       ReadDeepEpLowLatency},
      {"DeepEP normal",
       {"node_num", "hidden_size", "num_token", "num_topk", "num_experts",
        "dispatch_sms", "dispatch_transmit_us", "combine_sms",
        "combine_transmit_us"},
       ReadDeepEpNormal},
      {"DeepEP's published table",
       {"version", "mode", "ep", "link", "dispatch_us", "combine_us"},
       ReadDeepEpReadme},
      {"pplx's published table",
       {"tokens_per_gpu", "kernel", "stage"},
       ReadPplxReadme},
  };
  return *kinds;
}

// The one system whose rows are read; empty where the table has no such column.
absl::StatusOr<std::string> SystemOf(const CsvTable& table,
                                     const ImportHints& hints) {
  if (!table.HasColumns({"system"})) return std::string();
  std::set<std::string> systems;
  for (size_t i = 0; i < table.size(); ++i) {
    systems.emplace(table.row(i).Text("system"));
  }
  if (hints.system.empty() && systems.size() == 1) return *systems.begin();
  if (systems.contains(hints.system)) return hints.system;
  return NotAllowed(absl::StrCat(table.name(), ": the system to read"),
                    Quoted(hints.system), absl::StrJoin(systems, ", "));
}

}  // namespace

std::vector<CsvKind> CsvKinds() {
  std::vector<CsvKind> kinds;
  for (const Kind& kind : Kinds()) kinds.push_back({kind.name, kind.columns});
  return kinds;
}

absl::StatusOr<Imported> ImportCsv(const std::string& name,
                                   const std::string& content,
                                   const ImportHints& hints) {
  ASSIGN_OR_RETURN(const CsvTable table, CsvTable::Parse(name, content));
  const auto kind =
      std::find_if(Kinds().begin(), Kinds().end(), [&](const Kind& candidate) {
        return table.HasColumns(candidate.columns);
      });
  if (kind == Kinds().end()) {
    return NotAllowed(
        absl::StrCat(name, ": the set of columns"),
        Quoted(absl::StrJoin(table.columns(), ",")),
        absl::StrJoin(Kinds(), "; ", [](std::string* out, const Kind& known) {
          absl::StrAppend(out, known.name, ": ",
                          absl::StrJoin(known.columns, ","));
        }));
  }
  ASSIGN_OR_RETURN(const std::string system, SystemOf(table, hints));

  Imported imported;
  Reading reading{.table = table, .hints = hints, .imported = &imported};
  for (size_t i = 0; i < table.size(); ++i) {
    const Row row = table.row(i);
    if (!system.empty() && row.Text("system") != system) continue;
    const size_t before = imported.measurements.size();
    RETURN_IF_ERROR(kind->read(row, reading));
    for (size_t j = before; j < imported.measurements.size(); ++j) {
      RETURN_IF_ERROR(row.Annotate(Validate(imported.measurements[j])));
    }
  }
  if (!system.empty()) {
    imported.notes.push_back(absl::StrCat(name, ": rows of ", system));
  }
  for (const absl::string_view label : {"hardware: ", "caution: "}) {
    for (const std::string& comment : table.comments()) {
      if (absl::StartsWith(comment, label)) {
        imported.notes.push_back(absl::StrCat(name, ": ", comment));
      }
    }
  }
  for (const auto& [why, rows] : reading.left_out) {
    imported.notes.push_back(
        absl::StrCat(name, ": ", rows, " rows left out: ", why));
  }
  return imported;
}

}  // namespace fabricwise
