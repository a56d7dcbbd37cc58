// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/lookout.h"

#include <string>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/daemon/features.h"
#include "tests/support/history.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Collectives that take `factor` as long as the sample's.
ProfileData Slowed(double factor) {
  ProfileData data = SampleProfileData("node");
  for (Measurement& m : data.measurements) {
    if (std::holds_alternative<CollectiveKey>(m.key)) {
      m.statistics.median_seconds *= factor;
    }
  }
  return data;
}

class LookoutTest : public testing::Test {
 protected:
  Lookout::Options Options() {
    Lookout::Options options;
    options.scenarios = {
        ParseScenario("chat: model=Qwen3-8B concurrency=1 objective=latency "
                      "engine=reference")
            .value(),
        ParseScenario("huge: model=Llama-3.1-405B concurrency=1").value()};
    options.history = [this](const std::string& fingerprint_id)
        -> absl::StatusOr<std::vector<KeyHistory>> {
      EXPECT_FALSE(fingerprint_id.empty());
      if (!history_.ok()) return history_.status();
      return HistoryOf(*history_);
    };
    options.on_drift = [this] { ++drifts_; };
    options.on_look = [this](const Profile& profile, const Outlook& outlook) {
      features_ = NodeFeatures(profile, outlook);
      return true;
    };
    return options;
  }

  // A run of the node four hours after the one before, taken into use.
  void Run(double factor) {
    ProfileData data = Slowed(factor);
    now_ += absl::Hours(4);
    for (Measurement& m : data.measurements) {
      m.start_time = now_;
      history_->push_back(m);
    }
    Use(std::move(data));
  }
  void Use(ProfileData data) {
    snapshots_.Set(Profile::Build(std::move(data)).value());
  }

  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  absl::StatusOr<std::vector<Measurement>> history_ =
      std::vector<Measurement>();
  int drifts_ = 0;
  std::string features_;
  SnapshotHolder snapshots_;
};

TEST_F(LookoutTest, EachLookIsTold) {
  Lookout lookout(Options(), &snapshots_);
  Run(1);
  lookout.Look();
  EXPECT_THAT(features_, HasSubstr("fabricwise.engine.chat=reference\n"));
  // Not answerable: no line.
  EXPECT_THAT(features_, Not(HasSubstr("huge")));
}

TEST_F(LookoutTest, WithoutAProfileThereIsNoOutlook) {
  Lookout lookout(Options(), &snapshots_);
  lookout.Look();
  EXPECT_EQ(lookout.Get(), nullptr);
}

TEST_F(LookoutTest, AnswersTheScenariosAndSaysWhichItCannot) {
  Lookout lookout(Options(), &snapshots_);
  Run(1);
  lookout.Look();
  ASSERT_THAT(lookout.Get()->scenarios, SizeIs(2));
  const ScenarioAdvice chat = lookout.Get()->scenarios[0];
  EXPECT_EQ(chat.name, "chat");
  EXPECT_EQ(chat.phase, "steady");
  EXPECT_EQ(chat.engine, "reference");
  EXPECT_TRUE(chat.answered);
  EXPECT_EQ(chat.mode, "TP2");
  EXPECT_EQ(chat.hidden_size, 4096);
  EXPECT_GT(chat.tpot_seconds, 0);
  EXPECT_GT(chat.output_tokens_per_second, 0);
  EXPECT_GT(chat.margin_ratio, 0);
  EXPECT_EQ(chat.flips, 0);
  const ScenarioAdvice huge = lookout.Get()->scenarios[1];
  EXPECT_FALSE(huge.answered) << "405 billion parameters on two GPUs";
  EXPECT_EQ(huge.mode, "");
}

TEST_F(LookoutTest, TellsWhetherAScenariosLimitsAreMet) {
  Lookout lookout(Options(), &snapshots_);
  lookout.SetScenarios(
      {ParseScenario("a: model=Qwen3-8B concurrency=1 tpot-ms=1e6").value(),
       ParseScenario("b: model=Qwen3-8B concurrency=1 tpot-ms=1e-6").value()});
  Run(1);
  lookout.Look();
  ASSERT_THAT(lookout.Get()->scenarios, SizeIs(2));
  EXPECT_TRUE(lookout.Get()->scenarios[0].within_limits);
  EXPECT_FALSE(lookout.Get()->scenarios[1].within_limits);
  EXPECT_TRUE(lookout.Get()->scenarios[1].answered);
}

TEST_F(LookoutTest, CountsFlipsOfTheAdvice) {
  Lookout lookout(Options(), &snapshots_);
  for (const double factor : {1.0, 100.0, 100.0, 1.0}) {
    Run(factor);
    lookout.Look();
    EXPECT_EQ(lookout.Get()->scenarios[0].mode, factor == 1.0 ? "TP2" : "TP1");
  }
  EXPECT_EQ(lookout.Get()->scenarios[0].flips, 2);
}

TEST_F(LookoutTest, AnotherEngineInTheSameModeIsNoFlip) {
  Lookout lookout(Options(), &snapshots_);
  Run(1);
  lookout.Look();
  const ScenarioAdvice before = lookout.Get()->scenarios[0];
  lookout.SetScenarios({ParseScenario("chat: model=Qwen3-8B concurrency=1 "
                                      "objective=latency engine=vllm")
                            .value()});
  lookout.Look();
  const ScenarioAdvice after = lookout.Get()->scenarios[0];
  EXPECT_NE(after.engine, before.engine);
  EXPECT_EQ(after.mode, before.mode);
  EXPECT_EQ(after.flips, 0);
}

TEST_F(LookoutTest, TakesOverOtherScenariosAndKeepsTheCountOfThoseThatStay) {
  Lookout lookout(Options(), &snapshots_);
  for (const double factor : {1.0, 100.0}) {
    Run(factor);
    lookout.Look();
  }
  auto scenarios = Options().scenarios;
  scenarios[1] = ParseScenario("new: model=Qwen3-8B concurrency=4").value();
  std::swap(scenarios[0], scenarios[1]);
  lookout.SetScenarios(scenarios);
  lookout.Look();
  ASSERT_THAT(lookout.Get()->scenarios, SizeIs(2));
  EXPECT_EQ(lookout.Get()->scenarios[0].name, "new");
  EXPECT_TRUE(lookout.Get()->scenarios[0].answered);
  EXPECT_EQ(lookout.Get()->scenarios[1].flips, 1);
}

TEST_F(LookoutTest, TellsOfADriftOnceUntilAnotherOne) {
  Lookout lookout(Options(), &snapshots_);
  for (int run = 0; run < 5; ++run) {
    Run(1);
    lookout.Look();
  }
  EXPECT_FALSE(lookout.Get()->drifts.empty());
  EXPECT_EQ(drifts_, 0);
  for (const auto& [factor, calls] : {std::pair(1.2, 1), std::pair(1.2, 1),
                                      std::pair(1.0, 1), std::pair(1.2, 2)}) {
    Run(factor);
    lookout.Look();
    EXPECT_EQ(drifts_, calls);
  }
  // Who starts anew knows it from the history.
  Lookout restarted(Options(), &snapshots_);
  restarted.Look();
  EXPECT_EQ(drifts_, 3);
}

TEST_F(LookoutTest, GoesOnWithoutAHistoryThatCannotBeRead) {
  history_ = absl::UnavailableError("disk");
  Lookout lookout(Options(), &snapshots_);
  Use(Slowed(1));
  lookout.Look();
  EXPECT_THAT(lookout.Get()->drifts, IsEmpty());
  EXPECT_TRUE(lookout.Get()->scenarios[0].answered);
}

TEST_F(LookoutTest, ComparesWithTheReference) {
  Lookout::Options options = Options();
  options.reference = SampleProfile("reference");
  Lookout lookout(std::move(options), &snapshots_);
  Run(2);
  lookout.Look();
  const auto& ratios = lookout.Get()->reference_ratios;
  ASSERT_FALSE(ratios.empty());
  for (const ReferenceRatio& each : ratios) EXPECT_NEAR(each.ratio, 2, 1e-9);
}

TEST_F(LookoutTest, LooksByItselfWheneverTheProfileChanges) {
  absl::Notification first, second;
  Lookout::Options options = Options();
  int looks = 0;
  options.history = [&](const std::string&) {
    (++looks == 1 ? first : second).Notify();
    return std::vector<KeyHistory>();
  };
  Use(Slowed(1));
  Lookout lookout(std::move(options), &snapshots_);
  lookout.Start();
  first.WaitForNotification();
  Use(Slowed(2));
  second.WaitForNotification();
  lookout.Stop();
  EXPECT_NE(lookout.Get(), nullptr);
  Use(Slowed(3));
  EXPECT_EQ(looks, 2);
}

TEST_F(LookoutTest, LooksAgainWhenWhatItSawCouldNotBeToldOnly) {
  absl::Notification told, after;
  Lookout::Options options = Options();
  options.retry = absl::Milliseconds(1);
  int looks = 0;
  options.on_look = [&](const Profile&, const Outlook&) {
    ++looks;
    if (looks == 3) told.Notify();
    if (looks == 4) after.Notify();
    return looks >= 3;
  };
  Use(Slowed(1));
  Lookout lookout(std::move(options), &snapshots_);
  lookout.Start();
  told.WaitForNotification();
  Use(Slowed(2));
  after.WaitForNotification();
  lookout.Stop();
  EXPECT_EQ(looks, 4);
}

}  // namespace
}  // namespace fabricwise
