// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/render/curves.h"
#include "client/render/doctor.h"
#include "client/render/profile.h"
#include "client/render/progress.h"
#include "client/render/recommend.h"
#include "client/render/text.h"
#include "tests/unit/client/golden.h"
#include "tests/unit/client/samples.h"

namespace fabricwise {
namespace {

// The widest line, in columns.
int WidestLine(const std::string& text) {
  int widest = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    widest = std::max(widest, DisplayWidth(line));
  }
  return widest;
}

std::string Recommendation(Style style, bool explain = false) {
  return RenderRecommendation(SampleQuestion(), SampleAnswer(),
                              Options(style, explain));
}

TEST(RenderRecommendation, PipeIsPlainAndUncut) {
  ExpectGolden("recommend_pipe.txt", Recommendation(PipeStyle()));
}

TEST(RenderRecommendation, TerminalHasRulesBarsAndColour) {
  ExpectGolden("recommend_terminal.txt", Recommendation(TerminalStyle(120)));
}

TEST(RenderRecommendation, ExplainTellsTermsAndEveryReason) {
  ExpectGolden("explain_pipe.txt", Recommendation(PipeStyle(), true));
  ExpectGolden("explain_terminal.txt",
               Recommendation(UncolouredStyle(110), true));
}

TEST(RenderRecommendation, NarrowTerminalDropsColumnsAndWraps) {
  std::string text = Recommendation(UncolouredStyle(60));
  EXPECT_LE(WidestLine(text), 60);
  ExpectGolden("recommend_narrow.txt", text);
}

TEST(RenderRecommendation, LongAndWideModeNamesAreCutByColumns) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_model()->set_name("模型-30B");
  answer.mutable_plans(0)->mutable_plan()->set_mode(
      "DP64xTP2+EP16xMTP8:deepep-ll+tbo+fp8d");
  std::string text = RenderRecommendation(SampleQuestion(), answer,
                                          Options(UncolouredStyle(70)));
  EXPECT_LE(WidestLine(text), 70);
  ExpectGolden("recommend_long_mode.txt", text);
}

TEST(RenderRecommendation, PlansInDoubtAreMarkedAndTheDoubtToldOnce) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  for (int i : {0, 2}) {
    answer.mutable_plans(i)->set_caveat("low confidence: verify");
  }
  const std::string text = RenderRecommendation(SampleQuestion(), answer,
                                                Options(PipeStyle(), false));
  EXPECT_TRUE(absl::StrContains(text, "2xTP1 ? "));
  EXPECT_TRUE(absl::StrContains(text, "DP2+EP2 ? "));
  EXPECT_FALSE(absl::StrContains(text, "TP2 ? "));
  EXPECT_TRUE(
      absl::StrContains(text, " ? in doubt   vllm: low confidence: verify\n"));
  EXPECT_EQ(text.find("in doubt"), text.rfind("in doubt"));

  v1::SweepConcurrencyResponse sweep = SampleSweep();
  sweep.mutable_points(0)->mutable_plans(0)->set_caveat("low confidence");
  const std::string points =
      RenderSweep(SampleQuestion(), sweep, Options(PipeStyle(), false));
  EXPECT_TRUE(absl::StrContains(
      points, sweep.points(0).plans(0).plan().mode() + " ? "));
  EXPECT_TRUE(absl::StrContains(points, ": low confidence\n"));
}

TEST(RenderRecommendation, ReasonsOfSeveralEnginesNameEachPlansOwn) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_ruled_out(0)->set_engine(v1::ENGINE_SGLANG);
  answer.mutable_not_answerable(1)->set_engine(v1::ENGINE_TRTLLM);
  const std::string text = RenderRecommendation(SampleQuestion(), answer,
                                                Options(PipeStyle(), true));
  EXPECT_TRUE(absl::StrContains(text, "TP4 on sglang: needs 4 GPUs"));
  EXPECT_TRUE(absl::StrContains(text, "TP8 on vllm: needs 8 GPUs"));
  EXPECT_TRUE(absl::StrContains(text, "DP2+EP2:deepep-ht on trtllm"));
}

TEST(RenderRecommendation, ControlCharactersFromAServerDoNotReachTheTerminal) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_model()->set_name("a\x1b]0;title\x07 b");
  answer.mutable_ruled_out(0)->set_reason("\x1b[2J");
  answer.mutable_grounds()->add_notes("line\nbreak\xff");
  std::string text = RenderRecommendation(SampleQuestion(), answer,
                                          Options(PipeStyle(), true));
  EXPECT_FALSE(absl::StrContains(text, "\x1b"));
  EXPECT_TRUE(absl::StrContains(text, "a?]0;title? b"));
  EXPECT_TRUE(absl::StrContains(text, "line?break?"));
}

TEST(RenderRecommendation, DecodeHasNoTtftAndPrefillNoTpot) {
  v1::RecommendParallelismRequest question = SampleQuestion();
  v1::RecommendParallelismResponse answer = SampleAnswer();
  question.mutable_workload()->set_phase(v1::PHASE_DECODE);
  question.mutable_workload()->set_context_tokens(2048);
  for (v1::PlanAdvice& plan : *answer.mutable_plans()) {
    plan.clear_ttft_seconds();
  }
  std::string decode =
      RenderRecommendation(question, answer, Options(PipeStyle()));
  EXPECT_FALSE(absl::StrContains(decode, "TTFT"));
  EXPECT_TRUE(absl::StrContains(decode, "decode at 2,048 tokens of context"));

  question.mutable_workload()->set_phase(v1::PHASE_PREFILL);
  for (v1::PlanAdvice& plan : *answer.mutable_plans()) {
    plan.set_tpot_seconds(0);
    plan.set_ttft_seconds(0.1);
  }
  std::string prefill =
      RenderRecommendation(question, answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(prefill, "prompt tok/s"));
  EXPECT_TRUE(absl::StrContains(prefill, "TTFT ms"));
  EXPECT_FALSE(absl::StrContains(prefill, "TPOT us"));
}

TEST(RenderRecommendation, ThereIsNoMarginToPlansThatMissMoreLimits) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_confidence()->set_margin_ratio(0);
  answer.mutable_plans(1)->add_misses("TPOT 10.1 ms is over the limit");
  std::string text =
      RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, "all others miss more limits"));
  EXPECT_FALSE(absl::StrContains(text, "0 % ahead of"));
}

TEST(RenderRecommendation, ConfidenceIsSaidInWordsThatFollowProbability) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  auto words = [&](double probability) {
    answer.mutable_confidence()->set_probability_first_is_best(probability);
    return RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  };
  EXPECT_TRUE(absl::StrContains(words(0.99), "sure: 2xTP1"));
  EXPECT_TRUE(absl::StrContains(words(0.85), "likely: 2xTP1"));
  EXPECT_TRUE(absl::StrContains(words(0.7), "leaning: 2xTP1"));
  EXPECT_TRUE(absl::StrContains(words(0.5), "a toss-up: 2xTP1"));
}

TEST(RenderRecommendation, ACurrentPlanThatIsKeptIsSaidToBeKept) {
  v1::RecommendParallelismRequest question = SampleQuestion();
  question.set_current_plan("2xTP1");
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_confidence()->set_margin_ratio(-0.01);
  std::string text =
      RenderRecommendation(question, answer, Options(PipeStyle()));
  EXPECT_TRUE(
      absl::StrContains(text, "1.0 % behind TP2, kept because it runs now"))
      << text;

  question.clear_current_plan();
  text = RenderRecommendation(question, answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(
      text, "1.0 % behind TP2, a tie (within 1 %), where fewer GPUs"))
      << text;
}

TEST(RenderRecommendation, ManyPlansAreCutUnlessExplained) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  while (answer.plans_size() < 64) {
    *answer.add_plans() = answer.plans(1);
  }
  std::string brief =
      RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(brief, "and 54 more"));
  std::string whole = RenderRecommendation(SampleQuestion(), answer,
                                           Options(PipeStyle(), true));
  EXPECT_FALSE(absl::StrContains(whole, "more (--explain"));
  EXPECT_TRUE(absl::StrContains(whole, "\n 64  TP2"));
}

TEST(RenderRecommendation, AnUpperBoundHasNoLowerEndAndSaysWhy) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  for (int i = 0; i < 2; ++i) {
    v1::PlanAdvice& plan = *answer.mutable_plans(i);
    plan.mutable_interval()->clear_tpot_low_seconds();
    plan.mutable_terms(0)->set_upper_bound(true);
    plan.mutable_terms(0)->set_note("a wider format stands in");
  }
  std::string text =
      RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(
      text, ">= 12,345  <= 5.18    <= 5.55   <= 120   64.9 / 140"))
      << text;
  EXPECT_TRUE(absl::StrContains(
      text,
      "\n <= >=        times are at most, tok/s at least what is shown: parts "
      "of a step are upper bounds\n"
      "              experts: a wider format stands in\n"))
      << text;
  EXPECT_TRUE(absl::StrContains(text, "6.58-7.58"));
  EXPECT_TRUE(
      absl::StrContains(RenderRecommendation(SampleQuestion(), answer,
                                             Options(UncolouredStyle(120))),
                        "\n ≤ ≥          times are at most, "));
  // Plans without a bound are as they were.
  EXPECT_TRUE(absl::StrContains(text, "   9,040     7.08  6.58-7.58 "));
  EXPECT_FALSE(absl::StrContains(Recommendation(PipeStyle()), "<="));
  EXPECT_FALSE(absl::StrContains(Recommendation(PipeStyle()), ">="));

  const std::string explained = RenderRecommendation(
      SampleQuestion(), answer, Options(PipeStyle(), true));
  EXPECT_TRUE(absl::StrContains(explained, " vllm, <= 5.18 ms a step, "));
  EXPECT_TRUE(absl::StrContains(explained, "experts            <= 2.51 ms"))
      << explained;
}

TEST(RenderSweep, AnUpperBoundIsMarkedAsInARecommendation) {
  v1::SweepConcurrencyResponse answer = SampleSweep();
  v1::PlanAdvice& plan = *answer.mutable_points(0)->mutable_plans(0);
  plan.mutable_interval()->clear_tpot_low_seconds();
  plan.mutable_interval()->set_tpot_high_seconds(plan.tpot_seconds());
  const std::string text =
      RenderSweep(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, ">= "));
  EXPECT_TRUE(absl::StrContains(text, "times are at most, tok/s at least"));
}

TEST(RenderRecommendation, CommunicationAloneHasATimeAndNoRate) {
  v1::RecommendParallelismRequest question = SampleQuestion();
  question.set_cost_scope(v1::COST_SCOPE_COMMUNICATION);
  v1::RecommendParallelismResponse answer = SampleAnswer();
  for (v1::PlanAdvice& plan : *answer.mutable_plans()) {
    plan.clear_ttft_seconds();
  }
  const std::string text =
      RenderRecommendation(question, answer, Options(PipeStyle()));
  EXPECT_FALSE(absl::StrContains(text, "tok/s")) << text;
  EXPECT_FALSE(absl::StrContains(text, "tokens/s"));
  EXPECT_FALSE(absl::StrContains(text, "12,345"));
  EXPECT_TRUE(absl::StrContains(text, "communication only, least of it"));
  EXPECT_TRUE(absl::StrContains(text, "comm/step ms"));
  // 5.92 ms against 5.18 ms.
  EXPECT_TRUE(absl::StrContains(text, "+14 %"));
  const std::string sweep =
      RenderSweep(question, SampleSweep(), Options(PipeStyle()));
  EXPECT_FALSE(absl::StrContains(sweep, "tok/s")) << sweep;
  EXPECT_TRUE(absl::StrContains(sweep, "comm/step"));
}

TEST(RenderRecommendation, AsManyPlansAreShownAsWereAskedFor) {
  v1::RecommendParallelismRequest question = SampleQuestion();
  v1::RecommendParallelismResponse answer = SampleAnswer();
  while (answer.plans_size() < 12) *answer.add_plans() = answer.plans(1);
  question.set_max_plans(12);
  const std::string text =
      RenderRecommendation(question, answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, "\n 12  TP2"));
  EXPECT_FALSE(absl::StrContains(text, " more (--explain"));
}

TEST(RenderRecommendation, OfOnePlanAskedForTellsItsEngineAndTheContest) {
  v1::RecommendParallelismRequest question = SampleQuestion();
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_plans()->DeleteSubrange(1, answer.plans_size() - 1);
  answer.mutable_confidence()->set_probability_first_is_best(0.16);
  EXPECT_TRUE(absl::StrContains(
      RenderRecommendation(question, answer, Options(PipeStyle())),
      "only one plan can be answered"));
  question.set_max_plans(1);
  const std::string text =
      RenderRecommendation(question, answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(
      text, "a toss-up: 2xTP1 is best with 16 % probability (model error"))
      << text;
  EXPECT_TRUE(absl::StrContains(text, "2xTP1  vllm")) << text;
}

TEST(RenderRecommendation, SaysWhatIsHeldInAFlip) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  const std::string held =
      "; going up, TP2 is still held at 64, as equals (within 1 %) do not take "
      "turns";
  const auto text = [&] {
    std::string all =
        RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
    return absl::StrJoin(
        absl::StrSplit(all, absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  };
  EXPECT_FALSE(absl::StrContains(text(), "is still held"));
  answer.clear_flip_points();
  v1::FlipPoint& flip = *answer.add_flip_points();
  flip.set_from_mode("TP2");
  flip.set_to_mode("2xTP1");
  flip.set_concurrency(64);
  EXPECT_FALSE(absl::StrContains(text(), "is still held"));
  flip.set_concurrency(65);
  EXPECT_TRUE(absl::StrContains(text(), held)) << text();
}

TEST(RenderRecommendation, SaysFromWhereOnNoPlanFits) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  v1::FlipPoint& flip = *answer.add_flip_points();
  flip.set_concurrency(700);
  flip.set_from_mode("DP2+EP2");
  std::string text =
      RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, "DP2+EP2 from 300, none from 700"))
      << text;
}

TEST(RenderRecommendation, NamesTheEnginesOfFlipsWhereTheyDiffer) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  for (v1::FlipPoint& flip : *answer.mutable_flip_points()) {
    flip.set_from_engine(v1::ENGINE_VLLM);
    flip.set_to_engine(v1::ENGINE_VLLM);
  }
  const auto text = [&] {
    return RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  };
  EXPECT_TRUE(absl::StrContains(
      text(), "TP2 up to 8 sequences, 2xTP1 from 9, DP2+EP2 from 300\n"))
      << text();
  answer.mutable_flip_points(1)->set_to_engine(v1::ENGINE_SGLANG);
  EXPECT_TRUE(absl::StrContains(text(),
                                "TP2 on vllm up to 8 sequences, 2xTP1 "
                                "on vllm from 9, DP2+EP2 on sglang"))
      << text();
}

TEST(RenderRecommendation, SaysWhichGpusAreAskedAbout) {
  v1::RecommendParallelismRequest question = SampleQuestion();
  question.clear_gpus();
  for (int gpu : {4, 5, 7}) question.mutable_gpus()->add_indices(gpu);
  const auto text = [&] {
    return RenderRecommendation(question, SampleAnswer(),
                                Options(UncolouredStyle(120)));
  };
  EXPECT_TRUE(absl::StrContains(text(), ", GPUs 4,5,7, ")) << text();
  question.mutable_gpus()->set_count(2);
  EXPECT_TRUE(absl::StrContains(text(), ", 2 GPUs, of GPUs 4,5,7, ")) << text();
  // Not to be taken for how many.
  question.clear_gpus();
  question.mutable_gpus()->add_indices(1);
  EXPECT_TRUE(absl::StrContains(text(), ", GPU 1, ")) << text();
}

TEST(RenderRecommendation, TellsTheShareOfAStepThatIsMeasured) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  // Of 4 ms: half measured, a quarter extrapolated, a quarter by a stand-in.
  v1::PlanAdvice& plan = *answer.mutable_plans(0);
  plan.clear_terms();
  for (const v1::Basis basis : {v1::BASIS_MEASURED, v1::BASIS_INTERPOLATED,
                                v1::BASIS_EXTRAPOLATED, v1::BASIS_MEASURED}) {
    v1::Term& term = *plan.add_terms();
    term.set_name("part");
    term.set_seconds(1e-3);
    term.set_basis(basis);
  }
  plan.mutable_terms(3)->set_note("another stands in");
  std::string text =
      RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, "  measured\n")) << text;
  EXPECT_TRUE(absl::StrContains(text, "      50 %\n")) << text;
}

TEST(RenderRecommendation, OnePlanAloneIsNoContest) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_plans()->DeleteSubrange(1, answer.plans_size() - 1);
  answer.clear_flip_points();
  std::string text =
      RenderRecommendation(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, "there is no contest"));
  EXPECT_TRUE(absl::StrContains(text, "none found where it can be answered"));
}

TEST(RenderSweep, PipeAndTerminal) {
  ExpectGolden("sweep_pipe.txt", RenderSweep(SampleQuestion(), SampleSweep(),
                                             Options(PipeStyle())));
  ExpectGolden("sweep_terminal.txt",
               RenderSweep(SampleQuestion(), SampleSweep(),
                           Options(TerminalStyle(110))));
}

TEST(RenderSweep, MarksWhereNoPlanMeetsTheLimits) {
  v1::SweepConcurrencyResponse answer = SampleSweep();
  const std::string legend = "\n *            no plan meets the limits there\n";
  EXPECT_FALSE(absl::StrContains(
      RenderSweep(SampleQuestion(), answer, Options(PipeStyle())), legend));
  v1::PlanAdvice& first = *answer.mutable_points(0)->mutable_plans(0);
  first.add_misses("TPOT is over the limit");
  const std::string text =
      RenderSweep(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, legend)) << text;
  EXPECT_TRUE(absl::StrContains(text, first.plan().mode() + " *")) << text;
}

TEST(RenderSweep, SaysWhyAFirstPlanMayStandBehindTheSecond) {
  v1::SweepConcurrencyResponse answer = SampleSweep();
  v1::RecommendParallelismRequest question = SampleQuestion();
  const std::string tie = "\n by < 0       a tie (within 1 %), where the best ";
  EXPECT_FALSE(absl::StrContains(
      RenderSweep(question, answer, Options(PipeStyle())), "by < 0"));
  v1::SweepPoint& point = *answer.mutable_points(0);
  point.mutable_plans(1)->set_output_tokens_per_second(
      point.plans(0).output_tokens_per_second() * 1.002);
  EXPECT_TRUE(absl::StrContains(
      RenderSweep(question, answer, Options(PipeStyle())), tie));
  question.set_current_plan("TP2");
  EXPECT_TRUE(
      absl::StrContains(RenderSweep(question, answer, Options(PipeStyle())),
                        "\n by < 0       kept because it runs now\n"));
}

TEST(RenderSweep, NamesTheEnginesWherePlansOfSeveralAreShown) {
  v1::SweepConcurrencyResponse answer = SampleSweep();
  answer.mutable_points(0)->mutable_plans(1)->set_engine(v1::ENGINE_VLLM);
  const std::string text =
      RenderSweep(SampleQuestion(), answer, Options(PipeStyle()));
  EXPECT_TRUE(absl::StrContains(text, "1  TP2          reference  "));
  EXPECT_TRUE(absl::StrContains(text, "PP2 on vllm"));
}

TEST(RenderSweep, NarrowTerminal) {
  std::string text = RenderSweep(SampleQuestion(), SampleSweep(),
                                 Options(UncolouredStyle(50)));
  EXPECT_LE(WidestLine(text), 50);
  ExpectGolden("sweep_narrow.txt", text);
}

TEST(RenderSweep, SixtyFourConcurrenciesFitAndOneIsNoStrip) {
  v1::SweepConcurrencyResponse answer = SampleSweep();
  v1::SweepPoint point = answer.points(0);
  answer.clear_points();
  for (int i = 1; i <= 64; ++i) {
    point.set_concurrency(i * 1000);
    *answer.add_points() = point;
  }
  answer.clear_flip_points();
  std::string text =
      RenderSweep(SampleQuestion(), answer, Options(UncolouredStyle(80)));
  EXPECT_LE(WidestLine(text), 80);
  EXPECT_TRUE(absl::StrContains(text, "64,000  TP2"));
  EXPECT_TRUE(absl::StrContains(text, "none within the range asked"));

  answer.mutable_points()->DeleteSubrange(1, 63);
  std::string one =
      RenderSweep(SampleQuestion(), answer, Options(UncolouredStyle(80)));
  EXPECT_FALSE(absl::StrContains(one, "█"));
}

TEST(RenderLaunches, OneCommandPerReplica) {
  EXPECT_EQ(
      RenderLaunches(SampleAnswer().plans(), "Qwen3-30B-A3B, 64 sequences"),
      "# Qwen3-30B-A3B, 64 sequences\n"
      "# 2xTP1 on vllm, flags as of vLLM 0.11\n"
      "# replica 1 of 2\n"
      "NCCL_NVLS_ENABLE=0 CUDA_VISIBLE_DEVICES=0 vllm serve "
      "Qwen/Qwen3-30B-A3B --port 8000\n"
      "# replica 2 of 2\n"
      "NCCL_NVLS_ENABLE=0 CUDA_VISIBLE_DEVICES=1 vllm serve "
      "Qwen/Qwen3-30B-A3B --port 8001\n");
}

TEST(RenderLaunches, AModelThatIsNotNamedIsSaidToBeAPlaceholder) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_plans(0)->mutable_launch()->set_commands(
      0, "vllm serve MODEL --port 8000");
  EXPECT_TRUE(absl::StrContains(
      RenderLaunches(answer.plans(), "x"),
      "\n# MODEL stands for the model's folder or its name on Hugging Face\n"));
}

// A profile's environment comes from files that nobody checked.
TEST(RenderLaunches, ValuesOfVariablesAreQuotedForTheShell) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_plans(0)->mutable_launch()->set_environment(
      0, "NCCL_SOCKET_IFNAME=^lo; reboot");
  EXPECT_TRUE(absl::StrContains(
      RenderLaunches(answer.plans(), "x"),
      "\nNCCL_SOCKET_IFNAME='^lo; reboot' CUDA_VISIBLE_DEVICES=0 vllm "));
}

TEST(RenderLaunches, KeepsTheLinesOfAHereDocumentAndTellsDoubts) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  v1::PlanAdvice* first = answer.mutable_plans(0);
  first->set_caveat("low confidence: verify\x1b");
  first->mutable_launch()->clear_commands();
  first->mutable_launch()->add_commands(
      "serve --config /dev/stdin <<'YAML'\na: 1\x1b\nYAML");
  EXPECT_EQ(RenderLaunches(answer.plans(), "x"),
            "# x\n"
            "# 2xTP1 on vllm, flags as of vLLM 0.11\n"
            "# low confidence: verify?\n"
            "NCCL_NVLS_ENABLE=0 serve --config /dev/stdin <<'YAML'\n"
            "a: 1?\n"
            "YAML\n");
}

TEST(RenderLaunches, LimitsThatAreMissedAreSaid) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_plans(0)->add_misses(
      "TTFT 19.9 ms is over the limit of 1.0 ms");
  EXPECT_TRUE(absl::StrContains(
      RenderLaunches(answer.plans(), "load"),
      "\n# misses a limit: TTFT 19.9 ms is over the limit of 1.0 ms\n"));
}

TEST(RenderLaunches, ReferenceHasNothingToLaunch) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_plans()->DeleteSubrange(0, 1);
  EXPECT_EQ(RenderLaunches(answer.plans(), "x"),
            "# x\n# TP2 on reference: nothing to launch, this engine has no "
            "server\n");
}

TEST(RenderLaunches, AFirstPlanWithoutServerGivesWayAndThatIsSaid) {
  v1::RecommendParallelismResponse answer = SampleAnswer();
  answer.mutable_plans()->SwapElements(0, 1);
  EXPECT_TRUE(absl::StrContains(
      RenderLaunches(answer.plans(), "x"),
      "# 2xTP1 on vllm, flags as of vLLM 0.11; place 2, the first with a "
      "server to launch\n"));
}

TEST(RenderCurve, CliffIsMarkedAndToldInBytesPerPeerAndTokens) {
  ModelShape model;
  model.name = "Kimi-K2.5";
  model.hidden_size = 7168;
  ExpectGolden("cliff_pipe.txt",
               RenderCurve(PipeStyle(), SampleCliff(), &model));
  ExpectGolden("cliff_terminal.txt",
               RenderCurve(TerminalStyle(100), SampleCliff(), &model));
}

TEST(RenderCurve, SmoothCurveSaysThatItHasNoCliff) {
  std::string text =
      RenderCurve(UncolouredStyle(80), SampleSmoothCurve(), nullptr);
  EXPECT_LE(WidestLine(text), 80);
  ExpectGolden("curve_terminal.txt", text);
}

TEST(RenderCurveList, PipeAndTerminal) {
  v1::NodeProfile profile = SampleProfile();
  std::vector<const v1::Curve*> curves = {&profile.curves(0),
                                          &profile.curves(1)};
  ExpectGolden("curves_pipe.txt", RenderCurveList(PipeStyle(), curves));
  ExpectGolden("curves_terminal.txt",
               RenderCurveList(UncolouredStyle(120), curves));
}

TEST(CurvesCsv, ReadsBackExactly) {
  v1::Curve curve = SampleCliff();
  EXPECT_EQ(CurvesCsv({&curve}),
            "key,size,seconds,relative_sigma,basis\n"
            "\"all_to_all/n8/nccl/graph\",114688,2.1999999999999999e-05,"
            "0.029999999999999999,measured\n"
            "\"all_to_all/n8/nccl/graph\",1835008,0.0010070000000000001,"
            "0.029999999999999999,measured\n");
}

TEST(RenderProfile, TellsNodeGroundsAndTables) {
  ExpectGolden("profile_pipe.txt",
               RenderProfile(PipeStyle(), SampleProfile(), SampleNow()));
}

std::string WordsOf(const std::vector<Check>& checks, const std::string& name,
                    Finding finding) {
  for (const Check& check : checks) {
    if (check.name == name && check.finding == finding) return check.words;
  }
  return "no such check";
}

TEST(CheckProfile, NamesWhatIsMissingAndWhatFollowsFromIt) {
  v1::NodeProfile profile = SampleProfile();
  std::vector<Check> checks = CheckProfile(profile, SampleNow());
  EXPECT_EQ(WordsOf(checks, "age", Finding::kGood),
            "h200x2-p2p, measured 3 h ago");
  EXPECT_EQ(WordsOf(checks, "node", Finding::kGood), "2x NVIDIA H200");
  EXPECT_EQ(WordsOf(checks, "collectives", Finding::kBad),
            "not measured in CUDA graphs: all_gather/n2, reduce_scatter/n2, "
            "all_to_all/n2, send_recv/n2; plans that need them are not "
            "answerable");
  EXPECT_EQ(WordsOf(checks, "gemm", Finding::kGood), "gemm bf16 (1,234)");
  EXPECT_EQ(WordsOf(checks, "experts", Finding::kBad),
            "not measured: no model with experts can be answered");
  EXPECT_EQ(WordsOf(checks, "cliffs", Finding::kWorthKnowing),
            "on all_to_all/n8/nccl/graph; `fabricwise curves KEY` draws one");
  ExpectGolden("doctor_pipe.txt", RenderChecks(PipeStyle(), checks));
  ExpectGolden("doctor_terminal.txt", RenderChecks(TerminalStyle(80), checks));
}

TEST(CheckProfile, SaysWhenItIsOldOrItsNodeIsNotKnown) {
  v1::NodeProfile profile = SampleProfile();
  profile.mutable_fingerprint()->mutable_gpus(0)->set_memory_bytes(0);
  EXPECT_EQ(WordsOf(CheckProfile(profile, SampleNow() + absl::Hours(72)), "age",
                    Finding::kWorthKnowing),
            "h200x2-p2p, measured 3 days ago: measure again");
  EXPECT_EQ(WordsOf(CheckProfile(profile, SampleNow()), "node",
                    Finding::kWorthKnowing),
            "2x NVIDIA H200, memory not known: no plan is ruled out for want "
            "of it");
  profile.clear_as_of_time();
  EXPECT_EQ(WordsOf(CheckProfile(profile, SampleNow()), "age",
                    Finding::kWorthKnowing),
            "h200x2-p2p, measured at a time not known: whether it still holds "
            "cannot be told");
}

TEST(CheckDaemon, SaysWhyThereIsNoAdviceAndThatNothingIsMeasured) {
  v1::GetStatusResponse status;
  status.set_version("0.1.0");
  status.set_reason("no profile is loaded");
  std::vector<Check> checks = CheckDaemon(status, SampleNow());
  EXPECT_EQ(WordsOf(checks, "advice", Finding::kBad),
            "cannot be given: no profile is loaded");
  EXPECT_NE(WordsOf(checks, "worker", Finding::kWorthKnowing), "no such check");
  status.set_serving(true);
  status.set_worker_installed(true);
  status.set_scheduler_state("idle");
  EXPECT_EQ(WordsOf(CheckDaemon(status, SampleNow()), "worker", Finding::kGood),
            "installed, idle");
}

TEST(RenderStatus, TellsWhyAdviceCannotBeGiven) {
  v1::GetStatusResponse status;
  status.set_version("0.1.0");
  status.mutable_start_time()->set_seconds(
      absl::ToUnixSeconds(SampleNow() - absl::Minutes(5)));
  status.set_reason("no profile is loaded");
  status.set_scheduler_state("no worker");
  EXPECT_EQ(RenderStatus(PipeStyle(), "127.0.0.1:7410", status, SampleNow()),
            " daemon       fabricwised 0.1.0 at 127.0.0.1:7410, started 5 min "
            "ago\n"
            " advice       cannot be given: no profile is loaded\n"
            " measuring    no worker (no worker is installed)\n"
            " store        0 measurements, 0 profiles taken into use\n");
}

TEST(RenderProgress, FitsTheTerminalHoweverLongTheKey) {
  v1::RunMeasurementResponse progress;
  progress.set_done_count(61);
  progress.set_total_count(122);
  progress.set_key("all_to_all/n8/nccl/graph/x2/a0.8/268435456B");
  for (const int width : {8, 20, 40, 80, 200}) {
    const std::string line = RenderProgress({false, true, width}, progress);
    EXPECT_LE(DisplayWidth(line), width - 1) << line;
  }
  const std::string plain = RenderProgress({false, false, 120}, progress);
  EXPECT_EQ(plain,
            " [############------------]   50 %  61 of 122  "
            "all_to_all/n8/nccl/graph/x2/a0.8/268435456B");
}

TEST(RenderProgress, TakesAnyCounts) {
  v1::RunMeasurementResponse progress;
  progress.set_done_count(-5);
  EXPECT_TRUE(
      absl::StrContains(RenderProgress({false, false, 80}, progress), "  0 %"));
  progress.set_done_count(7);
  progress.set_total_count(3);
  EXPECT_TRUE(
      absl::StrContains(RenderProgress({false, false, 80}, progress), "100 %"));
}

}  // namespace
}  // namespace fabricwise
