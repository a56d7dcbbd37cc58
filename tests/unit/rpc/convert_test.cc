// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/convert.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

namespace pb = google::protobuf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(pb::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

// Names of the fields of `message` and of the messages in it that are not set,
// or at their zero.
void UnsetFields(const pb::Message& message, const std::string& path,
                 std::set<std::string>* unset) {
  const pb::Descriptor* descriptor = message.GetDescriptor();
  const pb::Reflection* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const pb::FieldDescriptor* field = descriptor->field(i);
    const std::string name = path + field->name();
    const bool set = field->is_repeated()
                         ? reflection->FieldSize(message, field) > 0
                         : reflection->HasField(message, field);
    if (!set) {
      unset->insert(name);
    } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      const pb::Message& inner =
          field->is_repeated()
              ? reflection->GetRepeatedMessage(message, field, 0)
              : reflection->GetMessage(message, field);
      UnsetFields(inner, name + ".", unset);
    }
  }
}

std::set<std::string> UnsetFields(const pb::Message& message) {
  std::set<std::string> unset;
  UnsetFields(message, "", &unset);
  return unset;
}

// Sets every field of `message`, each number to another value.
void Fill(pb::Message* message, int64_t* next) {
  const pb::Descriptor* descriptor = message->GetDescriptor();
  const pb::Reflection* reflection = message->GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const pb::FieldDescriptor* field = descriptor->field(i);
    switch (field->cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_INT64:
        reflection->SetInt64(message, field, ++*next);
        break;
      case pb::FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(message, field, true);
        break;
      case pb::FieldDescriptor::CPPTYPE_STRING:
        reflection->SetString(message, field, std::to_string(++*next));
        break;
      case pb::FieldDescriptor::CPPTYPE_ENUM:
        reflection->SetEnumValue(
            message, field,
            1 + static_cast<int>(++*next %
                                 (field->enum_type()->value_count() - 1)));
        break;
      case pb::FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(reflection->MutableMessage(message, field), next);
        break;
      default:
        FAIL() << field->full_name() << ": a type new to this test";
    }
  }
}

TEST(ConvertTest, EveryFieldOfAModelShapeSurvivesTheWayInAndOut) {
  v1::ModelShape message;
  int64_t next = 0;
  Fill(&message, &next);
  const auto shape = FromProto(message);
  ASSERT_TRUE(shape.ok()) << shape.status();
  v1::ModelShape back;
  ToProto(*shape, &back);
  pb::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(message, back)) << differences;
  EXPECT_THAT(UnsetFields(back), IsEmpty());
}

TEST(ConvertTest, AnEmptyModelShapeIsTheDefaultOne) {
  const auto shape = FromProto(v1::ModelShape());
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(*shape, ModelShape());
}

TEST(ConvertTest, TheWidthOfAValueHeadFollowsTheOthers) {
  const auto shape = FromProto(Parse<v1::ModelShape>("head_dim: 128"));
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->v_head_dim, 128);
}

TEST(ConvertTest, EveryNumberFormatIsUnderstoodAndAnUnknownOneRefused) {
  for (int number = 1; number < v1::NumberFormat_ARRAYSIZE; ++number) {
    v1::ModelShape message;
    message.set_kv_cache_format(static_cast<v1::NumberFormat>(number));
    const auto shape = FromProto(message);
    ASSERT_TRUE(shape.ok()) << shape.status();
    v1::ModelShape back;
    ToProto(*shape, &back);
    EXPECT_EQ(back.kv_cache_format(), number);
  }
  const auto refused =
      FromProto(Parse<v1::ModelShape>("expert_weights { number: 77 }"));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.status().message(),
            "model.expert_weights.number is 77; allowed: NUMBER_FORMAT_BF16, "
            "NUMBER_FORMAT_FP8_BLOCK, NUMBER_FORMAT_FP8, "
            "NUMBER_FORMAT_INT4_GROUP, NUMBER_FORMAT_MXFP4, "
            "NUMBER_FORMAT_NVFP4");
}

TEST(ConvertTest, AQuestionWithNothingButConcurrencyHasTheContractsDefaults) {
  const auto question = QuestionFromProto(
      Parse<v1::RecommendParallelismRequest>("workload { concurrency: 8 }"));
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_EQ(question->workload.concurrency, 8);
  EXPECT_EQ(question->workload.input_tokens, 1024);
  EXPECT_EQ(question->workload.output_tokens, 1024);
  EXPECT_EQ(question->workload.context_tokens, 0);
  EXPECT_EQ(question->workload.phase, Phase::kSteadyState);
  EXPECT_THAT(question->engines, IsEmpty());
  EXPECT_EQ(question->objective, Objective::kThroughput);
  EXPECT_EQ(question->scope, CostScope::kStep);
  EXPECT_EQ(question->gpus.count, 0);
  EXPECT_EQ(question->host_seconds_per_step, kEngineHostSeconds);
  EXPECT_EQ(question->max_plans, 8);
  EXPECT_TRUE(Validate(*question).ok());
}

TEST(ConvertTest, EveryPartOfAQuestionArrives) {
  const auto question =
      QuestionFromProto(Parse<v1::RecommendParallelismRequest>(R"pb(
        workload {
          concurrency: 64
          input_tokens: 100
          output_tokens: 200
          routing_skew: 0.5
          phase: PHASE_DECODE
          context_tokens: 300
          extra_all_reduces: 4
        }
        limits {
          max_tpot_seconds: 0.02
          max_ttft_seconds: 0.5
          ignore_memory: true
        }
        engine: ENGINE_VLLM
        gpus {
          count: 4
          indices: [ 0, 1, 2, 3, 7 ]
        }
        objective: OBJECTIVE_THROUGHPUT_IN_LIMITS
        current_plan: "TP8"
        cost_scope: COST_SCOPE_COMMUNICATION
        host_seconds_per_step: 0
        max_plans: 3
        plan_options: [ PLAN_OPTION_FP8_DISPATCH ]
      )pb"));
  ASSERT_TRUE(question.ok()) << question.status();
  EXPECT_EQ(question->workload.concurrency, 64);
  EXPECT_EQ(question->workload.input_tokens, 100);
  EXPECT_EQ(question->workload.output_tokens, 200);
  EXPECT_EQ(question->workload.routing_skew, 0.5);
  EXPECT_EQ(question->workload.phase, Phase::kDecode);
  EXPECT_EQ(question->workload.context_tokens, 300);
  EXPECT_EQ(question->workload.extra_all_reduces, 4);
  EXPECT_EQ(question->limits.max_tpot_seconds, 0.02);
  EXPECT_EQ(question->limits.max_ttft_seconds, 0.5);
  EXPECT_TRUE(question->limits.ignore_memory);
  EXPECT_THAT(question->engines, ElementsAre(EngineId::kVllm));
  EXPECT_EQ(question->gpus.count, 4);
  EXPECT_THAT(question->gpus.indices, ElementsAre(0, 1, 2, 3, 7));
  EXPECT_EQ(question->objective, Objective::kThroughputInLimits);
  EXPECT_EQ(question->current_mode, "TP8");
  EXPECT_EQ(question->scope, CostScope::kCommunication);
  EXPECT_EQ(question->host_seconds_per_step, 0);
  EXPECT_EQ(question->max_plans, 3);
  EXPECT_TRUE(question->options.fp8_dispatch);
  EXPECT_FALSE(question->options.two_batch_overlap);
}

TEST(ConvertTest, EveryPlanOptionIsUnderstood) {
  for (int i = 1; i < v1::PlanOption_ARRAYSIZE; ++i) {
    v1::RecommendParallelismRequest request;
    request.mutable_workload();
    request.add_plan_options(static_cast<v1::PlanOption>(i));
    const auto question = QuestionFromProto(request);
    ASSERT_TRUE(question.ok()) << question.status();
    EXPECT_NE(question->options.two_batch_overlap,
              question->options.fp8_dispatch);
  }
}

TEST(ConvertTest, EveryEnumValueOfAQuestionIsUnderstoodButEnginesNotBuilt) {
  auto request =
      Parse<v1::RecommendParallelismRequest>("workload { concurrency: 8 }");
  for (int i = 0; i < v1::Phase_ARRAYSIZE; ++i) {
    request.mutable_workload()->set_phase(static_cast<v1::Phase>(i));
    EXPECT_TRUE(QuestionFromProto(request).ok()) << i;
  }
  for (int i = 0; i < v1::Objective_ARRAYSIZE; ++i) {
    request.set_objective(static_cast<v1::Objective>(i));
    EXPECT_TRUE(QuestionFromProto(request).ok()) << i;
  }
  for (int i = 0; i < v1::CostScope_ARRAYSIZE; ++i) {
    request.set_cost_scope(static_cast<v1::CostScope>(i));
    EXPECT_TRUE(QuestionFromProto(request).ok()) << i;
  }
  std::vector<std::string> refused;
  for (int i = 0; i < v1::Engine_ARRAYSIZE; ++i) {
    request.set_engine(static_cast<v1::Engine>(i));
    const auto question = QuestionFromProto(request);
    if (!question.ok()) {
      EXPECT_EQ(question.status().code(), absl::StatusCode::kInvalidArgument);
      refused.push_back(std::string(question.status().message()));
    }
  }
  EXPECT_THAT(refused, IsEmpty());
}

TEST(ConvertTest, WhatStandsForNotSetAmongOurValuesIsRefusedInAMessage) {
  struct Case {
    const char* request;
    const char* message;
  };
  for (const Case& c : {
           Case{"",
                "workload is absent; allowed: a workload with a "
                "concurrency of 1 to 1000000"},
           Case{"workload { context_tokens: 0 }",
                "workload.context_tokens is 0; allowed: 1 to 16777216"},
           Case{"workload {} gpus { count: 0 }",
                "gpus.count is 0; allowed: 1 to 1024"},
           Case{"workload {} gpus { count: -2147483648 }",
                "gpus.count is -2147483648; allowed: 1 to 1024"},
           Case{"workload {} host_seconds_per_step: -1",
                "host_seconds_per_step is -1; allowed: 0 to 1"},
           Case{"workload {} host_seconds_per_step: nan",
                "host_seconds_per_step is nan; allowed: 0 to 1"},
           Case{"workload {} plan_options: 0",
                "plan_options is PLAN_OPTION_UNSPECIFIED; allowed: "
                "PLAN_OPTION_TWO_BATCH_OVERLAP, PLAN_OPTION_FP8_DISPATCH"},
           Case{"workload {} plan_options: [ 2, 1, 2 ]",
                "plan_options is PLAN_OPTION_FP8_DISPATCH given twice; "
                "allowed: each option once"},
           Case{"workload { phase: 9 }",
                "workload.phase is 9; allowed: PHASE_STEADY_STATE, "
                "PHASE_DECODE, PHASE_PREFILL"},
           Case{"workload {} objective: -3",
                "objective is -3; allowed: OBJECTIVE_THROUGHPUT, "
                "OBJECTIVE_LATENCY, OBJECTIVE_THROUGHPUT_IN_LIMITS"},
       }) {
    const auto question =
        QuestionFromProto(Parse<v1::RecommendParallelismRequest>(c.request));
    EXPECT_EQ(question.status().code(), absl::StatusCode::kInvalidArgument)
        << c.request;
    EXPECT_EQ(question.status().message(), c.message) << c.request;
  }
}

TEST(ConvertTest, ALongCurrentPlanIsRefusedByItsLength) {
  v1::RecommendParallelismRequest request;
  request.mutable_workload()->set_concurrency(1);
  request.set_current_plan(std::string(1 << 20, 'x'));
  EXPECT_EQ(QuestionFromProto(request).status().message(),
            "current_plan is 1048576 bytes long; allowed: at most 64 bytes");
}

TEST(ConvertTest, ViewsHaveTheirDefaultsAndUnknownOnesAreRefused) {
  EXPECT_EQ(*ViewFromProto(v1::ADVICE_VIEW_UNSPECIFIED), v1::ADVICE_VIEW_FULL);
  EXPECT_EQ(*ViewFromProto(v1::ADVICE_VIEW_BASIC), v1::ADVICE_VIEW_BASIC);
  EXPECT_EQ(ViewFromProto(static_cast<v1::AdviceView>(5)).status().message(),
            "view is 5; allowed: ADVICE_VIEW_BASIC, ADVICE_VIEW_FULL");
  EXPECT_EQ(*ViewFromProto(v1::PROFILE_VIEW_UNSPECIFIED),
            v1::PROFILE_VIEW_CURVES);
  EXPECT_EQ(*ViewFromProto(v1::PROFILE_VIEW_FILE), v1::PROFILE_VIEW_FILE);
  EXPECT_EQ(ViewFromProto(static_cast<v1::ProfileView>(-1)).status().message(),
            "view is -1; allowed: PROFILE_VIEW_SUMMARY, PROFILE_VIEW_CURVES, "
            "PROFILE_VIEW_FILE");
}

PlanAdvice FullAdvice() {
  PlanAdvice advice;
  advice.engine = EngineId::kVllm;
  advice.plan = {.replicas = 2,
                 .pipeline = 3,
                 .attention_dp = 4,
                 .attention_tp = 5,
                 .expert_parallel = 10,
                 .moe_tp = 2,
                 .transport = ExpertTransport::kDeepEpLowLatency,
                 .two_batch_overlap = true,
                 .fp8_dispatch = true};
  advice.mode = "2xPP3xDP4xTP5+EP10";
  advice.tpot_seconds = 0.01;
  advice.ttft_seconds = 0.2;
  advice.output_tokens_per_second = 1000;
  advice.tpot_low_seconds = 0.009;
  advice.tpot_high_seconds = 0.012;
  advice.memory = {.weights_bytes = 1,
                   .kv_cache_bytes = 2,
                   .activation_bytes = 3,
                   .communicator_bytes = 4,
                   .available_bytes = 5,
                   .fits = true,
                   .max_concurrency = 6};
  Term term;
  term.name = "experts";
  term.seconds = 0.004;
  term.count = 48;
  term.standing = Standing::kInterpolated;
  term.source = "experts/bf16";
  term.size = 64;
  term.relative_sigma = 0.03;
  term.upper_bound = true;
  term.note = "a remark";
  term.communication = true;
  advice.terms = {term};
  advice.basis = Standing::kExtrapolated;
  advice.launch.commands = {"vllm serve"};
  advice.launch.environment = {"A=b"};
  advice.launch.engine_version = "0.11";
  advice.misses = {"TPOT over the limit"};
  advice.caveat = "low confidence";
  advice.placement.replicas = {{2, 3}, {0, 5}};
  return advice;
}

TEST(ConvertTest, EveryFieldOfAPlansAdviceIsFilled) {
  v1::PlanAdvice message;
  ToProto(FullAdvice(), v1::ADVICE_VIEW_FULL, &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  ASSERT_EQ(message.plan().replica_gpus_size(), 2);
  EXPECT_THAT(message.plan().replica_gpus(1).gpu_index(), ElementsAre(0, 5));
  EXPECT_EQ(message.plan().mode(), "2xPP3xDP4xTP5+EP10");
  EXPECT_EQ(message.plan().gpus(), 2 * 3 * 4 * 5);
  EXPECT_EQ(message.plan().expert_transport(),
            v1::EXPERT_TRANSPORT_DEEPEP_LOW_LATENCY);
  EXPECT_EQ(message.engine(), v1::ENGINE_VLLM);
  EXPECT_EQ(message.basis(), v1::BASIS_EXTRAPOLATED);
  EXPECT_EQ(message.terms(0).basis(), v1::BASIS_INTERPOLATED);
  EXPECT_EQ(message.terms(0).seconds(), 0.004);
  EXPECT_EQ(message.memory().max_concurrency(), 6);
  EXPECT_EQ(message.interval().tpot_high_seconds(), 0.012);
  EXPECT_EQ(message.caveat(), "low confidence");
}

TEST(ConvertTest, TheBasicViewLeavesOutTheTermsOnly) {
  v1::PlanAdvice message;
  ToProto(FullAdvice(), v1::ADVICE_VIEW_BASIC, &message);
  EXPECT_THAT(UnsetFields(message), UnorderedElementsAre("terms"));
}

TEST(ConvertTest, WhatIsNotKnownStaysAbsent) {
  PlanAdvice advice = FullAdvice();
  advice.ttft_seconds.reset();
  advice.tpot_low_seconds.reset();
  advice.memory.max_concurrency.reset();
  advice.terms[0].stated = true;
  v1::PlanAdvice message;
  ToProto(advice, v1::ADVICE_VIEW_FULL, &message);
  EXPECT_FALSE(message.has_ttft_seconds());
  EXPECT_FALSE(message.interval().has_tpot_low_seconds());
  EXPECT_FALSE(message.memory().has_max_concurrency());
  EXPECT_EQ(message.terms(0).basis(), v1::BASIS_STATED);
}

TEST(ConvertTest, ListsOfAnAnswerAreFilled) {
  v1::RuledOut ruled_out;
  ToProto(RuledOut{EngineId::kReference, "TP3", "32 heads over 3"}, &ruled_out);
  EXPECT_THAT(UnsetFields(ruled_out), IsEmpty());
  v1::NotAnswerable not_answerable;
  ToProto(NotAnswerable{EngineId::kVllm, "TP8", {"all_reduce/n8"}},
          &not_answerable);
  EXPECT_THAT(UnsetFields(not_answerable), IsEmpty());
  v1::FlipPoint flip;
  ToProto(FlipPoint{17, "TP8", "2xTP4", EngineId::kSglang, EngineId::kVllm},
          &flip);
  EXPECT_THAT(UnsetFields(flip), IsEmpty());
  EXPECT_EQ(flip.from_engine(), v1::ENGINE_SGLANG);
  EXPECT_EQ(flip.to_engine(), v1::ENGINE_VLLM);
  v1::FlipPoint last;
  ToProto(FlipPoint{.concurrency = 90,
                    .from_mode = "TP8",
                    .from_engine = EngineId::kSglang},
          &last);
  EXPECT_THAT(UnsetFields(last), UnorderedElementsAre("to_mode", "to_engine"));
  v1::Confidence confidence;
  ToProto(Confidence{0.9, 0.1, 0.05, true}, &confidence);
  EXPECT_THAT(UnsetFields(confidence), IsEmpty());
}

TEST(ConvertTest, AProfileIsWrittenAsFarAsItsView) {
  const auto profile = SampleProfile("sample");
  v1::NodeProfile summary;
  ToProto(*profile, v1::PROFILE_VIEW_SUMMARY, &summary);
  EXPECT_THAT(
      UnsetFields(summary),
      UnorderedElementsAre("curves", "profile_file", "fingerprint.gpus.uuid",
                           "as_of_time.nanos", "oldest_curve_time.nanos"));
  EXPECT_EQ(summary.fingerprint().id(), profile->fingerprint_id());
  EXPECT_EQ(summary.fingerprint().gpus_size(), 2);
  EXPECT_EQ(summary.as_of_time().seconds(), 1'795'910'400);
  EXPECT_EQ(summary.measurement_count(),
            static_cast<int64_t>(profile->data().measurements.size()));
  std::vector<std::string> tables;
  for (const auto& table : summary.tables()) tables.push_back(table.name());
  EXPECT_THAT(tables, ElementsAre("experts bf16", "gemm bf16", "launch",
                                  "memory copy", "memory read"));
  EXPECT_EQ(summary.tables(0).point_count(), 3 * 9);  // shards x sizes
  EXPECT_EQ(summary.tables(2).point_count(), 1);

  v1::NodeProfile curves;
  ToProto(*profile, v1::PROFILE_VIEW_CURVES, &curves);
  std::vector<std::string> keys;
  for (const v1::Curve& curve : curves.curves()) keys.push_back(curve.key());
  // Five operations, all-reduce by four implementations, by both launches.
  ASSERT_THAT(keys, SizeIs((5 + 3) * 2));
  const v1::Curve& all_reduce = curves.curves(0);
  EXPECT_EQ(all_reduce.key(), "all_reduce/n2/nccl/graph");
  EXPECT_EQ(all_reduce.points_size(), 12);
  EXPECT_EQ(all_reduce.points(0).size(), 1024);
  EXPECT_EQ(all_reduce.basis(), v1::BASIS_MEASURED);
  EXPECT_EQ(all_reduce.cliffs_size(), 0);
  for (const v1::Curve& curve : curves.curves()) {
    if (curve.key() != "all_to_all/n2/nccl/graph") continue;
    ASSERT_EQ(curve.cliffs_size(), 1);
    EXPECT_EQ(curve.cliffs(0).from_size(), 65536);
    EXPECT_THAT(UnsetFields(curve), IsEmpty());
    return;
  }
  FAIL() << "no all-to-all curve";
}

TEST(ConvertTest, AMeasurementIsWrittenWholeAndItsGapsStayAbsent) {
  Measurement measurement = SampleProfileData("x").measurements[0];
  measurement.statistics.p99_seconds = 2e-5;
  measurement.statistics.discarded = 3;
  measurement.statistics.discard_reason = "clock fell";
  measurement.statistics.stop_reason = StopReason::kSettledNoisy;
  measurement.statistics.verified = true;
  measurement.statistics.sm_clock_hertz = 1.98e9;
  measurement.fingerprint_id = "0123456789abcdef";
  measurement.start_time += absl::Nanoseconds(7);
  v1::Measurement message;
  ToProto(42, measurement, &message);
  EXPECT_THAT(UnsetFields(message), IsEmpty());
  EXPECT_EQ(message.id(), 42);
  EXPECT_EQ(message.key(), "all_reduce/n2/nccl/graph/1024B");
  EXPECT_EQ(message.stop_reason(), v1::STOP_REASON_SETTLED_NOISY);
  EXPECT_EQ(message.start_time().nanos(), 7);

  Measurement bare;
  bare.key = LaunchKey();
  bare.origin = Origin::kReference;
  v1::Measurement bare_message;
  ToProto(1, bare, &bare_message);
  EXPECT_FALSE(bare_message.has_iqr_seconds());
  EXPECT_FALSE(bare_message.has_p99_seconds());
  EXPECT_FALSE(bare_message.has_sm_clock_hertz());
  EXPECT_FALSE(bare_message.has_start_time());
  EXPECT_EQ(bare_message.basis(), v1::BASIS_REFERENCE);
}

TEST(ConvertTest, TimesBeforeTheEpochAreWrittenAsTheWireWantsThem) {
  pb::Timestamp message;
  TimeToProto(absl::UnixEpoch() - absl::Milliseconds(250), &message);
  EXPECT_EQ(message.seconds(), -1);
  EXPECT_EQ(message.nanos(), 750'000'000);
}

TEST(ConvertTest, GroundsNameTheProfile) {
  v1::Grounds grounds;
  GroundsToProto(*SampleProfile("sample"), Standing::kInterpolated, &grounds);
  EXPECT_THAT(
      UnsetFields(grounds),
      UnorderedElementsAre("as_of_time.nanos", "oldest_curve_time.nanos"));
  EXPECT_EQ(grounds.profile(), "sample");
  EXPECT_EQ(grounds.basis(), v1::BASIS_INTERPOLATED);
}

}  // namespace
}  // namespace fabricwise
