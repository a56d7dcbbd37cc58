// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/advice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const ModelShape& Preset(const std::string& name) { return **FindPreset(name); }

// vLLM, decoding at 2048 tokens, all plans explained.
Question Asked(int64_t concurrency = 16) {
  Question question;
  question.workload.concurrency = concurrency;
  question.workload.phase = Phase::kDecode;
  question.workload.context_tokens = 2048;
  question.engines = {EngineId::kVllm};
  question.max_plans = kMaxPlans;
  return question;
}

Advice Ask(const std::string& model, const Question& question,
           const Profile& profile) {
  auto advice = Recommend(Preset(model), question, profile);
  EXPECT_TRUE(advice.ok()) << advice.status();
  return advice.ok() ? *std::move(advice) : Advice();
}

// A node on which talking is hopeless.
SyntheticNode SlowFabric() {
  SyntheticNode node;
  node.fabric_latency_seconds = 10e-3;
  return node;
}

TEST(Recommend, RanksByThroughput) {
  const auto profile = SyntheticProfile();
  const Advice advice = Ask("Qwen3-30B-A3B", Asked(64), *profile);
  ASSERT_GT(advice.plans.size(), 10u);
  for (size_t i = 1; i < advice.plans.size(); ++i) {
    // The first stands before what it ties with.
    EXPECT_LE(advice.plans[i].output_tokens_per_second,
              advice.plans[i == 1 ? 0 : i - 1].output_tokens_per_second *
                  (i == 1 ? 1.0101 : 1.0000001) * (i == 2 ? 1.0101 : 1));
  }
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_NEAR(plan.output_tokens_per_second, 64 / plan.tpot_seconds, 1e-6);
    ASSERT_TRUE(plan.tpot_low_seconds.has_value());
    EXPECT_GT(*plan.tpot_low_seconds, 0);
    EXPECT_LT(*plan.tpot_low_seconds, plan.tpot_seconds);
    EXPECT_GT(plan.tpot_high_seconds, plan.tpot_seconds);
    EXPECT_EQ(plan.mode, ModeName(plan.plan));
    EXPECT_EQ(plan.engine, EngineId::kVllm);
    EXPECT_FALSE(plan.launch.commands.empty());
    EXPECT_THAT(plan.misses, IsEmpty());
  }
}

TEST(Recommend, RanksByLatencyWhereAsked) {
  Question question = Asked(8);
  question.objective = Objective::kLatency;
  const Advice advice = Ask("Llama-3.1-70B", question, *SyntheticProfile());
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_LE(advice.plans[0].tpot_seconds, plan.tpot_seconds * 1.0101);
  }
}

TEST(Recommend, ExplainsNoMorePlansThanAsked) {
  Question question = Asked();
  question.max_plans = 3;
  EXPECT_THAT(Ask("Llama-3.1-8B", question, *SyntheticProfile()).plans,
              SizeIs(3));
}

TEST(Recommend, PrefersReplicasWhereTalkingIsDear) {
  const Advice advice =
      Ask("Qwen3-30B-A3B", Asked(64), *SyntheticProfile(SlowFabric()));
  EXPECT_EQ(advice.plans[0].mode, "8xTP1");
}

TEST(Recommend, TakesFewerGpusOfEquals) {
  // One sequence on one of two replicas is as fast as on one alone.
  Question question = Asked(1);
  question.objective = Objective::kLatency;
  const Advice advice =
      Ask("Llama-3.1-8B", question, *SyntheticProfile(SlowFabric()));
  EXPECT_EQ(advice.plans[0].mode, "TP1");
  EXPECT_NEAR(advice.confidence.margin_ratio, 0, 1e-9);
}

TEST(Recommend, TakesTheSimplerOfEquals) {
  // Nothing is sent on one GPU or on many replicas of one.
  Question question = Asked(8);
  question.scope = CostScope::kCommunication;
  question.gpus.count = 8;
  const Advice advice = Ask("Llama-3.1-8B", question, *SyntheticProfile());
  EXPECT_EQ(advice.plans[0].mode, "8xTP1");
  EXPECT_EQ(advice.plans[0].tpot_seconds, 0);
  EXPECT_EQ(advice.plans[0].output_tokens_per_second, 0);
  EXPECT_FALSE(std::isnan(advice.confidence.probability_first_is_best));
  EXPECT_FALSE(std::isnan(advice.confidence.margin_ratio));
}

TEST(Recommend, OfCommunicationAloneStatesNoOtherTerm) {
  Question question = Asked(8);
  question.scope = CostScope::kCommunication;
  const Advice advice = Ask("Kimi-K2.5", question, *SyntheticProfile());
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_FALSE(plan.ttft_seconds.has_value());
    for (const Term& term : plan.terms) {
      EXPECT_TRUE(term.communication) << plan.mode << " " << term.name;
    }
  }
  EXPECT_EQ(advice.confidence.model_residual_ratio, 0);
}

TEST(Recommend, StaysWithTheRunningModeWithinTheMargin) {
  const auto profile = SyntheticProfile();
  const Advice free = Ask("Qwen3-30B-A3B", Asked(64), *profile);
  const double best = free.plans[0].tpot_seconds;
  int kept = 0, left = 0;
  for (const PlanAdvice& plan : free.plans) {
    const double behind = plan.tpot_seconds / best - 1;
    if (plan.plan.gpus() != 8 || std::abs(behind - 0.05) < 0.011) continue;
    Question question = Asked(64);
    question.current_mode = plan.mode;
    const Advice advice = Ask("Qwen3-30B-A3B", question, *profile);
    if (behind < 0.05) {
      EXPECT_EQ(advice.plans[0].mode, plan.mode);
      ++kept;
    } else {
      EXPECT_EQ(advice.plans[0].mode, free.plans[0].mode);
      ++left;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(left, 0);
}

TEST(Recommend, PutsPlansThatMissALimitLast) {
  // Replicas give most tokens, a single one the first token soonest.
  SyntheticNode node;
  node.fabric_latency_seconds = 100e-6;
  const auto profile = SyntheticProfile(node);
  Question question = Asked(64);
  question.workload.phase = Phase::kSteadyState;
  question.workload.context_tokens = 0;
  question.workload.input_tokens = 8192;
  question.workload.output_tokens = 8192;
  const Advice free = Ask("Llama-3.1-8B", question, *profile);
  double least = *free.plans[0].ttft_seconds;
  for (const PlanAdvice& plan : free.plans) {
    least = std::min(least, *plan.ttft_seconds);
  }
  ASSERT_LT(least, 0.99 * *free.plans[0].ttft_seconds);
  const double limit = (least + *free.plans[0].ttft_seconds) / 2;
  question.limits.max_ttft_seconds = limit;
  question.objective = Objective::kThroughputInLimits;
  const Advice advice = Ask("Llama-3.1-8B", question, *profile);
  EXPECT_EQ(advice.plans.size(), free.plans.size());
  EXPECT_NE(advice.plans[0].mode, free.plans[0].mode);
  EXPECT_LE(*advice.plans[0].ttft_seconds, limit);
  bool missed = false;
  for (const PlanAdvice& plan : advice.plans) {
    const bool misses = *plan.ttft_seconds > limit;
    EXPECT_FALSE(missed && !misses) << plan.mode << " stands behind a miss";
    missed = misses;
    if (misses) {
      EXPECT_THAT(plan.misses,
                  ElementsAre(AllOf(HasSubstr("TTFT"),
                                    HasSubstr("is over the limit of"))));
    } else {
      EXPECT_THAT(plan.misses, IsEmpty());
    }
  }
  EXPECT_TRUE(missed);
}

TEST(Recommend, SaysWhichPlansAreTooSlow) {
  const auto profile = SyntheticProfile();
  const Advice free = Ask("Llama-3.1-70B", Asked(64), *profile);
  Question question = Asked(64);
  question.limits.max_tpot_seconds = free.plans[0].tpot_seconds * 1.5;
  for (const PlanAdvice& plan :
       Ask("Llama-3.1-70B", question, *profile).plans) {
    if (plan.tpot_seconds > question.limits.max_tpot_seconds) {
      EXPECT_THAT(plan.misses, ElementsAre(HasSubstr("TPOT"))) << plan.mode;
    } else {
      EXPECT_THAT(plan.misses, IsEmpty()) << plan.mode;
    }
  }
}

TEST(Recommend, StillRanksWhereEveryPlanMisses) {
  Question question = Asked(16);
  question.workload.phase = Phase::kSteadyState;
  question.workload.context_tokens = 0;
  question.objective = Objective::kThroughputInLimits;
  question.limits.max_ttft_seconds = 1e-6;
  const Advice advice = Ask("Llama-3.1-8B", question, *SyntheticProfile());
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_THAT(plan.misses, ElementsAre(HasSubstr("TTFT"))) << plan.mode;
  }
}

TEST(Recommend, NamesWhatPromptsLackOnlyWhereTheyAreAskedFor) {
  // Decoding is measured, but no product of a prompt's many rows.
  SyntheticNode node;
  node.keep = [](const MeasurementKey& key) {
    const auto* gemm = std::get_if<GemmKey>(&key);
    return gemm == nullptr || gemm->m <= 64;
  };
  const auto profile = SyntheticProfile(node);
  Question question = Asked(1);
  EXPECT_THAT(Ask("Llama-3.1-8B", question, *profile).plans, Not(IsEmpty()));
  question.workload.phase = Phase::kSteadyState;
  question.workload.context_tokens = 0;
  question.workload.input_tokens = 4096;
  const auto advice =
      Recommend(**FindPreset("Llama-3.1-8B"), question, *profile);
  EXPECT_EQ(advice.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(advice.status().message(),
              HasSubstr("not measured: gemm/bf16/m4096n6144k4096"));
}

TEST(Recommend, DoesNotPassATimeThatItCannotTell) {
  Question question = Asked(8);
  question.workload.phase = Phase::kSteadyState;
  question.workload.context_tokens = 0;
  question.scope = CostScope::kCommunication;
  question.limits.max_ttft_seconds = 1;
  const Advice advice = Ask("Llama-3.1-8B", question, *SyntheticProfile());
  ASSERT_THAT(advice.plans, Not(IsEmpty()));
  EXPECT_FALSE(advice.plans[0].ttft_seconds.has_value());
  EXPECT_THAT(advice.plans[0].misses,
              ElementsAre("TTFT cannot be told from communication alone"));
}

TEST(Recommend, ChargesOnlyThePromptsOfOthersToATokenOfASequence) {
  const auto profile = SyntheticProfile();
  const auto first = [&](int64_t concurrency, Phase phase) {
    Question question = Asked(concurrency);
    question.workload.phase = phase;
    question.workload.context_tokens = phase == Phase::kDecode ? 1536 : 0;
    question.gpus.count = 1;
    return Ask("Llama-3.1-8B", question, *profile).plans[0];
  };
  const auto prompts = [](const PlanAdvice& plan) {
    const auto term =
        std::find_if(plan.terms.begin(), plan.terms.end(), [](const Term& one) {
          return one.name == "prompts of other sequences";
        });
    return term == plan.terms.end() ? nullptr : &*term;
  };
  // Alone, a sequence decodes as if there were no prompts.
  const PlanAdvice alone = first(1, Phase::kSteadyState);
  EXPECT_EQ(alone.tpot_seconds, first(1, Phase::kDecode).tpot_seconds);
  EXPECT_EQ(prompts(alone), nullptr);
  EXPECT_EQ(alone.ttft_seconds, first(1, Phase::kPrefill).ttft_seconds);
  // Its rate counts the time to the first token as well.
  EXPECT_NEAR(alone.output_tokens_per_second,
              1024 / (*alone.ttft_seconds + 1023 * alone.tpot_seconds), 1e-6);

  const PlanAdvice among = first(64, Phase::kSteadyState);
  const Term* term = prompts(among);
  ASSERT_NE(term, nullptr);
  EXPECT_NEAR(term->seconds,
              among.tpot_seconds - first(64, Phase::kDecode).tpot_seconds,
              1e-12);
  // 63 prompts of 1024 tokens in 1024 steps, a few of them together.
  EXPECT_NEAR(term->count * term->size, 63, 1);
  EXPECT_GT(term->size, 1024);
}

TEST(Recommend, PredictsTimeToFirstTokenByChunks) {
  const auto profile = SyntheticProfile();
  Question question = Asked(4);
  question.workload.phase = Phase::kSteadyState;
  question.workload.context_tokens = 0;
  const auto ttft = [&](int64_t input_tokens) {
    question.workload.input_tokens = input_tokens;
    question.gpus.count = 1;
    return *Ask("Llama-3.1-8B", question, *profile).plans[0].ttft_seconds;
  };
  EXPECT_GT(ttft(1024), ttft(128));
  EXPECT_GT(ttft(16'384), 1.9 * ttft(8192));
  // A last chunk of one token is no whole chunk.
  EXPECT_LT(ttft(8193), 1.01 * ttft(8192));
}

TEST(Recommend, OfPromptsAloneTellsTimeToFirstTokenOnly) {
  Question question = Asked(4);
  question.workload.phase = Phase::kPrefill;
  question.workload.context_tokens = 0;
  question.workload.input_tokens = 10'000;
  const Advice advice = Ask("Llama-3.1-8B", question, *SyntheticProfile());
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_EQ(plan.tpot_seconds, 0);
    EXPECT_EQ(plan.tpot_low_seconds, 0);
    EXPECT_EQ(plan.tpot_high_seconds, 0);
    ASSERT_TRUE(plan.ttft_seconds.has_value());
    EXPECT_NEAR(plan.output_tokens_per_second, 40'000 / *plan.ttft_seconds,
                1e-3);
    for (const Term& term : plan.terms) {
      if (!term.communication) continue;
      EXPECT_THAT(term.source, ::testing::EndsWith("/eager")) << plan.mode;
    }
  }
}

TEST(Recommend, HasNoLowerEndWhereATermIsAnUpperBound) {
  SyntheticNode node;
  node.keep = [](const MeasurementKey& key) {
    const auto* experts = std::get_if<ExpertsKey>(&key);
    return experts == nullptr || experts->format.number == NumberFormat::kBf16;
  };
  const auto profile = SyntheticProfile(node);
  for (const PlanAdvice& plan :
       Ask("gpt-oss-120b", Asked(16), *profile).plans) {
    EXPECT_EQ(plan.tpot_low_seconds, std::nullopt) << plan.mode;
    EXPECT_GT(plan.tpot_high_seconds, plan.tpot_seconds) << plan.mode;
    EXPECT_THAT(plan.terms, Contains(AllOf(Field(&Term::name, "experts"),
                                           Field(&Term::upper_bound, true))))
        << plan.mode;
  }
  for (const PlanAdvice& plan :
       Ask("Qwen3-30B-A3B", Asked(16), *profile).plans) {
    EXPECT_TRUE(plan.tpot_low_seconds.has_value()) << plan.mode;
  }
}

TEST(Recommend, IsNotSureWhereALimitIsMetOrMissedByAHair) {
  // Replicas give by far the most tokens, others the first token sooner.
  SyntheticNode node;
  node.fabric_latency_seconds = 100e-6;
  const auto profile = SyntheticProfile(node);
  Question question = Asked(64);
  question.workload.phase = Phase::kSteadyState;
  question.workload.context_tokens = 0;
  question.workload.input_tokens = 8192;
  question.workload.output_tokens = 8192;
  const Advice free = Ask("Llama-3.1-8B", question, *profile);
  const double ttft = *free.plans[0].ttft_seconds;
  const double sure = free.confidence.probability_first_is_best;

  question.objective = Objective::kThroughputInLimits;
  question.limits.max_ttft_seconds = ttft * 1.001;
  const Advice met = Ask("Llama-3.1-8B", question, *profile);
  EXPECT_EQ(met.plans[0].mode, free.plans[0].mode);
  EXPECT_LT(met.confidence.probability_first_is_best, sure - 0.1);

  question.limits.max_ttft_seconds = ttft * 0.999;
  const Advice missed = Ask("Llama-3.1-8B", question, *profile);
  EXPECT_NE(missed.plans[0].mode, free.plans[0].mode);
  EXPECT_LT(missed.confidence.probability_first_is_best, 0.6);

  question.limits.max_ttft_seconds = ttft * 10;
  EXPECT_NEAR(Ask("Llama-3.1-8B", question, *profile)
                  .confidence.probability_first_is_best,
              sure, 1e-6);
}

TEST(Recommend, LetsReplicasRunAtTheirOwnPace) {
  // 19 sequences on 4 replicas: 5, 5, 5 and 4.
  const auto profile = SyntheticProfile();
  for (const Phase phase : {Phase::kSteadyState, Phase::kDecode}) {
    const auto rate = [&](int gpus, int64_t concurrency,
                          const std::string& mode) {
      Question question = Asked(concurrency);
      question.workload.phase = phase;
      question.workload.context_tokens = 0;
      question.gpus.count = gpus;
      const Advice advice = Ask("Qwen3-30B-A3B", question, *profile);
      const auto plan =
          std::find_if(advice.plans.begin(), advice.plans.end(),
                       [&](const PlanAdvice& one) { return one.mode == mode; });
      EXPECT_NE(plan, advice.plans.end()) << mode;
      return plan == advice.plans.end() ? 0 : plan->output_tokens_per_second;
    };
    const double apart = 3 * rate(2, 5, "TP2") + rate(2, 4, "TP2");
    EXPECT_NEAR(rate(8, 19, "4xTP2") / apart, 1, 1e-9);
    // A replica without any adds nothing and keeps nobody waiting.
    EXPECT_NEAR(rate(8, 3, "4xTP2") / (3 * rate(2, 1, "TP2")), 1, 1e-9);
  }
}

TEST(Recommend, ChargesReplicasForTheFabricThatTheyShare) {
  const auto tp4 = [](const Profile& profile, int replicas) {
    Question question = Asked(16 * replicas);
    question.engines = {EngineId::kReference};
    question.gpus.count = 4 * replicas;
    question.max_plans = kMaxPlans;
    const Advice advice = Ask("Llama-3.1-70B", question, profile);
    return *std::find_if(
        advice.plans.begin(), advice.plans.end(), [](const PlanAdvice& plan) {
          return plan.plan.attention_tp == 4 && plan.plan.pipeline == 1;
        });
  };
  const auto all_reduce = [](const PlanAdvice& plan) {
    return *std::find_if(
        plan.terms.begin(), plan.terms.end(),
        [](const Term& term) { return term.name == "all_reduce attention"; });
  };
  const auto alone = SyntheticProfile();
  EXPECT_EQ(tp4(*alone, 2).mode, "2xTP4");
  EXPECT_EQ(tp4(*alone, 2).tpot_seconds, tp4(*alone, 1).tpot_seconds);
  EXPECT_EQ(all_reduce(tp4(*alone, 1)).note, "");
  EXPECT_THAT(all_reduce(tp4(*alone, 2)).note,
              HasSubstr("no other group busy"));

  ProfileData data = SyntheticProfileData({});
  for (int64_t size = 1024; size <= 4 << 20; size *= 4) {
    Measurement& both = data.measurements.emplace_back();
    both.key = CollectiveKey{.op = CollectiveOp::kAllReduce,
                             .group = {.size = 4},
                             .concurrent_groups = 2,
                             .size_bytes = size};
    both.statistics.median_seconds =
        40e-6 + 4 * static_cast<double>(size) / 300e9;
  }
  const auto contended = BuildOrDie(std::move(data));
  EXPECT_EQ(tp4(*contended, 1).tpot_seconds, tp4(*alone, 1).tpot_seconds);
  EXPECT_GT(tp4(*contended, 2).tpot_seconds,
            1.05 * tp4(*contended, 1).tpot_seconds);
  EXPECT_EQ(all_reduce(tp4(*contended, 2)).source,
            "all_reduce/n4/nccl/graph/x2");
  EXPECT_EQ(all_reduce(tp4(*contended, 2)).note, "");
}

TEST(Recommend, StartsAPlanOnTheGpusOfAnIsland) {
  // Even GPUs on one NVLink switch, odd ones on another.
  ProfileData data = SyntheticProfileData({});
  for (size_t i = 0; i < 8; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      if (i % 2 != j % 2) data.fingerprint.nvlinks[i][j] = 0;
    }
  }
  const auto profile = BuildOrDie(std::move(data));
  Question question = Asked(16);
  question.gpus.count = 8;
  question.max_plans = kMaxPlans;
  question.engines = {EngineId::kVllm};
  const Advice advice = Ask("Llama-3.1-70B", question, *profile);
  const auto commands = [&](const std::string& mode) {
    const auto plan =
        std::find_if(advice.plans.begin(), advice.plans.end(),
                     [&](const PlanAdvice& one) { return one.mode == mode; });
    EXPECT_NE(plan, advice.plans.end()) << mode;
    return plan->launch.commands;
  };
  EXPECT_THAT(commands("2xTP4"),
              ElementsAre(HasSubstr("CUDA_VISIBLE_DEVICES=0,2,4,6 "),
                          HasSubstr("CUDA_VISIBLE_DEVICES=1,3,5,7 ")));
  EXPECT_THAT(commands("PP2xTP4"),
              ElementsAre(HasSubstr("CUDA_VISIBLE_DEVICES=0,2,4,6,1,3,5,7 ")));
}

TEST(Recommend, RulesOutWhatDoesNotFitWithItsBytes) {
  SyntheticNode node;
  node.memory_bytes = 48'000'000'000;
  const Advice advice =
      Ask("Llama-3.1-70B", Asked(16), *SyntheticProfile(node));
  const auto tp1 =
      std::find_if(advice.ruled_out.begin(), advice.ruled_out.end(),
                   [](const RuledOut& out) { return out.mode == "TP1"; });
  ASSERT_NE(tp1, advice.ruled_out.end());
  EXPECT_THAT(tp1->reason, AllOf(HasSubstr("GiB per GPU (weights 131."),
                                 HasSubstr("usable 41.1 GiB")));
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_TRUE(plan.memory.fits) << plan.mode;
    EXPECT_GE(*plan.memory.max_concurrency, 16) << plan.mode;
  }
}

TEST(Recommend, SaysUpToWhatConcurrencyAPlanWouldFit) {
  SyntheticNode node;
  node.memory_bytes = 96'000'000'000;
  const Question question = Asked(256);
  const Advice advice = Ask("Llama-3.1-70B", question, *SyntheticProfile(node));
  EXPECT_THAT(advice.ruled_out,
              Contains(Field(&RuledOut::reason,
                             HasSubstr("; fits up to concurrency "))));
}

TEST(Recommend, MarksWhatWouldNotFitWhereMemoryIsIgnored) {
  SyntheticNode node;
  node.memory_bytes = 24'000'000'000;
  const auto profile = SyntheticProfile(node);
  const auto refused = Recommend(Preset("Kimi-K2.5"), Asked(), *profile);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("no plan can run: "), HasSubstr("GiB")));
  Question question = Asked();
  question.limits.ignore_memory = true;
  const Advice advice = Ask("Kimi-K2.5", question, *profile);
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_FALSE(plan.memory.fits);
    EXPECT_THAT(plan.misses, ElementsAre(HasSubstr("memory: needs")));
  }
}

TEST(Recommend, RulesOutMoreSequencesThanStepsTake) {
  ProfileData data = SyntheticProfileData({});
  for (const ExchangeStage stage :
       {ExchangeStage::kDispatch, ExchangeStage::kCombine}) {
    for (const int64_t tokens : {1, 16, 256}) {
      Measurement& measurement = data.measurements.emplace_back();
      measurement.key = ExchangeKey{.stage = stage,
                                    .group = {.size = 8},
                                    .hidden_size = 7168,
                                    .num_experts = 256,
                                    .experts_per_token = 8,
                                    .tokens_per_rank = tokens};
      measurement.statistics.median_seconds =
          10e-6 + 1e-7 * static_cast<double>(tokens);
    }
  }
  const auto profile = BuildOrDie(std::move(data));
  const auto reason = [&](int64_t concurrency) {
    Question question = Asked(concurrency);
    question.engines = {EngineId::kVllm};
    question.limits.ignore_memory = true;
    const Advice advice = Ask("DeepSeek-V3", question, *profile);
    for (const RuledOut& out : advice.ruled_out) {
      if (out.mode == "DP8+EP8:deepep-ll") return out.reason;
    }
    return std::string();
  };
  EXPECT_EQ(reason(2048), "");
  EXPECT_EQ(reason(2049),
            "a rank decodes at most 256 sequences in a step: up to concurrency "
            "2048");
}

TEST(Recommend, ListsWhatTheEngineRefuses) {
  const Advice advice =
      Ask("Qwen3-235B-A22B-FP8", Asked(), *SyntheticProfile());
  EXPECT_THAT(advice.ruled_out,
              Contains(AllOf(Field(&RuledOut::mode, "TP8"),
                             Field(&RuledOut::reason, HasSubstr("= 192")))));
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_NE(plan.mode, "TP8");
  }
}

TEST(Recommend, ListsWhatItCannotAnswerAndRanksTheRest) {
  SyntheticNode node;
  node.keep = [](const MeasurementKey& key) {
    const auto* collective = std::get_if<CollectiveKey>(&key);
    return collective == nullptr ||
           collective->op != CollectiveOp::kReduceScatter;
  };
  const Advice advice =
      Ask("Qwen3-30B-A3B", Asked(16), *SyntheticProfile(node));
  EXPECT_THAT(advice.not_answerable,
              Contains(AllOf(
                  Field(&NotAnswerable::mode, "DP8+EP8"),
                  Field(&NotAnswerable::missing_measurements,
                        ElementsAre("reduce_scatter/n8/nccl/graph/65536B")))));
  EXPECT_THAT(advice.plans, Not(IsEmpty()));
  for (const PlanAdvice& plan : advice.plans) {
    EXPECT_EQ(plan.plan.attention_dp, 1) << plan.mode;
  }
}

TEST(Recommend, WithoutMeasurementsNamesWhatIsMissing) {
  SyntheticNode node;
  node.name = "empty";
  node.keep = [](const MeasurementKey&) { return false; };
  const auto advice =
      Recommend(Preset("Llama-3.1-8B"), Asked(), *SyntheticProfile(node));
  EXPECT_EQ(advice.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(advice.status().message());
  EXPECT_THAT(message, HasSubstr("no plan can be answered from profile "
                                 "'empty'; not measured: gemm/bf16/"));
  EXPECT_THAT(message, HasSubstr(" more"));
}

TEST(Recommend, RefusesWhatItIsNotMadeFor) {
  const auto profile = SyntheticProfile();
  const auto refusal = [&](const ModelShape& model, const Question& question,
                           const Profile& of) {
    const auto advice = Recommend(model, question, of);
    EXPECT_FALSE(advice.ok());
    return advice.status();
  };
  const ModelShape& model = Preset("Llama-3.1-8B");
  Question question = Asked();
  question.gpus.count = 9;
  EXPECT_EQ(refusal(model, question, *profile),
            absl::InvalidArgumentError("gpus.count is 9; allowed: 1 to 8, the "
                                       "GPUs of profile 'synthetic'"));
  for (int64_t concurrency : {int64_t{0}, int64_t{-1}, kMaxConcurrency + 1,
                              std::numeric_limits<int64_t>::max()}) {
    const absl::Status status = refusal(model, Asked(concurrency), *profile);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("workload.concurrency"));
  }
  question = Asked();
  question.limits.max_tpot_seconds = std::nan("");
  EXPECT_EQ(refusal(model, question, *profile).code(),
            absl::StatusCode::kInvalidArgument);
  ModelShape bad = model;
  bad.hidden_size = 0;
  const absl::Status status = refusal(bad, Asked(), *profile);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.hidden_size"));

  ProfileData nobody = SyntheticProfileData({});
  nobody.fingerprint.gpus.clear();
  EXPECT_EQ(refusal(model, Asked(), *BuildOrDie(std::move(nobody))),
            absl::FailedPreconditionError("profile 'synthetic' names no GPU"));
}

TEST(Recommend, UsesExactlyTheGpusThatAreAskedFor) {
  for (int gpus : {3, 5, 6, 7, 8}) {
    SyntheticNode node;
    node.gpus = gpus;
    const auto profile = SyntheticProfile(node);
    for (int count = 1; count <= gpus; ++count) {
      Question question = Asked(24);
      question.gpus.count = count;
      for (const PlanAdvice& plan :
           Ask("Qwen3-30B-A3B", question, *profile).plans) {
        EXPECT_EQ(plan.plan.gpus(), count) << plan.mode;
      }
    }
    std::set<int> used;
    for (const PlanAdvice& plan :
         Ask("Qwen3-30B-A3B", Asked(24), *profile).plans) {
      used.insert(plan.plan.gpus());
    }
    EXPECT_THAT(used, Contains(gpus));
  }
}

TEST(Recommend, AddsTheAskersAllReducesAndHostTime) {
  const auto profile = SyntheticProfile();
  const auto tp8 = [&](const Question& question) {
    for (const PlanAdvice& plan : Ask("Kimi-K2.5", question, *profile).plans) {
      if (plan.mode == "TP8") return plan;
    }
    ADD_FAILURE() << "TP8 was not answered";
    return PlanAdvice();
  };
  const PlanAdvice plain = tp8(Asked(1));
  Question question = Asked(1);
  question.workload.extra_all_reduces = 4;
  question.host_seconds_per_step = 2e-3;
  const PlanAdvice more = tp8(question);
  EXPECT_THAT(more.terms, Contains(AllOf(Field(&Term::name, "all_reduce extra"),
                                         Field(&Term::count, 4))));
  EXPECT_THAT(more.terms, Contains(AllOf(Field(&Term::name, "host"),
                                         Field(&Term::stated, true),
                                         Field(&Term::seconds, 2e-3))));
  // An all-reduce of 14 KiB is 20 us on this node.
  EXPECT_NEAR(more.tpot_seconds - plain.tpot_seconds, 2e-3 + 4 * 20e-6, 2e-6);
}

TEST(Recommend, CountsTheSkewOfTheRouting) {
  const auto profile = SyntheticProfile();
  const auto ep8 = [&](double skew) {
    Question question = Asked(64);
    question.workload.routing_skew = skew;
    question.workload.context_tokens = 1;
    question.gpus.count = 8;
    for (const PlanAdvice& plan :
         Ask("Qwen3-30B-A3B", question, *profile).plans) {
      if (plan.mode != "TP8+EP8") continue;
      for (const Term& term : plan.terms) {
        if (term.name == "experts") return term.relative_sigma;
      }
    }
    return 0.0;
  };
  EXPECT_GT(ep8(1), ep8(0));
  EXPECT_GT(ep8(0), 0);
}

// One GPU runs the same in either.
TEST(Recommend, PrefersTheEngineWhoseRulesAreInNoDoubtInATie) {
  Question question = Asked(8);
  question.engines = {EngineId::kTrtllm, EngineId::kVllm};
  question.gpus.count = 1;
  question.workload.phase = Phase::kDecode;
  const Advice advice = Ask("Llama-3.1-8B", question, *SyntheticProfile());
  ASSERT_EQ(advice.plans.size(), 2);
  EXPECT_EQ(advice.plans[0].engine, EngineId::kVllm);
  EXPECT_EQ(advice.plans[0].caveat, "");
  EXPECT_EQ(advice.plans[1].engine, EngineId::kTrtllm);
  EXPECT_NE(advice.plans[1].caveat, "");
}

// Of several engines each plan names its own.
TEST(Recommend, AsksTheEnginesThatAreNamedOrElseThoseThatServe) {
  const auto engines_of = [](std::vector<EngineId> asked) {
    Question question = Asked(8);
    question.engines = std::move(asked);
    std::set<EngineId> seen;
    const Advice advice = Ask("Llama-3.1-8B", question, *SyntheticProfile());
    for (const PlanAdvice& plan : advice.plans) seen.insert(plan.engine);
    for (const FlipPoint& flip : advice.flip_points) {
      EXPECT_NE(flip.from_mode, flip.to_mode);
    }
    return seen;
  };
  EXPECT_THAT(engines_of({EngineId::kReference, EngineId::kVllm}),
              ElementsAre(EngineId::kReference, EngineId::kVllm));
  EXPECT_THAT(engines_of({}), ElementsAre(EngineId::kVllm, EngineId::kSglang,
                                          EngineId::kTrtllm));
}

TEST(Recommend, UsesOnlyTheGpusThatAreNamed) {
  const auto profile = SyntheticProfile();
  Question question = Asked(24);
  question.gpus.indices = {6, 1, 4};
  std::set<int> counts;
  for (const PlanAdvice& plan :
       Ask("Qwen3-30B-A3B", question, *profile).plans) {
    counts.insert(plan.plan.gpus());
    ASSERT_THAT(plan.placement.replicas,
                SizeIs(static_cast<size_t>(plan.plan.replicas)));
    std::set<int> used;
    for (size_t i = 0; i < plan.placement.replicas.size(); ++i) {
      const std::vector<int>& gpus = plan.placement.replicas[i];
      used.insert(gpus.begin(), gpus.end());
      EXPECT_THAT(plan.launch.commands[i],
                  ::testing::StartsWith(absl::StrCat(
                      "CUDA_VISIBLE_DEVICES=", absl::StrJoin(gpus, ","), " ")));
    }
    EXPECT_EQ(used.size(), static_cast<size_t>(plan.plan.gpus())) << plan.mode;
    for (int gpu : used) EXPECT_TRUE(gpu == 1 || gpu == 4 || gpu == 6) << gpu;
  }
  EXPECT_THAT(counts, ElementsAre(1, 2, 3));
  // On a node whose links are alike others do as well, and take as long.
  Question any = Asked(24);
  any.gpus.count = question.gpus.count = 2;
  const PlanAdvice of_any = Ask("Qwen3-30B-A3B", any, *profile).plans[0];
  const PlanAdvice of_named = Ask("Qwen3-30B-A3B", question, *profile).plans[0];
  EXPECT_EQ(of_named.mode, of_any.mode);
  EXPECT_EQ(of_named.tpot_seconds, of_any.tpot_seconds);
  EXPECT_THAT(of_any.placement.replicas, IsEmpty());
}

TEST(Recommend, TakesTheMemoryOfTheGpusThatAreNamed) {
  ProfileData data = SyntheticProfileData({});
  data.fingerprint.gpus[0].memory_bytes = 24'000'000'000;
  const auto profile = BuildOrDie(std::move(data));
  Question question = Asked(1);
  question.gpus.count = 1;
  EXPECT_EQ(Recommend(Preset("Qwen3-32B"), question, *profile).status().code(),
            absl::StatusCode::kFailedPrecondition);
  question.gpus.indices = {3, 5};
  EXPECT_EQ(Ask("Qwen3-32B", question, *profile).plans[0].mode, "TP1");
}

TEST(Recommend, RefusesGpusThatTheNodeDoesNotHave) {
  Question question = Asked();
  question.gpus.indices = {0, 8};
  EXPECT_EQ(
      Recommend(Preset("Llama-3.1-8B"), question, *SyntheticProfile()).status(),
      absl::InvalidArgumentError("gpus.indices is 8; allowed: 0 to 7, the GPUs "
                                 "of profile 'synthetic'"));
}

TEST(Recommend, TellsTheEnginesOfAFlip) {
  Question question = Asked(8);
  question.engines = {};
  question.max_plans = 1;
  int flips = 0;
  for (const char* model : {"Qwen3-30B-A3B", "Kimi-K2.5", "gpt-oss-120b"}) {
    const Advice advice = Ask(model, question, *SyntheticProfile());
    for (const FlipPoint& flip : advice.flip_points) {
      EXPECT_EQ(flip.from_engine.has_value(), !flip.from_mode.empty());
      ASSERT_EQ(flip.to_engine.has_value(), !flip.to_mode.empty());
      if (!flip.to_engine.has_value()) continue;
      ++flips;
      Question there = question;
      there.workload.concurrency = flip.concurrency;
      const PlanAdvice first = Ask(model, there, *SyntheticProfile()).plans[0];
      EXPECT_EQ(first.mode, flip.to_mode) << flip.concurrency;
      EXPECT_EQ(first.engine, *flip.to_engine) << flip.concurrency;
    }
  }
  EXPECT_GT(flips, 1);
}

TEST(Recommend, LooksAtOptionsOnlyWhereTheyAreAskedFor) {
  const auto profile = SyntheticProfile();
  const auto options_of = [&](const PlanOptions& options) {
    Question question = Asked(64);
    question.engines = {EngineId::kSglang};
    question.workload.phase = Phase::kSteadyState;
    question.workload.context_tokens = 0;
    question.options = options;
    std::set<std::string> seen;
    const Advice advice = Ask("Kimi-K2.5", question, *profile);
    for (const PlanAdvice& plan : advice.plans) {
      const size_t plus = plan.mode.rfind('+');
      if (plan.plan.two_batch_overlap || plan.plan.fp8_dispatch) {
        seen.insert(plan.mode.substr(plus));
      }
    }
    for (const NotAnswerable& plan : advice.not_answerable) {
      if (plan.mode.find("+tbo") == std::string::npos) continue;
      seen.insert("+tbo");
      EXPECT_THAT(plan.missing_measurements, Each(HasSubstr("exchange/deepep")))
          << plan.mode;
    }
    return seen;
  };
  EXPECT_THAT(options_of({}), IsEmpty());
  EXPECT_THAT(options_of({.fp8_dispatch = true}), ElementsAre("+fp8d"));
  EXPECT_THAT(options_of({.two_batch_overlap = true}), ElementsAre("+tbo"));
}

}  // namespace
}  // namespace fabricwise
