// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/samples.h"

#include <string>

namespace fabricwise {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

void SetTime(absl::Time time, google::protobuf::Timestamp* timestamp) {
  timestamp->set_seconds(absl::ToUnixSeconds(time));
}

v1::PlanAdvice MakePlan(const std::string& mode, int gpus, v1::Engine engine,
                        double tokens_per_second, double tpot, double ttft,
                        double weights_gib, v1::Basis basis) {
  v1::PlanAdvice advice;
  advice.mutable_plan()->set_mode(mode);
  advice.mutable_plan()->set_gpus(gpus);
  advice.set_engine(engine);
  advice.set_output_tokens_per_second(tokens_per_second);
  advice.set_tpot_seconds(tpot);
  advice.set_ttft_seconds(ttft);
  advice.mutable_interval()->set_tpot_low_seconds(tpot * 0.93);
  advice.mutable_interval()->set_tpot_high_seconds(tpot * 1.07);
  v1::MemoryUse& memory = *advice.mutable_memory();
  memory.set_weights_bytes(
      static_cast<int64_t>(weights_gib * static_cast<double>(kGib)));
  memory.set_kv_cache_bytes(6 * kGib);
  memory.set_activation_bytes(2 * kGib);
  memory.set_available_bytes(140 * kGib);
  memory.set_fits(memory.weights_bytes() < 130 * kGib);
  advice.set_basis(basis);
  return advice;
}

void AddTerm(const std::string& name, double seconds, double count,
             const std::string& source, double size, v1::Basis basis,
             bool communication, v1::PlanAdvice* plan) {
  v1::Term& term = *plan->add_terms();
  term.set_name(name);
  term.set_seconds(seconds);
  term.set_count(count);
  term.set_source(source);
  term.set_size(size);
  term.set_basis(basis);
  term.set_communication(communication);
}

void FillGrounds(v1::Grounds* grounds) {
  grounds->set_profile("h200x2-p2p");
  grounds->set_fingerprint("0123456789abcdef");
  SetTime(SampleNow() - absl::Hours(3), grounds->mutable_as_of_time());
  SetTime(SampleNow() - absl::Hours(72), grounds->mutable_oldest_curve_time());
  grounds->set_basis(v1::BASIS_INTERPOLATED);
  grounds->add_notes("GPU memory is that of the model, not of a probe");
}

void AddFlip(int64_t concurrency, const std::string& from,
             const std::string& to,
             google::protobuf::RepeatedPtrField<v1::FlipPoint>* flips) {
  v1::FlipPoint& flip = *flips->Add();
  flip.set_concurrency(concurrency);
  flip.set_from_mode(from);
  flip.set_to_mode(to);
}

}  // namespace

absl::Time SampleNow() {
  return absl::FromCivil(absl::CivilSecond(2026, 11, 29, 12, 0, 0),
                         absl::UTCTimeZone());
}

v1::RecommendParallelismRequest SampleQuestion() {
  v1::RecommendParallelismRequest question;
  question.mutable_model()->set_preset("Qwen3-30B-A3B");
  question.mutable_workload()->set_concurrency(64);
  question.mutable_limits()->set_max_tpot_seconds(0.01);
  return question;
}

v1::RecommendParallelismResponse SampleAnswer() {
  v1::RecommendParallelismResponse answer;
  answer.mutable_model()->set_name("Qwen3-30B-A3B");
  v1::PlanAdvice* first = answer.add_plans();
  *first = MakePlan("2xTP1", 2, v1::ENGINE_VLLM, 12345, 5.184e-3, 0.1204, 56.9,
                    v1::BASIS_INTERPOLATED);
  AddTerm("experts", 2.51e-3, 48, "experts/bf16/h2048i768e128k8", 256,
          v1::BASIS_INTERPOLATED, false, first);
  AddTerm("attention kv read", 1.40e-3, 48, "memory/read", 6.6e6,
          v1::BASIS_EXTRAPOLATED, false, first);
  first->mutable_terms(1)->set_note(
      "memory read stands in for an attention kernel");
  AddTerm("projections", 0.774e-3, 192, "gemm/bf16", 32, v1::BASIS_INTERPOLATED,
          false, first);
  AddTerm("host", 0.5e-3, 1, "vllm", 0, v1::BASIS_STATED, false, first);
  first->mutable_launch()->set_engine_version("vLLM 0.11");
  first->mutable_launch()->add_environment("NCCL_NVLS_ENABLE=0");
  first->mutable_launch()->add_commands(
      "CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-30B-A3B --port 8000");
  first->mutable_launch()->add_commands(
      "CUDA_VISIBLE_DEVICES=1 vllm serve Qwen/Qwen3-30B-A3B --port 8001");
  v1::PlanAdvice* second = answer.add_plans();
  *second = MakePlan("TP2", 2, v1::ENGINE_REFERENCE, 10811, 5.92e-3, 0.0871,
                     28.5, v1::BASIS_INTERPOLATED);
  AddTerm("experts", 2.90e-3, 48, "experts/bf16/h2048i768e128k8", 512,
          v1::BASIS_INTERPOLATED, false, second);
  AddTerm("all_reduce attention", 1.52e-3, 49, "all_reduce/n2/nccl/graph",
          262144, v1::BASIS_MEASURED, true, second);
  AddTerm("all_reduce experts", 1.50e-3, 48, "all_reduce/n2/nccl/graph", 262144,
          v1::BASIS_MEASURED, true, second);
  *answer.add_plans() = MakePlan("DP2+EP2", 2, v1::ENGINE_VLLM, 9040, 7.08e-3,
                                 0.0914, 30.2, v1::BASIS_REFERENCE);
  *answer.add_plans() = MakePlan("PP2", 2, v1::ENGINE_REFERENCE, 5920, 10.8e-3,
                                 0.142, 28.6, v1::BASIS_MEASURED);
  answer.mutable_plans(3)->add_misses(
      "TPOT 10.8 ms is over the limit of 10 ms");
  *answer.add_plans() = MakePlan("TP1", 1, v1::ENGINE_VLLM, 6300, 10.2e-3,
                                 0.121, 137, v1::BASIS_INTERPOLATED);
  answer.mutable_plans(4)->add_misses(
      "TPOT 10.2 ms is over the limit of 10 ms");

  for (const char* mode : {"TP4", "TP8"}) {
    v1::RuledOut& plan = *answer.add_ruled_out();
    plan.set_mode(mode);
    plan.set_engine(v1::ENGINE_VLLM);
    plan.set_reason(std::string("needs ") + (mode + 2) +
                    " GPUs; the node has 2");
  }
  v1::RuledOut& odd = *answer.add_ruled_out();
  odd.set_mode("TP2+EP2");
  odd.set_engine(v1::ENGINE_VLLM);
  odd.set_reason("num_experts 127 is not divisible by 2");
  for (const char* mode : {"DP2+EP2:deepep-ll", "DP2+EP2:deepep-ht"}) {
    v1::NotAnswerable& plan = *answer.add_not_answerable();
    plan.set_mode(mode);
    plan.set_engine(v1::ENGINE_VLLM);
    plan.add_missing_measurements(
        "exchange/deepep_low_latency/dispatch/n2/h2048e128k8 at 32 tokens");
  }
  AddFlip(9, "TP2", "2xTP1", answer.mutable_flip_points());
  AddFlip(300, "2xTP1", "DP2+EP2", answer.mutable_flip_points());
  answer.mutable_confidence()->set_probability_first_is_best(0.83);
  answer.mutable_confidence()->set_margin_ratio(0.142);
  answer.mutable_confidence()->set_model_residual_ratio(0.08);
  FillGrounds(answer.mutable_grounds());
  return answer;
}

v1::SweepConcurrencyResponse SampleSweep() {
  v1::SweepConcurrencyResponse answer;
  answer.mutable_model()->set_name("Qwen3-30B-A3B");
  for (int64_t concurrency = 1; concurrency <= 64; concurrency *= 2) {
    v1::SweepPoint& point = *answer.add_points();
    point.set_concurrency(concurrency);
    if (concurrency == 64) {
      point.set_unanswered("all_reduce/n2/nccl/graph at 917504 B is missing");
      continue;
    }
    const char* mode = concurrency < 6    ? "TP2"
                       : concurrency < 20 ? "DP2+EP2:a2a"
                                          : "2xTP1";
    double tpot = 2e-3 + 1e-4 * static_cast<double>(concurrency);
    double rate = static_cast<double>(concurrency) / tpot;
    *point.add_plans() = MakePlan(mode, 2, v1::ENGINE_REFERENCE, rate, tpot,
                                  0.08, 28.5, v1::BASIS_INTERPOLATED);
    *point.add_plans() =
        MakePlan("PP2", 2, v1::ENGINE_REFERENCE, rate * 0.8, tpot * 1.25, 0.09,
                 28.5, v1::BASIS_INTERPOLATED);
    AddTerm("experts", tpot, 48, "experts/bf16", 64, v1::BASIS_INTERPOLATED,
            false, point.mutable_plans(0));
  }
  AddFlip(6, "TP2", "DP2+EP2:a2a", answer.mutable_flip_points());
  AddFlip(20, "DP2+EP2:a2a", "2xTP1", answer.mutable_flip_points());
  FillGrounds(answer.mutable_grounds());
  return answer;
}

v1::Curve SampleCliff() {
  v1::Curve curve;
  curve.set_key("all_to_all/n8/nccl/graph");
  curve.set_basis(v1::BASIS_MEASURED);
  for (auto [size, seconds] :
       {std::pair{114688.0, 22e-6}, std::pair{1835008.0, 1007e-6}}) {
    v1::CurvePoint& point = *curve.add_points();
    point.set_size(size);
    point.set_seconds(seconds);
    point.set_relative_sigma(0.03);
  }
  v1::Cliff& cliff = *curve.add_cliffs();
  cliff.set_from_size(114688);
  cliff.set_to_size(1835008);
  cliff.set_from_seconds(22e-6);
  cliff.set_to_seconds(1007e-6);
  cliff.set_factor_per_doubling(2.601);
  return curve;
}

v1::Curve SampleSmoothCurve() {
  v1::Curve curve;
  curve.set_key("all_reduce/n2/nccl/graph");
  curve.set_basis(v1::BASIS_MEASURED);
  for (double size = 1024; size <= 256.0 * 1024 * 1024; size *= 2) {
    v1::CurvePoint& point = *curve.add_points();
    point.set_size(size);
    point.set_seconds(7e-6 + size / 300e9);
    point.set_relative_sigma(0.03);
  }
  return curve;
}

v1::NodeProfile SampleProfile() {
  v1::NodeProfile profile;
  profile.set_name("h200x2-p2p");
  v1::Fingerprint& node = *profile.mutable_fingerprint();
  node.set_id("0123456789abcdef");
  for (int i = 0; i < 2; ++i) {
    v1::Gpu& gpu = *node.add_gpus();
    gpu.set_name("NVIDIA H200");
    gpu.set_memory_bytes(140 * kGib);
  }
  node.set_fabric("nvlink");
  node.set_nccl_version("2.28.3");
  node.add_nccl_environment("NCCL_NVLS_ENABLE=0");
  SetTime(SampleNow() - absl::Hours(3), profile.mutable_as_of_time());
  SetTime(SampleNow() - absl::Hours(72), profile.mutable_oldest_curve_time());
  *profile.add_curves() = SampleSmoothCurve();
  *profile.add_curves() = SampleCliff();
  v1::TableSummary& table = *profile.add_tables();
  table.set_name("gemm bf16");
  table.set_point_count(1234);
  profile.set_measurement_count(1270);
  profile.add_notes("recorded on a rented machine");
  return profile;
}

Style PipeStyle() { return {}; }
Style TerminalStyle(int width) { return {true, true, width}; }
Style UncolouredStyle(int width) { return {false, true, width}; }

RenderOptions Options(Style style, bool explain) {
  return {style, SampleNow(), explain};
}

}  // namespace fabricwise
