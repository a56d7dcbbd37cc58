// SPDX-License-Identifier: Apache-2.0
#include "server/model/steady_state.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/random_model.h"

namespace fabricwise {
namespace {

// A step costs this much, and so much for each token.
constexpr double kStepSeconds = 10e-3, kTokenSeconds = 20e-6;

StepPrice PriceOf(const StepLoad& load) {
  const double seconds = kStepSeconds + kTokenSeconds * load.rank_tokens;
  return {.seconds = seconds,
          .sigma_seconds = seconds / 10,
          .slowest_stage_seconds = seconds,
          .through_seconds = seconds};
}

struct Case {
  int64_t concurrency, input, output, budget;
  bool mixed = true;
};

std::string Text(const Case& c) {
  return std::to_string(c.concurrency) + " x " + std::to_string(c.input) +
         " + " + std::to_string(c.output) + " in " + std::to_string(c.budget) +
         (c.mixed ? "" : ", apart");
}

SteadyState StateOf(const Case& c, const Plan& plan = {}) {
  return ComputeSteadyState(
      {.concurrency = c.concurrency,
       .input_tokens = c.input,
       .output_tokens = c.output},
      plan, {.plan = plan, .chunk_tokens = c.budget, .mixed_steps = c.mixed});
}

SteadyPrice Predict(const Case& c, const Plan& plan = {}) {
  const SteadyState state = StateOf(c, plan);
  return PriceSteadyState(state, PriceOf(state.decode),
                          PriceOf(state.admission));
}

struct Observed {
  double ttft = 0, tpot = 0, tokens_per_second = 0;
};

// A scheduler step by step: decoding sequences first, then prompts in their
// order as far as the budget goes. Outputs of 1 to twice the mean, so that
// sequences get out of step.
Observed Simulate(const Case& c) {
  struct Sequence {
    double arrived = 0, first_token = 0;
    int64_t prompt_left = 0, output_left = 0;
  };
  std::mt19937 random(5);
  const auto fresh = [&](double now) {
    return Sequence{.arrived = now,
                    .prompt_left = c.input,
                    .output_left = RandomBetween(random, 1, 2 * c.output - 1)};
  };
  std::deque<Sequence> prompts;
  std::vector<Sequence> decoding;
  for (int64_t i = 0; i < c.concurrency; ++i) prompts.push_back(fresh(0));

  double now = 0, ttft = 0, decode_seconds = 0, counted_from = 0;
  int64_t first_tokens = 0, tokens = 0, steps = 0, decoded = 0;
  // The first rounds, in which all began together, do not count.
  const int64_t skipped = 4 * c.concurrency, counted = 30 * c.concurrency;
  int64_t finished = 0;
  while (finished < skipped + counted) {
    ++steps;
    const bool decode = c.mixed || prompts.empty();
    int64_t left = c.budget;
    if (decode) left -= static_cast<int64_t>(decoding.size());
    const int64_t before = left;
    size_t done = 0;
    for (Sequence& sequence : prompts) {
      const int64_t part = std::min(left, sequence.prompt_left);
      sequence.prompt_left -= part;
      left -= part;
      if (sequence.prompt_left > 0) break;
      ++done;
    }
    const int64_t in_step = before - left + (decode ? c.budget - before : 0);
    now += kStepSeconds + kTokenSeconds * static_cast<double>(in_step);
    const bool counts = finished >= skipped;
    if (!counts) counted_from = now;
    std::vector<Sequence> ended;
    const auto emit = [&](Sequence& sequence, std::vector<Sequence>& on) {
      if (counts) ++tokens;
      if (--sequence.output_left > 0) {
        on.push_back(sequence);
        return;
      }
      ++finished;
      if (counts) decode_seconds += now - sequence.first_token;
      ended.push_back(fresh(now));
    };
    std::vector<Sequence> still;
    for (Sequence& sequence : decoding) {
      if (decode) {
        if (counts) ++decoded;
        emit(sequence, still);
      } else {
        still.push_back(sequence);
      }
    }
    for (size_t i = 0; i < done; ++i) {
      Sequence sequence = prompts.front();
      prompts.pop_front();
      sequence.first_token = now;
      if (counts) {
        ttft += now - sequence.arrived;
        ++first_tokens;
      }
      emit(sequence, still);
    }
    decoding = std::move(still);
    prompts.insert(prompts.end(), ended.begin(), ended.end());
  }
  return {ttft / static_cast<double>(first_tokens),
          decoded > 0 ? decode_seconds / static_cast<double>(decoded) : 0,
          static_cast<double>(tokens) / (now - counted_from)};
}

TEST(SteadyState, PredictsASchedulerThatIsRunStepByStep) {
  const Case cases[] = {
      {1, 1000, 100, 8192},         {8, 1000, 100, 8192},
      {64, 1000, 100, 8192},        {256, 1000, 100, 8192},
      {512, 1000, 100, 8192},       {8, 16'000, 50, 2048},
      {2, 16'000, 50, 2048},        {64, 4000, 20, 2048},
      {64, 100, 200, 2048},         {300, 100, 200, 256},
      {1, 1000, 100, 8192, false},  {8, 1000, 100, 8192, false},
      {64, 1000, 100, 8192, false}, {256, 1000, 100, 8192, false},
      {8, 16'000, 50, 2048, false}, {64, 4000, 20, 2048, false},
      {64, 100, 200, 2048, false}};
  for (const Case& c : cases) {
    const Observed seen = Simulate(c);
    const SteadyPrice price = Predict(c);
    const double rate =
        static_cast<double>(c.concurrency * c.output) / price.sequence_seconds;
    EXPECT_NEAR(rate / seen.tokens_per_second, 1, 0.06) << Text(c);
    EXPECT_NEAR(price.token.seconds / seen.tpot, 1, 0.06) << Text(c);
    EXPECT_NEAR(price.ttft_seconds / seen.ttft, 1, 0.06) << Text(c);
  }
}

TEST(SteadyState, OfOneSequenceIsItsPromptAloneThenDecodeStepsAlone) {
  for (bool mixed : {true, false}) {
    const Case c{1, 20'000, 50, 8000, mixed};
    const SteadyState state = StateOf(c);
    EXPECT_EQ(state.decode.rank_sequences, 1);
    EXPECT_EQ(state.decode.prompt_tokens, 0);
    EXPECT_EQ(state.admission.rank_sequences, 0);
    EXPECT_EQ(state.admissions_per_token, 0);
    const SteadyPrice price = Predict(c);
    EXPECT_EQ(price.token.seconds, kStepSeconds + kTokenSeconds);
    EXPECT_EQ(price.prompts_seconds, 0);
    // Two and a half chunks; one token of the budget is kept for decoding.
    EXPECT_NEAR(price.ttft_seconds, 2.5 * (kStepSeconds + 8000 * kTokenSeconds),
                mixed ? 5e-5 : 1e-12);
  }
}

TEST(SteadyState, KeepsTheBudgetOfTokens) {
  for (int64_t concurrency : {1, 50, 1000, 30'000, 1'000'000}) {
    for (int64_t output : {1, 2, 100, 10'000}) {
      const SteadyState state = StateOf({concurrency, 3000, output, 2048});
      EXPECT_GE(state.decode.rank_sequences, 1);
      EXPECT_LE(state.decode.rank_sequences, concurrency);
      EXPECT_LE(state.admission.rank_tokens, 2048 + 1)
          << concurrency << " x " << output;
      EXPECT_GE(state.admission.prompt_tokens, 1);
    }
  }
}

TEST(SteadyState, OfOneTokenIsPromptsOnly) {
  const SteadyPrice price = Predict({100, 2000, 1, 8000});
  // Each step ends four prompts: the last of a hundred waits for 25.
  EXPECT_NEAR(price.sequence_seconds, price.ttft_seconds, 1e-12);
  EXPECT_NEAR(price.ttft_seconds, 25 * (kStepSeconds + 8000 * kTokenSeconds),
              0.01);
}

TEST(SteadyState, HoldsMoreTokensAndLongerWaitsTheMoreSequencesThereAre) {
  for (bool mixed : {true, false}) {
    for (int64_t input : {1, 300, 20'000, 1'000'000}) {
      for (int64_t output : {1, 10, 3000}) {
        double rate = 0, ttft = 0;
        for (int64_t n = 1; n <= 1'000'000; n *= 2) {
          const Case c{n, input, output, 2048, mixed};
          const SteadyPrice price = Predict(c);
          const double now =
              static_cast<double>(n * output) / price.sequence_seconds;
          ASSERT_TRUE(std::isfinite(price.ttft_seconds)) << Text(c);
          EXPECT_GE(now, 0.98 * rate) << Text(c);
          EXPECT_GE(price.ttft_seconds, 0.999 * ttft) << Text(c);
          rate = now;
          ttft = price.ttft_seconds;
        }
      }
    }
  }
}

TEST(SteadyState, MakesAllRanksWaitForThePromptsOfEach) {
  // A sequence to a rank: none waits for prompts of its own rank, all for
  // those of the other seven.
  const Case c{8, 1000, 101, 8000};
  const Plan plan{.attention_dp = 8};
  const SteadyState state = StateOf(c, plan);
  EXPECT_EQ(state.decode.stage_tokens, 8);
  EXPECT_EQ(state.admission.rank_tokens, 1000);
  // One step in about a hundred has a prompt of another.
  EXPECT_NEAR(state.admissions_per_token, 7. / 102, 0.003);
  const double together = 1000 + 7 * (1 + 1000. / 101);
  EXPECT_GE(state.admission.stage_tokens, together - 1);
  EXPECT_LE(state.admission.stage_tokens, together * (1 + 1. / 64));
  EXPECT_GT(Predict(c, plan).token.seconds,
            Predict({1, 1000, 101, 8000}).token.seconds);
}

TEST(SteadyState, OfAPipelineTakesAStepOfEachMicroBatch) {
  // Eight micro-batches of two: each meets a prompt as rarely as two sequences
  // would alone in as many steps.
  const Plan plan{.pipeline = 8};
  const SteadyState state = StateOf({16, 1000, 101, 8000}, plan);
  EXPECT_EQ(state.decode.micro_batches, 8);
  EXPECT_EQ(state.decode.rank_sequences, 2);
  EXPECT_NEAR(state.admissions_per_token, 15. / 800, 0.002);
}

TEST(SteadyState, IsNotAnswerableWithoutEitherStep) {
  const SteadyState state = StateOf({8, 1000, 100, 8000});
  const StepPrice known = PriceOf(state.decode);
  const StepPrice unknown{.answerable = false};
  EXPECT_TRUE(PriceSteadyState(state, known, known).token.answerable);
  EXPECT_FALSE(PriceSteadyState(state, unknown, known).token.answerable);
  EXPECT_FALSE(PriceSteadyState(state, known, unknown).token.answerable);
}

TEST(SteadyState, RestsOnTheWorseOfBothSteps) {
  const SteadyState many = StateOf({8, 1000, 100, 8000});
  StepPrice decode = PriceOf(many.decode);
  StepPrice admission = PriceOf(many.admission);
  admission.standing = Standing::kExtrapolated;
  const SteadyPrice price = PriceSteadyState(many, decode, admission);
  EXPECT_EQ(price.token.standing, Standing::kExtrapolated);
  EXPECT_NEAR(price.token.sigma_seconds, price.token.seconds / 10, 1e-12);
  EXPECT_NEAR(price.token.seconds, decode.seconds + price.prompts_seconds,
              1e-15);
  // A sequence alone decodes without prompts.
  EXPECT_EQ(PriceSteadyState(StateOf({1, 1000, 100, 8000}), decode, admission)
                .token.standing,
            Standing::kMeasured);
}

TEST(PriceSteadyState, AddsUpByParts) {
  const auto in_parts = [](const StepLoad& load) {
    StepPrice price = PriceOf(load);
    price.part_seconds = {kStepSeconds / 2, kTokenSeconds * load.rank_tokens,
                          kStepSeconds / 2};
    return price;
  };
  for (const bool mixed : {true, false}) {
    const SteadyState state = StateOf({.concurrency = 40,
                                       .input = 1000,
                                       .output = 300,
                                       .budget = 2048,
                                       .mixed = mixed});
    const SteadyPrice price = PriceSteadyState(state, in_parts(state.decode),
                                               in_parts(state.admission));
    double token = 0, sequence = 0;
    for (size_t part = 0; part < kStepParts; ++part) {
      token += price.token.part_seconds[part];
      sequence += price.sequence_part_seconds[part];
    }
    EXPECT_NEAR(token / price.token.seconds, 1, 1e-12);
    EXPECT_NEAR(sequence / price.sequence_seconds, 1, 1e-12);
  }
}

}  // namespace
}  // namespace fabricwise
