// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/convert.h"

#include <array>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/argument.h"
#include "server/base/status_macros.h"
#include "server/profile/profile_file.h"

namespace fabricwise {
namespace {

// Enums. The way out is a switch, so that the compiler misses no value; the way
// in looks for the value whose way out it is.

v1::NumberFormat ToProto(NumberFormat format) {
  switch (format) {
    case NumberFormat::kBf16:
      return v1::NUMBER_FORMAT_BF16;
    case NumberFormat::kFp8Block:
      return v1::NUMBER_FORMAT_FP8_BLOCK;
    case NumberFormat::kFp8:
      return v1::NUMBER_FORMAT_FP8;
    case NumberFormat::kInt4Group:
      return v1::NUMBER_FORMAT_INT4_GROUP;
    case NumberFormat::kMxfp4:
      return v1::NUMBER_FORMAT_MXFP4;
    case NumberFormat::kNvfp4:
      return v1::NUMBER_FORMAT_NVFP4;
  }
  return v1::NUMBER_FORMAT_UNSPECIFIED;
}

v1::AttentionKind ToProto(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kGqa:
      return v1::ATTENTION_KIND_GQA;
    case AttentionKind::kMla:
      return v1::ATTENTION_KIND_MLA;
  }
  return v1::ATTENTION_KIND_UNSPECIFIED;
}

v1::Phase ToProto(Phase phase) {
  switch (phase) {
    case Phase::kSteadyState:
      return v1::PHASE_STEADY_STATE;
    case Phase::kDecode:
      return v1::PHASE_DECODE;
    case Phase::kPrefill:
      return v1::PHASE_PREFILL;
  }
  return v1::PHASE_UNSPECIFIED;
}

v1::Objective ToProto(Objective objective) {
  switch (objective) {
    case Objective::kThroughput:
      return v1::OBJECTIVE_THROUGHPUT;
    case Objective::kLatency:
      return v1::OBJECTIVE_LATENCY;
    case Objective::kThroughputInLimits:
      return v1::OBJECTIVE_THROUGHPUT_IN_LIMITS;
  }
  return v1::OBJECTIVE_UNSPECIFIED;
}

v1::CostScope ToProto(CostScope scope) {
  switch (scope) {
    case CostScope::kStep:
      return v1::COST_SCOPE_STEP;
    case CostScope::kCommunication:
      return v1::COST_SCOPE_COMMUNICATION;
  }
  return v1::COST_SCOPE_UNSPECIFIED;
}

v1::ExpertTransport ToProto(ExpertTransport transport) {
  switch (transport) {
    case ExpertTransport::kNone:
      return v1::EXPERT_TRANSPORT_NONE;
    case ExpertTransport::kAllGatherReduceScatter:
      return v1::EXPERT_TRANSPORT_ALL_GATHER_REDUCE_SCATTER;
    case ExpertTransport::kNcclAllToAll:
      return v1::EXPERT_TRANSPORT_NCCL_ALL_TO_ALL;
    case ExpertTransport::kDeepEpLowLatency:
      return v1::EXPERT_TRANSPORT_DEEPEP_LOW_LATENCY;
    case ExpertTransport::kDeepEpHighThroughput:
      return v1::EXPERT_TRANSPORT_DEEPEP_HIGH_THROUGHPUT;
    case ExpertTransport::kFlashinferNvlink:
      return v1::EXPERT_TRANSPORT_FLASHINFER_NVLINK;
  }
  return v1::EXPERT_TRANSPORT_UNSPECIFIED;
}

v1::StopReason ToProto(StopReason reason) {
  switch (reason) {
    case StopReason::kUnknown:
      return v1::STOP_REASON_UNSPECIFIED;
    case StopReason::kGood:
      return v1::STOP_REASON_GOOD;
    case StopReason::kSettledNoisy:
      return v1::STOP_REASON_SETTLED_NOISY;
    case StopReason::kOutOfBudget:
      return v1::STOP_REASON_OUT_OF_BUDGET;
  }
  return v1::STOP_REASON_UNSPECIFIED;
}

v1::Basis ToProto(Origin origin) {
  switch (origin) {
    case Origin::kMeasured:
      return v1::BASIS_MEASURED;
    case Origin::kReference:
      return v1::BASIS_REFERENCE;
  }
  return v1::BASIS_UNSPECIFIED;
}

constexpr std::array kNumberFormats = {
    NumberFormat::kBf16,      NumberFormat::kFp8Block, NumberFormat::kFp8,
    NumberFormat::kInt4Group, NumberFormat::kMxfp4,    NumberFormat::kNvfp4};
constexpr std::array kAttentionKinds = {AttentionKind::kGqa,
                                        AttentionKind::kMla};
constexpr std::array kPhases = {Phase::kSteadyState, Phase::kDecode,
                                Phase::kPrefill};
constexpr std::array kObjectives = {Objective::kThroughput, Objective::kLatency,
                                    Objective::kThroughputInLimits};
constexpr std::array kCostScopes = {CostScope::kStep,
                                    CostScope::kCommunication};
// A flag of ours for each value.
struct NamedOption {
  v1::PlanOption value;
  bool PlanOptions::*flag;
};
constexpr NamedOption kPlanOptions[] = {
    {v1::PLAN_OPTION_TWO_BATCH_OVERLAP, &PlanOptions::two_batch_overlap},
    {v1::PLAN_OPTION_FP8_DISPATCH, &PlanOptions::fp8_dispatch}};

constexpr std::array kEngines = {EngineId::kReference, EngineId::kVllm,
                                 EngineId::kSglang, EngineId::kTrtllm};

template <typename Message>
std::string EnumText(Message value) {
  const auto* descriptor =
      google::protobuf::GetEnumDescriptor<Message>()->FindValueByNumber(value);
  return descriptor == nullptr ? absl::StrCat(static_cast<int>(value))
                               : descriptor->name();
}

// Sets `value` to what `message` means. UNSPECIFIED leaves it at its default.
template <typename Message, typename Value, size_t n>
absl::Status EnumFromProto(Message message, const std::array<Value, n>& known,
                           absl::string_view field, Value* value) {
  if (static_cast<int>(message) == 0) return absl::OkStatus();
  for (const Value candidate : known) {
    if (ToProto(candidate) != message) continue;
    *value = candidate;
    return absl::OkStatus();
  }
  return NotAllowed(
      field, EnumText(message),
      absl::StrJoin(known, ", ", [](std::string* out, Value candidate) {
        out->append(EnumText(ToProto(candidate)));
      }));
}

absl::Status OptionFromProto(int value, PlanOptions* options) {
  constexpr absl::string_view kField = "plan_options";
  for (const NamedOption& option : kPlanOptions) {
    if (value != option.value) continue;
    if (options->*option.flag) {
      return NotAllowed(kField,
                        absl::StrCat(EnumText(option.value), " given twice"),
                        "each option once");
    }
    options->*option.flag = true;
    return absl::OkStatus();
  }
  return NotAllowed(
      kField, EnumText(static_cast<v1::PlanOption>(value)),
      absl::StrJoin(kPlanOptions, ", ",
                    [](std::string* out, const NamedOption& option) {
                      out->append(EnumText(option.value));
                    }));
}

absl::Status FromProto(const v1::WeightFormat& message, absl::string_view field,
                       WeightFormat* format) {
  RETURN_IF_ERROR(EnumFromProto(message.number(), kNumberFormats,
                                absl::StrCat(field, ".number"),
                                &format->number));
  format->group_size = message.group_size();
  return absl::OkStatus();
}

void ToProto(const WeightFormat& format, v1::WeightFormat* message) {
  message->set_number(ToProto(format.number));
  message->set_group_size(format.group_size);
}

// The epoch stands for "not known" among our times and is left absent.
template <typename Parent>
void SetTime(absl::Time time,
             google::protobuf::Timestamp* (Parent::*mutable_field)(),
             Parent* parent) {
  if (time == absl::UnixEpoch()) return;
  TimeToProto(time, (parent->*mutable_field)());
}

void ToProto(const MemoryUse& memory, v1::MemoryUse* message) {
  message->set_weights_bytes(memory.weights_bytes);
  message->set_kv_cache_bytes(memory.kv_cache_bytes);
  message->set_activation_bytes(memory.activation_bytes);
  message->set_communicator_bytes(memory.communicator_bytes);
  message->set_available_bytes(memory.available_bytes);
  message->set_fits(memory.fits);
  if (memory.max_concurrency.has_value()) {
    message->set_max_concurrency(*memory.max_concurrency);
  }
}

void ToProto(const Term& term, v1::Term* message) {
  message->set_name(term.name);
  message->set_seconds(term.seconds);
  message->set_count(term.count);
  message->set_basis(term.stated ? v1::BASIS_STATED
                                 : fabricwise::ToProto(term.standing));
  message->set_source(term.source);
  message->set_size(term.size);
  message->set_relative_sigma(term.relative_sigma);
  message->set_upper_bound(term.upper_bound);
  message->set_note(term.note);
  message->set_communication(term.communication);
}

void ToProto(const LaunchAdvice& launch, v1::Launch* message) {
  for (const std::string& command : launch.commands) {
    message->add_commands(command);
  }
  for (const std::string& variable : launch.environment) {
    message->add_environment(variable);
  }
  message->set_engine_version(launch.engine_version);
}

// The table that a measurement is in; empty: it is a point of a curve.
std::string TableName(const MeasurementKey& key) {
  struct Namer {
    std::string operator()(const CollectiveKey&) const { return ""; }
    std::string operator()(const ExchangeKey&) const { return ""; }
    std::string operator()(const GemmKey& gemm) const {
      return absl::StrCat("gemm ", ToString(gemm.format));
    }
    std::string operator()(const ExpertsKey& experts) const {
      return absl::StrCat("experts ", ToString(experts.format.number));
    }
    std::string operator()(const AttentionKey& attention) const {
      return attention.latent ? "attention latent" : "attention";
    }
    std::string operator()(const MemoryKey& memory) const {
      return absl::StrCat("memory ", ToString(memory.op));
    }
    std::string operator()(const LaunchKey&) const { return "launch"; }
  };
  return std::visit(Namer(), key);
}

}  // namespace

absl::StatusOr<ModelShape> FromProto(const v1::ModelShape& message) {
  ModelShape shape;
  shape.name = message.name();
  shape.repository = message.repository();
  shape.model_type = message.model_type();
  shape.hidden_size = message.hidden_size();
  shape.num_layers = message.num_layers();
  shape.vocab_size = message.vocab_size();
  shape.tie_word_embeddings = message.tie_word_embeddings();
  RETURN_IF_ERROR(EnumFromProto(message.attention_kind(), kAttentionKinds,
                                "model.attention_kind", &shape.attention_kind));
  shape.num_attention_heads = message.num_attention_heads();
  shape.num_key_value_heads = message.num_key_value_heads();
  shape.head_dim = message.head_dim();
  shape.v_head_dim = message.v_head_dim();
  if (shape.v_head_dim == 0) shape.v_head_dim = shape.head_dim;
  shape.num_sliding_layers = message.num_sliding_layers();
  shape.sliding_window = message.sliding_window();
  shape.q_lora_rank = message.q_lora_rank();
  shape.kv_lora_rank = message.kv_lora_rank();
  shape.qk_nope_head_dim = message.qk_nope_head_dim();
  shape.qk_rope_head_dim = message.qk_rope_head_dim();
  shape.index_heads = message.index_heads();
  shape.index_head_dim = message.index_head_dim();
  shape.index_topk = message.index_topk();
  shape.num_linear_layers = message.num_linear_layers();
  shape.linear_key_heads = message.linear_key_heads();
  shape.linear_value_heads = message.linear_value_heads();
  shape.linear_key_head_dim = message.linear_key_head_dim();
  shape.linear_value_head_dim = message.linear_value_head_dim();
  shape.linear_conv_kernel = message.linear_conv_kernel();
  shape.num_dense_layers = message.num_dense_layers();
  shape.intermediate_size = message.intermediate_size();
  shape.num_moe_layers = message.num_moe_layers();
  shape.num_experts = message.num_experts();
  shape.experts_per_token = message.experts_per_token();
  shape.moe_intermediate_size = message.moe_intermediate_size();
  shape.shared_intermediate_size = message.shared_intermediate_size();
  shape.num_nextn_predict_layers = message.num_nextn_predict_layers();
  RETURN_IF_ERROR(FromProto(message.attention_weights(),
                            "model.attention_weights",
                            &shape.attention_weights));
  RETURN_IF_ERROR(FromProto(message.dense_weights(), "model.dense_weights",
                            &shape.dense_weights));
  RETURN_IF_ERROR(FromProto(message.expert_weights(), "model.expert_weights",
                            &shape.expert_weights));
  RETURN_IF_ERROR(FromProto(message.shared_expert_weights(),
                            "model.shared_expert_weights",
                            &shape.shared_expert_weights));
  RETURN_IF_ERROR(EnumFromProto(message.kv_cache_format(), kNumberFormats,
                                "model.kv_cache_format",
                                &shape.kv_cache_format));
  return shape;
}

void ToProto(const ModelShape& shape, v1::ModelShape* message) {
  message->set_name(shape.name);
  message->set_repository(shape.repository);
  message->set_model_type(shape.model_type);
  message->set_hidden_size(shape.hidden_size);
  message->set_num_layers(shape.num_layers);
  message->set_vocab_size(shape.vocab_size);
  message->set_tie_word_embeddings(shape.tie_word_embeddings);
  message->set_attention_kind(ToProto(shape.attention_kind));
  message->set_num_attention_heads(shape.num_attention_heads);
  message->set_num_key_value_heads(shape.num_key_value_heads);
  message->set_head_dim(shape.head_dim);
  message->set_v_head_dim(shape.v_head_dim);
  message->set_num_sliding_layers(shape.num_sliding_layers);
  message->set_sliding_window(shape.sliding_window);
  message->set_q_lora_rank(shape.q_lora_rank);
  message->set_kv_lora_rank(shape.kv_lora_rank);
  message->set_qk_nope_head_dim(shape.qk_nope_head_dim);
  message->set_qk_rope_head_dim(shape.qk_rope_head_dim);
  message->set_index_heads(shape.index_heads);
  message->set_index_head_dim(shape.index_head_dim);
  message->set_index_topk(shape.index_topk);
  message->set_num_linear_layers(shape.num_linear_layers);
  message->set_linear_key_heads(shape.linear_key_heads);
  message->set_linear_value_heads(shape.linear_value_heads);
  message->set_linear_key_head_dim(shape.linear_key_head_dim);
  message->set_linear_value_head_dim(shape.linear_value_head_dim);
  message->set_linear_conv_kernel(shape.linear_conv_kernel);
  message->set_num_dense_layers(shape.num_dense_layers);
  message->set_intermediate_size(shape.intermediate_size);
  message->set_num_moe_layers(shape.num_moe_layers);
  message->set_num_experts(shape.num_experts);
  message->set_experts_per_token(shape.experts_per_token);
  message->set_moe_intermediate_size(shape.moe_intermediate_size);
  message->set_shared_intermediate_size(shape.shared_intermediate_size);
  message->set_num_nextn_predict_layers(shape.num_nextn_predict_layers);
  ToProto(shape.attention_weights, message->mutable_attention_weights());
  ToProto(shape.dense_weights, message->mutable_dense_weights());
  ToProto(shape.expert_weights, message->mutable_expert_weights());
  ToProto(shape.shared_expert_weights,
          message->mutable_shared_expert_weights());
  message->set_kv_cache_format(ToProto(shape.kv_cache_format));
}

absl::StatusOr<Question> QuestionFromProto(
    const v1::RecommendParallelismRequest& message) {
  if (!message.has_workload()) {
    return NotAllowed("workload", "absent",
                      absl::StrCat("a workload with a concurrency of 1 to ",
                                   kMaxConcurrency));
  }
  Question question;

  const v1::Workload& load = message.workload();
  Workload& workload = question.workload;
  workload.concurrency = load.concurrency();
  if (load.has_input_tokens()) workload.input_tokens = load.input_tokens();
  if (load.has_output_tokens()) workload.output_tokens = load.output_tokens();
  if (load.has_routing_skew()) workload.routing_skew = load.routing_skew();
  RETURN_IF_ERROR(
      EnumFromProto(load.phase(), kPhases, "workload.phase", &workload.phase));
  if (load.has_context_tokens()) {
    // 0 is "not set" among ours.
    RETURN_IF_ERROR(CheckRange("workload.context_tokens", load.context_tokens(),
                               int64_t{1}, kMaxTokens));
    workload.context_tokens = load.context_tokens();
  }
  workload.extra_all_reduces = load.extra_all_reduces();

  const v1::Limits& limits = message.limits();
  if (limits.has_max_tpot_seconds()) {
    question.limits.max_tpot_seconds = limits.max_tpot_seconds();
  }
  if (limits.has_max_ttft_seconds()) {
    question.limits.max_ttft_seconds = limits.max_ttft_seconds();
  }
  question.limits.ignore_memory = limits.ignore_memory();

  if (message.engine() != v1::ENGINE_UNSPECIFIED) {
    EngineId engine{};
    RETURN_IF_ERROR(
        EnumFromProto(message.engine(), kEngines, "engine", &engine));
    question.engines = {engine};
  }
  RETURN_IF_ERROR(EnumFromProto(message.objective(), kObjectives, "objective",
                                &question.objective));
  RETURN_IF_ERROR(EnumFromProto(message.cost_scope(), kCostScopes, "cost_scope",
                                &question.scope));

  if (message.gpus().has_count()) {
    // 0 is "not set" among ours.
    RETURN_IF_ERROR(CheckRange("gpus.count", int64_t{message.gpus().count()},
                               int64_t{1}, int64_t{kMaxGpus}));
    question.gpus.count = message.gpus().count();
  }
  question.gpus.indices.assign(message.gpus().indices().begin(),
                               message.gpus().indices().end());

  constexpr size_t kMaxModeBytes = 64;  // of advisor.proto
  if (message.current_plan().size() > kMaxModeBytes) {
    return NotAllowed(
        "current_plan",
        absl::StrCat(message.current_plan().size(), " bytes long"),
        absl::StrCat("at most ", kMaxModeBytes, " bytes"));
  }
  question.current_mode = message.current_plan();

  if (message.has_host_seconds_per_step()) {
    // A negative number is "not set" among ours.
    RETURN_IF_ERROR(CheckRange("host_seconds_per_step",
                               message.host_seconds_per_step(), 0.0,
                               kMaxHostSecondsPerStep));
    question.host_seconds_per_step = message.host_seconds_per_step();
  }
  for (const int option : message.plan_options()) {
    RETURN_IF_ERROR(OptionFromProto(option, &question.options));
  }
  if (message.has_max_plans()) question.max_plans = message.max_plans();
  return question;
}

absl::StatusOr<v1::AdviceView> ViewFromProto(v1::AdviceView view) {
  if (view == v1::ADVICE_VIEW_UNSPECIFIED) return v1::ADVICE_VIEW_FULL;
  if (v1::AdviceView_IsValid(view)) return view;
  return NotAllowed("view", EnumText(view),
                    "ADVICE_VIEW_BASIC, ADVICE_VIEW_FULL");
}

absl::StatusOr<v1::ProfileView> ViewFromProto(v1::ProfileView view) {
  if (view == v1::PROFILE_VIEW_UNSPECIFIED) return v1::PROFILE_VIEW_CURVES;
  if (v1::ProfileView_IsValid(view)) return view;
  return NotAllowed(
      "view", EnumText(view),
      "PROFILE_VIEW_SUMMARY, PROFILE_VIEW_CURVES, PROFILE_VIEW_FILE");
}

void TimeToProto(absl::Time time, google::protobuf::Timestamp* message) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  message->set_seconds(seconds);
  message->set_nanos(static_cast<int32_t>(
      absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

v1::Engine ToProto(EngineId engine) {
  switch (engine) {
    case EngineId::kReference:
      return v1::ENGINE_REFERENCE;
    case EngineId::kVllm:
      return v1::ENGINE_VLLM;
    case EngineId::kSglang:
      return v1::ENGINE_SGLANG;
    case EngineId::kTrtllm:
      return v1::ENGINE_TRTLLM;
  }
  return v1::ENGINE_UNSPECIFIED;
}

v1::Basis ToProto(Standing standing) {
  switch (standing) {
    case Standing::kMeasured:
      return v1::BASIS_MEASURED;
    case Standing::kInterpolated:
      return v1::BASIS_INTERPOLATED;
    case Standing::kExtrapolated:
      return v1::BASIS_EXTRAPOLATED;
    case Standing::kReference:
      return v1::BASIS_REFERENCE;
  }
  return v1::BASIS_UNSPECIFIED;
}

void ToProto(const Plan& plan, absl::string_view mode, v1::Plan* message) {
  message->set_mode(mode.data(), mode.size());
  message->set_replicas(plan.replicas);
  message->set_pipeline(plan.pipeline);
  message->set_attention_dp(plan.attention_dp);
  message->set_attention_tp(plan.attention_tp);
  message->set_expert_parallel(plan.expert_parallel);
  message->set_moe_tp(plan.moe_tp);
  message->set_expert_transport(ToProto(plan.transport));
  message->set_gpus(plan.gpus());
  message->set_two_batch_overlap(plan.two_batch_overlap);
  message->set_fp8_dispatch(plan.fp8_dispatch);
}

void ToProto(const PlanAdvice& advice, v1::AdviceView view,
             v1::PlanAdvice* message) {
  ToProto(advice.plan, advice.mode, message->mutable_plan());
  for (const std::vector<int>& replica : advice.placement.replicas) {
    v1::GpuGroup* const group = message->mutable_plan()->add_replica_gpus();
    for (const int gpu : replica) group->add_gpu_index(gpu);
  }
  message->set_engine(ToProto(advice.engine));
  message->set_tpot_seconds(advice.tpot_seconds);
  if (advice.ttft_seconds.has_value()) {
    message->set_ttft_seconds(*advice.ttft_seconds);
  }
  message->set_output_tokens_per_second(advice.output_tokens_per_second);
  if (advice.tpot_low_seconds.has_value()) {
    message->mutable_interval()->set_tpot_low_seconds(*advice.tpot_low_seconds);
  }
  message->mutable_interval()->set_tpot_high_seconds(advice.tpot_high_seconds);
  ToProto(advice.memory, message->mutable_memory());
  if (view != v1::ADVICE_VIEW_BASIC) {
    message->mutable_terms()->Reserve(static_cast<int>(advice.terms.size()));
    for (const Term& term : advice.terms) ToProto(term, message->add_terms());
  }
  ToProto(advice.launch, message->mutable_launch());
  message->set_basis(ToProto(advice.basis));
  for (const std::string& miss : advice.misses) message->add_misses(miss);
  message->set_caveat(advice.caveat.data(), advice.caveat.size());
}

void ToProto(const RuledOut& ruled_out, v1::RuledOut* message) {
  message->set_mode(ruled_out.mode);
  message->set_reason(ruled_out.reason);
  message->set_engine(ToProto(ruled_out.engine));
}

void ToProto(const NotAnswerable& not_answerable, v1::NotAnswerable* message) {
  message->set_mode(not_answerable.mode);
  for (const std::string& missing : not_answerable.missing_measurements) {
    message->add_missing_measurements(missing);
  }
  message->set_engine(ToProto(not_answerable.engine));
}

void ToProto(const FlipPoint& flip, v1::FlipPoint* message) {
  message->set_concurrency(flip.concurrency);
  message->set_from_mode(flip.from_mode);
  message->set_to_mode(flip.to_mode);
  if (flip.from_engine.has_value()) {
    message->set_from_engine(ToProto(*flip.from_engine));
  }
  if (flip.to_engine.has_value()) {
    message->set_to_engine(ToProto(*flip.to_engine));
  }
}

void ToProto(const Confidence& confidence, v1::Confidence* message) {
  message->set_probability_first_is_best(confidence.probability_first_is_best);
  message->set_margin_ratio(confidence.margin_ratio);
  message->set_model_residual_ratio(confidence.model_residual_ratio);
  message->set_residual_measured(confidence.residual_measured);
}

namespace {

v1::FindingSeverity ToProto(Severity severity) {
  switch (severity) {
    case Severity::kNote:
      return v1::FINDING_SEVERITY_NOTE;
    case Severity::kWarning:
      return v1::FINDING_SEVERITY_WARNING;
    case Severity::kError:
      return v1::FINDING_SEVERITY_ERROR;
  }
  return v1::FINDING_SEVERITY_UNSPECIFIED;
}

}  // namespace

void ToProto(const NodeProbe& probe, v1::DiagnoseNodeResponse* message) {
  TimeToProto(probe.time, message->mutable_probe_time());
  ToProto(probe.fingerprint, message->mutable_fingerprint());
  message->set_busy(probe.busy);
  for (const NodeFinding& finding : probe.findings) {
    v1::NodeFinding* const to = message->add_findings();
    to->set_kind(std::string(ToString(finding.kind)));
    to->set_severity(ToProto(finding.severity));
    to->set_subject(finding.subject);
    to->set_detail(finding.detail);
    to->set_remedy(finding.remedy);
  }
}

void ToProto(const Fingerprint& fingerprint, v1::Fingerprint* message) {
  message->set_id(FingerprintId(fingerprint));
  for (const Gpu& gpu : fingerprint.gpus) {
    v1::Gpu* out = message->add_gpus();
    out->set_name(gpu.name);
    out->set_uuid(gpu.uuid);
    out->set_memory_bytes(gpu.memory_bytes);
    out->set_compute_capability(gpu.compute_capability);
  }
  message->set_driver_version(fingerprint.driver_version);
  message->set_cuda_version(fingerprint.cuda_version);
  message->set_nccl_version(fingerprint.nccl_version);
  for (const std::string& variable : fingerprint.nccl_environment) {
    message->add_nccl_environment(variable);
  }
  message->set_fabric(fingerprint.fabric);
  for (const std::string& fact : fingerprint.facts) message->add_facts(fact);
}

void ToProto(absl::string_view key, const Curve& curve, v1::Curve* message) {
  message->set_key(key.data(), key.size());
  for (const CurvePoint& point : curve.points()) {
    v1::CurvePoint* out = message->add_points();
    out->set_size(point.size);
    out->set_seconds(point.seconds);
    out->set_relative_sigma(point.relative_sigma);
  }
  for (const Cliff& cliff : curve.Cliffs()) {
    v1::Cliff* out = message->add_cliffs();
    out->set_from_size(cliff.from_size);
    out->set_to_size(cliff.to_size);
    out->set_from_seconds(cliff.from_seconds);
    out->set_to_seconds(cliff.to_seconds);
    out->set_factor_per_doubling(cliff.factor_per_doubling);
  }
  message->set_basis(ToProto(curve.origin()));
}

void ToProto(const Profile& profile, v1::ProfileView view,
             v1::NodeProfile* message) {
  message->set_name(profile.name());
  ToProto(profile.fingerprint(), message->mutable_fingerprint());
  SetTime(profile.data().as_of, &v1::NodeProfile::mutable_as_of_time, message);
  SetTime(profile.oldest(), &v1::NodeProfile::mutable_oldest_curve_time,
          message);
  if (view != v1::PROFILE_VIEW_SUMMARY) {
    for (const auto& [key, curve] : profile.curves()) {
      ToProto(ToString(key), curve, message->add_curves());
    }
    for (const auto& [key, curve] : profile.exchanges()) {
      ToProto(ToString(key), curve, message->add_curves());
    }
  }
  if (view == v1::PROFILE_VIEW_FILE) {
    message->set_profile_file(WriteProfile(profile.data()));
  }
  std::map<std::string, int64_t> tables;
  for (const Measurement& measurement : profile.data().measurements) {
    std::string name = TableName(measurement.key);
    if (!name.empty()) ++tables[std::move(name)];
  }
  for (const auto& [name, point_count] : tables) {
    v1::TableSummary* table = message->add_tables();
    table->set_name(name);
    table->set_point_count(point_count);
  }
  message->set_measurement_count(
      static_cast<int64_t>(profile.data().measurements.size()));
  for (const std::string& note : profile.data().notes) {
    message->add_notes(note);
  }
}

void ToProto(int64_t id, const Measurement& measurement,
             v1::Measurement* message) {
  const Statistics& statistics = measurement.statistics;
  message->set_id(id);
  message->set_key(ToString(measurement.key));
  message->set_median_seconds(statistics.median_seconds);
  if (statistics.iqr_seconds >= 0) {
    message->set_iqr_seconds(statistics.iqr_seconds);
  }
  if (statistics.p99_seconds >= 0) {
    message->set_p99_seconds(statistics.p99_seconds);
  }
  message->set_samples(statistics.samples);
  message->set_discarded(statistics.discarded);
  message->set_discard_reason(statistics.discard_reason);
  message->set_stop_reason(ToProto(statistics.stop_reason));
  message->set_verified(statistics.verified);
  if (statistics.sm_clock_hertz >= 0) {
    message->set_sm_clock_hertz(statistics.sm_clock_hertz);
  }
  message->set_basis(ToProto(measurement.origin));
  message->set_source(measurement.source);
  message->set_fingerprint(measurement.fingerprint_id);
  SetTime(measurement.start_time, &v1::Measurement::mutable_start_time,
          message);
}

void GroundsToProto(const Profile& profile, Standing basis,
                    v1::Grounds* message) {
  message->set_fingerprint(profile.fingerprint_id());
  SetTime(profile.data().as_of, &v1::Grounds::mutable_as_of_time, message);
  SetTime(profile.oldest(), &v1::Grounds::mutable_oldest_curve_time, message);
  message->set_profile(profile.name());
  message->set_basis(ToProto(basis));
  for (const std::string& note : profile.data().notes) {
    message->add_notes(note);
  }
}

}  // namespace fabricwise
