// SPDX-License-Identifier: Apache-2.0
#include "tests/support/bad_requests.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Request = v1::RecommendParallelismRequest;

// Collects GoodRequest() with one thing made bad.
class Collector {
 public:
  template <typename Change>
  void Add(std::string what, const Change& change, std::string message) {
    AddMatching(std::move(what), change, absl::StatusCode::kInvalidArgument,
                ::testing::Eq(std::move(message)));
  }

  template <typename Change>
  void AddMatching(std::string what, const Change& change,
                   absl::StatusCode code,
                   ::testing::Matcher<std::string> message) {
    Request request = GoodRequest();
    change(request);
    bad_.push_back(
        {std::move(what), std::move(request), code, std::move(message)});
  }

  std::vector<BadRequest> Take() { return std::move(bad_); }

 private:
  std::vector<BadRequest> bad_;
};

}  // namespace

v1::RecommendParallelismRequest GoodRequest() {
  Request request;
  v1::ModelShape* shape = request.mutable_model()->mutable_shape();
  shape->set_name("small");
  shape->set_hidden_size(2048);
  shape->set_num_layers(48);
  shape->set_vocab_size(151936);
  shape->set_num_attention_heads(32);
  shape->set_num_key_value_heads(4);
  shape->set_head_dim(128);
  shape->set_num_moe_layers(48);
  shape->set_num_experts(128);
  shape->set_experts_per_token(8);
  shape->set_moe_intermediate_size(768);
  request.mutable_workload()->set_concurrency(8);
  request.mutable_workload()->set_phase(v1::PHASE_DECODE);
  request.mutable_workload()->set_context_tokens(2048);
  request.set_engine(v1::ENGINE_REFERENCE);
  request.mutable_gpus()->set_count(2);
  request.mutable_limits()->set_ignore_memory(true);
  return request;
}

std::vector<BadRequest> BadRequests() {
  constexpr int64_t kTwoTo31 = int64_t{1} << 31;
  constexpr int64_t kTwoTo63Less1 = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMinusTwoTo63 = std::numeric_limits<int64_t>::min();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Collector bad;

  bad.Add(
      "no model", [](Request& r) { r.clear_model(); },
      "model is absent; allowed: one of shape, preset, "
      "hugging_face_config");
  bad.Add(
      "no workload", [](Request& r) { r.clear_workload(); },
      "workload is absent; allowed: a workload with a concurrency of 1 to "
      "1000000");

  bad.AddMatching(
      "unknown preset",
      [](Request& r) { r.mutable_model()->set_preset("Kimi-K2.6"); },
      absl::StatusCode::kNotFound,
      AllOf(HasSubstr("'Kimi-K2.6'"), HasSubstr("Kimi-K2.5")));
  bad.AddMatching(
      "preset of a megabyte",
      [](Request& r) {
        r.mutable_model()->set_preset(std::string(1 << 20, 'x'));
      },
      absl::StatusCode::kNotFound,
      ::testing::ResultOf(
          "length", [](const std::string& s) { return s.size(); },
          ::testing::Lt(size_t{1000})));
  bad.AddMatching(
      "broken JSON",
      [](Request& r) {
        r.mutable_model()->set_hugging_face_config("{\"hidden_size\": 40");
      },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("model.hugging_face_config: config is"));
  bad.AddMatching(
      "JSON of another kind",
      [](Request& r) { r.mutable_model()->set_hugging_face_config("[1, 2]"); },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("model.hugging_face_config: config is"));
  bad.AddMatching(
      "config without a needed key",
      [](Request& r) {
        r.mutable_model()->set_hugging_face_config(
            "{\"model_type\": \"llama\", \"hidden_size\": 4096}");
      },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("model.hugging_face_config: num_hidden_layers"));
  bad.AddMatching(
      "config of over a megabyte",
      [](Request& r) {
        r.mutable_model()->set_hugging_face_config(
            std::string((1 << 20) + 1, ' '));
      },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("model.hugging_face_config: config is"));
  bad.AddMatching(
      "config nested a thousand deep",
      [](Request& r) {
        r.mutable_model()->set_hugging_face_config(
            "{\"a\": " + std::string(1000, '[') + std::string(1000, ']') + "}");
      },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("model.hugging_face_config: config is"));

  for (const int64_t size :
       {int64_t{0}, int64_t{-1}, kTwoTo31, kTwoTo63Less1, kMinusTwoTo63}) {
    const std::string text = std::to_string(size);
    bad.Add(
        "hidden_size " + text,
        [size](Request& r) {
          r.mutable_model()->mutable_shape()->set_hidden_size(size);
        },
        "model.hidden_size is " + text + "; allowed: 1 to 16777216");
    bad.Add(
        "num_experts " + text,
        [size](Request& r) {
          r.mutable_model()->mutable_shape()->set_num_experts(size);
        },
        "model.num_experts is " + text + "; allowed: 1 to 4096");
    bad.Add(
        "input_tokens " + text,
        [size](Request& r) { r.mutable_workload()->set_input_tokens(size); },
        "workload.input_tokens is " + text + "; allowed: 1 to 16777216");
    bad.Add(
        "output_tokens " + text,
        [size](Request& r) { r.mutable_workload()->set_output_tokens(size); },
        "workload.output_tokens is " + text + "; allowed: 1 to 16777216");
    bad.Add(
        "context_tokens " + text,
        [size](Request& r) { r.mutable_workload()->set_context_tokens(size); },
        "workload.context_tokens is " + text + "; allowed: 1 to 16777216");
  }
  for (const int64_t concurrency :
       {int64_t{0}, int64_t{-1}, int64_t{1'000'000'000}, kTwoTo63Less1}) {
    const std::string text = std::to_string(concurrency);
    bad.Add(
        "concurrency " + text,
        [concurrency](Request& r) {
          r.mutable_workload()->set_concurrency(concurrency);
        },
        "workload.concurrency is " + text + "; allowed: 1 to 1000000");
  }
  bad.Add(
      "extra all-reduces",
      [](Request& r) { r.mutable_workload()->set_extra_all_reduces(100'001); },
      "workload.extra_all_reduces is 100001; allowed: 0 to 100000");

  bad.AddMatching(
      "heads not divisible",
      [](Request& r) {
        r.mutable_model()->mutable_shape()->set_num_key_value_heads(5);
      },
      absl::StatusCode::kInvalidArgument,
      AllOf(HasSubstr("num_key_value_heads"), HasSubstr("5"), HasSubstr("32")));
  bad.AddMatching(
      "more experts a token than experts",
      [](Request& r) {
        r.mutable_model()->mutable_shape()->set_experts_per_token(129);
      },
      absl::StatusCode::kInvalidArgument,
      AllOf(HasSubstr("experts_per_token is 129"), HasSubstr("128")));
  bad.AddMatching(
      "layers that do not add up",
      [](Request& r) {
        r.mutable_model()->mutable_shape()->set_num_layers(47);
      },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("model.num_moe_layers is 48; allowed: 0 to 47"));
  bad.AddMatching(
      "long name",
      [](Request& r) {
        r.mutable_model()->mutable_shape()->set_name(std::string(257, 'x'));
      },
      absl::StatusCode::kInvalidArgument, HasSubstr("model.name is 257 bytes"));

  bad.Add(
      "NaN TPOT limit",
      [](Request& r) { r.mutable_limits()->set_max_tpot_seconds(kNan); },
      "limits.max_tpot_seconds is nan; allowed: over 0");
  bad.Add(
      "zero TPOT limit",
      [](Request& r) { r.mutable_limits()->set_max_tpot_seconds(0); },
      "limits.max_tpot_seconds is 0; allowed: over 0");
  bad.Add(
      "NaN TTFT limit",
      [](Request& r) {
        r.mutable_workload()->set_phase(v1::PHASE_STEADY_STATE);
        r.mutable_workload()->clear_context_tokens();
        r.mutable_limits()->set_max_ttft_seconds(kNan);
      },
      "limits.max_ttft_seconds is nan; allowed: over 0");
  bad.Add(
      "negative TTFT limit",
      [](Request& r) {
        r.mutable_workload()->set_phase(v1::PHASE_STEADY_STATE);
        r.mutable_workload()->clear_context_tokens();
        r.mutable_limits()->set_max_ttft_seconds(-1);
      },
      "limits.max_ttft_seconds is -1; allowed: over 0");
  bad.Add(
      "NaN routing skew",
      [](Request& r) { r.mutable_workload()->set_routing_skew(kNan); },
      "workload.routing_skew is nan; allowed: 0 to 2");
  bad.Add(
      "infinite routing skew",
      [](Request& r) { r.mutable_workload()->set_routing_skew(HUGE_VAL); },
      "workload.routing_skew is inf; allowed: 0 to 2");
  bad.Add(
      "NaN host time", [](Request& r) { r.set_host_seconds_per_step(kNan); },
      "host_seconds_per_step is nan; allowed: 0 to 1");
  bad.AddMatching(
      "limits objective without a limit",
      [](Request& r) { r.set_objective(v1::OBJECTIVE_THROUGHPUT_IN_LIMITS); },
      absl::StatusCode::kInvalidArgument, HasSubstr("limits.max_tpot_seconds"));

  bad.Add(
      "engine of a newer client",
      [](Request& r) { r.set_engine(static_cast<v1::Engine>(99)); },
      "engine is 99; allowed: ENGINE_REFERENCE, ENGINE_VLLM, ENGINE_SGLANG, "
      "ENGINE_TRTLLM");
  bad.Add(
      "view of a newer client",
      [](Request& r) { r.set_view(static_cast<v1::AdviceView>(99)); },
      "view is 99; allowed: ADVICE_VIEW_BASIC, ADVICE_VIEW_FULL");
  bad.Add(
      "plan option of a newer client",
      [](Request& r) { r.add_plan_options(static_cast<v1::PlanOption>(99)); },
      "plan_options is 99; allowed: PLAN_OPTION_TWO_BATCH_OVERLAP, "
      "PLAN_OPTION_FP8_DISPATCH");
  bad.Add(
      "no plans", [](Request& r) { r.set_max_plans(0); },
      "max_plans is 0; allowed: 1 to 1000");
  bad.Add(
      "no GPUs", [](Request& r) { r.mutable_gpus()->set_count(0); },
      "gpus.count is 0; allowed: 1 to 1024");
  bad.AddMatching(
      "more GPUs than the node has",
      [](Request& r) { r.mutable_gpus()->set_count(4); },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("gpus.count is 4; allowed: 1 to 2"));
  bad.AddMatching(
      "a GPU that the node does not have",
      [](Request& r) {
        r.mutable_gpus()->clear_count();
        r.mutable_gpus()->add_indices(2);
      },
      absl::StatusCode::kInvalidArgument,
      HasSubstr("gpus.indices is 2; allowed: 0 to 1"));
  bad.Add(
      "a GPU twice",
      [](Request& r) {
        r.mutable_gpus()->add_indices(1);
        r.mutable_gpus()->add_indices(1);
      },
      "gpus.indices is 1 given twice; allowed: each GPU once");
  bad.AddMatching(
      "odd current plan", [](Request& r) { r.set_current_plan("TP\x01"); },
      absl::StatusCode::kInvalidArgument, HasSubstr("current_plan"));
  return bad.Take();
}

}  // namespace fabricwise
