// SPDX-License-Identifier: Apache-2.0
#include "server/recommend/plan_space.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "server/recommend/advice.h"
#include "tests/support/random_model.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

// What a caller sees of one answer.
struct Seen {
  std::vector<std::string> modes;
  std::vector<double> numbers;
  std::vector<std::string> flips;

  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen SeenIn(const absl::StatusOr<Advice>& advice) {
  Seen seen;
  if (!advice.ok()) {
    seen.modes.push_back(advice.status().ToString());
    return seen;
  }
  for (const PlanAdvice& plan : advice->plans) {
    seen.modes.push_back(plan.mode);
    seen.numbers.insert(seen.numbers.end(),
                        {plan.tpot_seconds, plan.ttft_seconds.value_or(0),
                         plan.tpot_high_seconds, plan.output_tokens_per_second,
                         static_cast<double>(plan.memory.total_bytes())});
    for (const Term& term : plan.terms) {
      seen.numbers.push_back(term.seconds);
      seen.modes.push_back(term.note);
    }
  }
  for (const RuledOut& out : advice->ruled_out) {
    seen.modes.push_back(out.mode + out.reason);
  }
  for (const FlipPoint& flip : advice->flip_points) {
    seen.flips.push_back(flip.from_mode + "-" + flip.to_mode + "@" +
                         std::to_string(flip.concurrency));
  }
  seen.numbers.push_back(advice->confidence.probability_first_is_best);
  return seen;
}

TEST(PlanSpace, AnswersAsANewOneDoesWhateverItWasAskedBefore) {
  std::mt19937 random(11);
  const auto profile = SyntheticProfile();
  for (const char* preset :
       {"Qwen3-30B-A3B", "DeepSeek-V3", "Llama-3.1-8B", "gpt-oss-120b"}) {
    const auto found = FindPreset(preset);
    ASSERT_TRUE(found.ok());
    const ModelShape& model = **found;
    Question question;
    question.engines = {EngineId::kVllm, EngineId::kReference};
    const auto space = PlanSpace::Create(model, ScopeOf(question), *profile);
    ASSERT_TRUE(space.ok()) << space.status();
    for (int i = 0; i < 25; ++i) {
      Workload& workload = question.workload;
      workload.concurrency = int64_t{1} << RandomBetween(random, 0, 10);
      workload.input_tokens = RandomBetween(random, 1, 3000);
      workload.output_tokens = RandomBetween(random, 1, 3000);
      workload.phase = static_cast<Phase>(i % 3);
      workload.context_tokens =
          workload.phase == Phase::kDecode ? RandomBetween(random, 1, 9000) : 0;
      question.objective =
          i % 2 == 0 ? Objective::kThroughput : Objective::kLatency;
      question.current_mode = i % 4 == 0 ? "TP8" : "";
      question.limits.ignore_memory = i % 5 != 0;
      EXPECT_EQ(
          SeenIn(Recommend(**space, question, [] { return absl::OkStatus(); })),
          SeenIn(Recommend(model, question, *profile)))
          << preset << ", question " << i;
    }
  }
}

TEST(PlanSpace, IsMadeForModelsAndGpusThatThereAre) {
  const auto found = FindPreset("Llama-3.1-8B");
  ASSERT_TRUE(found.ok());
  const auto profile = SyntheticProfile();
  EXPECT_EQ(
      PlanSpace::Create(**found, {.gpus = {.count = 9}}, *profile)
          .status()
          .message(),
      "gpus.count is 9; allowed: 1 to 8, the GPUs of profile 'synthetic'");
  ModelShape odd = **found;
  odd.num_layers = 0;
  EXPECT_EQ(PlanSpace::Create(odd, {}, *profile).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fabricwise
