// SPDX-License-Identifier: Apache-2.0
//
// The first plan against layers that were run for real: two models, six modes,
// five batch sizes, on two GPUs over three fabrics. Regret is how much slower a
// step of the chosen mode was than one of the mode that turned out best.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "server/profile/profile_file.h"
#include "server/recommend/advice.h"
#include "tests/support/read_file.h"

namespace fabricwise {
namespace {

constexpr char kLayers[] = "../shared/data/layers_2xh200.csv";
constexpr size_t kCases = 30;

// The names that the measurement gave to modes and models.
const std::map<std::string, std::string> kModes = {{"tp", "TP2"},
                                                   {"tpep", "TP2+EP2"},
                                                   {"dpep_a2a", "DP2+EP2:a2a"},
                                                   {"dpep_agrs", "DP2+EP2"},
                                                   {"dp", "2xTP1"},
                                                   {"pp", "PP2"}};
const std::map<std::string, std::string> kModels = {
    {"qwen3-30b-a3b", "Qwen3-30B-A3B"}, {"llama-3.1-8b", "Llama-3.1-8B"}};

struct Case {
  std::string fabric, model;
  int64_t batch;

  friend auto operator<=>(const Case&, const Case&) = default;
};

using StepTimes = std::map<std::string, double>;  // by mode, us per layer

std::map<Case, StepTimes> ReadLayers(const std::string& text) {
  std::map<Case, StepTimes> cases;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    if (cells.size() != 7 || cells[0] == "fabric") continue;
    int64_t batch = 0;
    double microseconds = 0;
    EXPECT_TRUE(absl::SimpleAtoi(cells[4], &batch));
    EXPECT_TRUE(absl::SimpleAtod(cells[6], &microseconds));
    cases[{cells[0], kModels.at(cells[1]), batch}][kModes.at(cells[2])] =
        microseconds;
  }
  return cases;
}

// `recorder`: "" as imported from other tools' files, "-worker" as our own
// worker measured the same kind of node.
std::shared_ptr<const Profile> LoadProfile(const std::string& fabric,
                                           const std::string& recorder) {
  const std::string path =
      absl::StrCat("deploy/profiles/h200x2-", fabric, recorder, ".json");
  auto data = ReadProfile(path, ReadWholeFile(path));
  EXPECT_TRUE(data.ok()) << data.status();
  auto profile = Profile::Build(*std::move(data));
  EXPECT_TRUE(profile.ok()) << profile.status();
  return *profile;
}

// As `fabricwise recommend --engine reference --phase decode --context-tokens
// 2048 --gpus 2 --ignore-memory`.
Question AsMeasured(int64_t batch) {
  Question question;
  question.workload.concurrency = batch;
  question.workload.phase = Phase::kDecode;
  question.workload.context_tokens = 2048;
  question.engines = {EngineId::kReference};
  question.gpus.count = 2;
  question.limits.ignore_memory = true;
  question.max_plans = kMaxPlans;
  return question;
}

struct Regret {
  double sum = 0, worst = 0;

  void Add(double regret) {
    sum += regret;
    worst = std::max(worst, regret);
  }
};

class RealLayersTest : public testing::TestWithParam<const char*> {};

TEST_P(RealLayersTest, FirstPlanIsHardlyEverSlowerThanTheBestThatWasRun) {
  if (!std::filesystem::exists(kLayers)) {
    GTEST_SKIP() << kLayers << " is not beside this checkout";
  }
  const std::map<Case, StepTimes> cases = ReadLayers(ReadWholeFile(kLayers));
  ASSERT_EQ(cases.size(), kCases);

  std::map<std::string, std::shared_ptr<const Profile>> profiles;
  Regret ours, always_tp, always_replicas;
  std::printf("%-5s%-15s%6s  %-13s%-13s%9s%11s%13s\n", "", "model", "batch",
              "first plan", "best run", "regret", "always TP", "always repl.");
  for (const auto& [which, times] : cases) {
    if (!profiles.contains(which.fabric)) {
      profiles[which.fabric] = LoadProfile(which.fabric, GetParam());
    }
    const auto model = FindPreset(which.model);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto advice =
        Recommend(**model, AsMeasured(which.batch), *profiles[which.fabric]);
    ASSERT_TRUE(advice.ok()) << advice.status();
    // Modes that nobody ran (sliced experts under attention-DP) cannot be
    // judged: the first plan that was run counts, and one passed over is shown.
    const auto judged = std::find_if(
        advice->plans.begin(), advice->plans.end(),
        [&](const PlanAdvice& plan) { return times.contains(plan.mode); });
    ASSERT_NE(judged, advice->plans.end());

    const auto best = std::min_element(
        times.begin(), times.end(),
        [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto regret = [&](const std::string& mode) {
      return times.at(mode) / best->second - 1;
    };
    ours.Add(regret(judged->mode));
    always_tp.Add(regret("TP2"));
    always_replicas.Add(regret("2xTP1"));
    std::printf("%-5s%-15s%6d  %-13s%-13s%8.2f%%%10.2f%%%12.2f%%%s\n",
                which.fabric.c_str(), which.model.c_str(),
                static_cast<int>(which.batch), judged->mode.c_str(),
                best->first.c_str(), 100 * regret(judged->mode),
                100 * regret("TP2"), 100 * regret("2xTP1"),
                judged == advice->plans.begin()
                    ? ""
                    : absl::StrCat("  (after ", advice->plans.front().mode,
                                   ", not run)")
                          .c_str());
  }
  const auto mean = [](const Regret& regret) {
    return 100 * regret.sum / static_cast<double>(kCases);
  };
  std::printf(
      "mean regret %.2f%%, worst %.2f%%; always TP %.2f%%, %.2f%%; "
      "always replicas %.2f%%, %.2f%%\n",
      mean(ours), 100 * ours.worst, mean(always_tp), 100 * always_tp.worst,
      mean(always_replicas), 100 * always_replicas.worst);
  EXPECT_LE(mean(ours), 1.0);
  EXPECT_LE(ours.worst, 0.08);
}

INSTANTIATE_TEST_SUITE_P(Recorders, RealLayersTest,
                         testing::Values("", "-worker"),
                         [](const auto& recorder) {
                           return std::string(*recorder.param == 0 ? "Imported"
                                                                   : "Worker");
                         });

}  // namespace
}  // namespace fabricwise
