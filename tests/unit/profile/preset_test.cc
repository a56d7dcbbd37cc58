// SPDX-License-Identifier: Apache-2.0
#include "server/profile/preset.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/model_config.h"
#include "server/profile/model_file.h"

namespace fabricwise {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::UnorderedElementsAreArray;

constexpr char kOwnFiles[] = "deploy/models";
constexpr char kConfigs[] = "../shared/data/models";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const ModelShape& shape : Presets()) names.push_back(shape.name);
  return names;
}

TEST(PresetsTest, AreTheFilesOfTheRepositoryToTheByte) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kOwnFiles)) {
    if (entry.path().extension() != ".json") continue;
    names.push_back(entry.path().stem().string());
    const auto preset = FindPreset(names.back());
    ASSERT_TRUE(preset.ok()) << preset.status();
    EXPECT_EQ((*preset)->name, names.back());
    EXPECT_EQ(PrintModelFile(**preset), ReadFile(entry.path()));
  }
  EXPECT_EQ(names.size(), 34u);
  EXPECT_THAT(PresetNames(), UnorderedElementsAreArray(names));
}

TEST(PresetsTest, ComeByNameWithoutRegardToCase) {
  std::vector<std::string> sorted = PresetNames();
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return absl::AsciiStrToLower(a) < absl::AsciiStrToLower(b);
  });
  EXPECT_THAT(PresetNames(), ElementsAreArray(sorted));
}

TEST(PresetsTest, EqualTheParseOfThePublicConfigs) {
  if (!std::filesystem::exists(kConfigs)) {
    GTEST_SKIP() << kConfigs << " is not here";
  }
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs)) {
    const std::string name = entry.path().stem().string();
    auto shape = ParseHuggingFaceConfig(ReadFile(entry.path()), name);
    ASSERT_TRUE(shape.ok()) << name << ": " << shape.status();
    const auto preset = FindPreset(name);
    ASSERT_TRUE(preset.ok()) << preset.status();
    shape->repository = (*preset)->repository;  // a config does not say it
    EXPECT_EQ(**preset, *shape) << PrintModelFile(*shape);
    ++count;
  }
  EXPECT_EQ(count, Presets().size());
}

TEST(PresetsTest, NameTheirRepositories) {
  std::set<std::string> repositories;
  for (const ModelShape& preset : Presets()) {
    EXPECT_THAT(preset.repository, MatchesRegex("[A-Za-z-]+/[A-Za-z0-9._-]+"))
        << preset.name;
    repositories.insert(preset.repository);
  }
  EXPECT_EQ(repositories.size(), Presets().size());
  EXPECT_EQ((*FindPreset("gpt-oss-120b"))->repository, "openai/gpt-oss-120b");
}

// The figures that the models' makers publish, in thousands of millions.
TEST(PresetsTest, HaveThePublishedNumberOfParameters) {
  const std::vector<std::pair<std::string, double>> published = {
      {"DeepSeek-V3", 671},
      {"DeepSeek-R1", 671},
      {"DeepSeek-V3.2", 671},
      {"DeepSeek-V4-Flash", 284},
      {"GLM-4.5", 355},
      {"GLM-4.6", 355},
      {"GLM-4.5-Air", 106},
      {"GLM-5", 744},
      {"Gemma-3-27B", 27},
      {"Kimi-K2-Instruct", 1026},
      {"Kimi-K2.5", 1026},
      {"Llama-3.1-8B", 8.03},
      {"Llama-3.1-70B", 70.6},
      {"Llama-3.1-405B", 405.9},
      {"Llama-4-Scout", 109},
      {"Llama-4-Maverick", 400},
      {"MiniMax-M2", 230},
      {"MiniMax-M2.5", 230},
      {"Mistral-Large-2407", 123},
      {"Mixtral-8x7B", 46.7},
      {"Mixtral-8x22B", 141},
      {"Phi-4", 14.7},
      {"Qwen2.5-72B", 72.7},
      {"Qwen3-8B", 8.2},
      {"Qwen3-32B", 32.8},
      {"Qwen3-30B-A3B", 30.5},
      {"Qwen3-235B-A22B", 235},
      {"Qwen3-235B-A22B-FP8", 235},
      {"Qwen3-Coder-480B-A35B", 480},
      {"Qwen3-Next-80B-A3B", 80},
      {"Qwen3.5-35B-A3B", 35},
      {"Qwen3.5-397B-A17B", 397},
      {"gpt-oss-20b", 20.9},
      {"gpt-oss-120b", 116.8},
  };
  EXPECT_EQ(published.size(), Presets().size());
  for (const auto& [name, billions] : published) {
    const auto preset = FindPreset(name);
    ASSERT_TRUE(preset.ok()) << preset.status();
    EXPECT_NEAR(CountParameters(**preset) / (billions * 1e9), 1, 0.016) << name;
  }
}

TEST(FindPresetTest, IgnoresCase) {
  EXPECT_EQ((*FindPreset("kimi-k2.5"))->name, "Kimi-K2.5");
  EXPECT_EQ((*FindPreset("GPT-OSS-120B"))->name, "gpt-oss-120b");
  // One object for all askers.
  EXPECT_EQ(*FindPreset("KIMI-K2.5"), *FindPreset("kimi-k2.5"));
}

TEST(FindPresetTest, TakesTheRepositoryWithAndWithoutItsOrganisation) {
  for (const ModelShape& preset : Presets()) {
    for (const std::string& name :
         {preset.repository, absl::AsciiStrToUpper(preset.repository),
          preset.repository.substr(preset.repository.find('/') + 1)}) {
      const auto found = FindPreset(name);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, &preset) << name;
    }
  }
  EXPECT_EQ((*FindPreset("google/gemma-3-27b-it"))->name, "Gemma-3-27B");
}

// The shape is the preset's; what is launched is what was asked for.
TEST(FindPresetTest, TakesRepositoriesOfTheSameShape) {
  for (const std::string& name :
       {std::string("meta-llama/Llama-3.1-8B-Instruct"),
        std::string("llama-3.1-8b-instruct")}) {
    const auto found = FindPreset(name);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ((*found)->name, "Llama-3.1-8B-Instruct");
    EXPECT_EQ((*found)->repository, "meta-llama/Llama-3.1-8B-Instruct");
    ModelShape shape = **found;
    const ModelShape& preset = **FindPreset("Llama-3.1-8B");
    shape.name = preset.name;
    shape.repository = preset.repository;
    EXPECT_EQ(shape, preset);
  }
}

TEST(FindPresetTest, NoTwoModelsShareAName) {
  std::set<std::string> names;
  size_t count = 0;
  for (const absl::Span<const ModelShape> shapes : {Presets(), PresetTwins()}) {
    for (const ModelShape& shape : shapes) {
      const std::string& repository = shape.repository;
      std::set<std::string> own = {
          absl::AsciiStrToLower(shape.name), absl::AsciiStrToLower(repository),
          absl::AsciiStrToLower(repository.substr(repository.find('/') + 1))};
      count += own.size();
      names.merge(own);
      EXPECT_TRUE(Validate(shape).ok()) << shape.name;
    }
  }
  EXPECT_EQ(names.size(), count);
  // Each names a preset that there is.
  EXPECT_EQ(PresetTwins().size(), 34u);
}

TEST(FindPresetTest, GuessesNothing) {
  for (const auto& [name, nearest] : {
           std::pair("meta-llama/Llama-3.1-8B-Instruct-FP8", "Llama-3.1-8B"),
           std::pair("Qwen/Qwen3-30B-A3B-FP8", "Qwen3-30B-A3B"),
           std::pair("someone/Qwen3-30B-A3B", "Qwen3-30B-A3B"),
           std::pair("mistralai/Mixtral-8x22B-Instruct-v0.1", "Mixtral-8x22B"),
       }) {
    const auto found = FindPreset(name);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(std::string(found.status().message()),
                testing::AllOf(HasSubstr(std::string("nearest: ") + nearest),
                               HasSubstr("config.json")));
  }
}

TEST(FindPresetTest, UnknownNameGetsTheNearest) {
  const auto preset = FindPreset("Kimi-K25");
  EXPECT_EQ(preset.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(preset.status().message(),
              HasSubstr("no preset 'Kimi-K25'; nearest: Kimi-K2.5, "));
  EXPECT_THAT(FindPreset("llama-3.1").status().message(),
              HasSubstr("nearest: Llama-3.1-8B, Llama-3.1-70B, "
                        "Llama-3.1-405B, "));
  EXPECT_THAT(FindPreset("gpt-oss-120b-mxfp4").status().message(),
              HasSubstr("nearest: gpt-oss-120b, "));
  EXPECT_THAT(FindPreset("Qwen3-30B").status().message(),
              HasSubstr("nearest: Qwen3-30B-A3B, "));
}

TEST(FindPresetTest, OddNamesAreOnlyNotFound) {
  for (const std::string& odd :
       {std::string(), std::string(1 << 20, 'x'), std::string("\0\xff\n", 3)}) {
    const auto preset = FindPreset(odd);
    EXPECT_EQ(preset.status().code(), absl::StatusCode::kNotFound);
    EXPECT_LT(preset.status().message().size(), 400u);
  }
}

}  // namespace
}  // namespace fabricwise
