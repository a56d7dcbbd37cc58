// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/features.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/daemon/read_file.h"
#include "tests/support/synthetic_profile.h"
#include "tests/support/temp_folder.h"

namespace fabricwise {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMostBytes = 1 << 20;

Outlook TwoScenarios() {
  Outlook outlook;
  outlook.scenarios.push_back({.name = "chat",
                               .answered = true,
                               .engine = "vllm",
                               .mode = "DP2xTP4+EP8:deepep-ll"});
  outlook.scenarios.push_back({.name = "batch", .answered = false});
  return outlook;
}

TEST(NodeFeaturesTest, AreLabelsOfTheFabricAndOfAnsweredScenarios) {
  ProfileData data = SampleProfileData("node");
  data.fingerprint.fabric = "nvlink";
  const auto profile = Profile::Build(std::move(data)).value();
  EXPECT_EQ(NodeFeatures(*profile, TwoScenarios()),
            "fabricwise.fabric=nvlink\n"
            "fabricwise.fingerprint=" +
                profile->fingerprint_id() +
                "\n"
                "fabricwise.mode.chat=DP2xTP4.EP8.deepep-ll\n"
                "fabricwise.engine.chat=vllm\n");
}

TEST(NodeFeaturesTest, ValuesAreWhatLabelsMayHold) {
  ProfileData data = SampleProfileData("node");
  data.fingerprint.fabric = "-over the \n wire, " + std::string(80, 'x');
  const auto profile = Profile::Build(std::move(data)).value();
  const std::string text = NodeFeatures(*profile, {});
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "fabricwise.fabric=over.the...wire.." + std::string(45, 'x'));
}

TEST(NodeFeaturesTest, WhatIsNotKnownHasNoLine) {
  ProfileData data = SampleProfileData("node");
  data.fingerprint.fabric = "?";
  const auto profile = Profile::Build(std::move(data)).value();
  EXPECT_EQ(NodeFeatures(*profile, {}),
            "fabricwise.fingerprint=" + profile->fingerprint_id() + "\n");
}

TEST(ReplaceFileTest, TheFileIsWholeReadableByAllAndAlone) {
  const TempFolder folder;
  const std::string path = folder.File("fabricwise");
  umask(0077);
  ASSERT_TRUE(ReplaceFile(path, "a=long text\n").ok());
  ASSERT_TRUE(ReplaceFile(path, "b=1\n").ok());
  EXPECT_EQ(ReadFile(path, kMostBytes).value(), "b=1\n");
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::perms(0644));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path(), path);
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST(ReplaceFileTest, LinksAreNotFollowed) {
  const TempFolder folder;
  const std::string victim = folder.File("victim");
  ASSERT_TRUE(ReplaceFile(victim, "precious\n").ok());
  // In place of the hidden file, and of the file itself.
  std::filesystem::create_symlink(victim, folder.File(".fabricwise"));
  ASSERT_TRUE(ReplaceFile(folder.File("fabricwise"), "a=1\n").ok());
  EXPECT_EQ(ReadFile(folder.File("fabricwise"), kMostBytes).value(), "a=1\n");
  std::filesystem::create_symlink(victim, folder.File("link"));
  EXPECT_EQ(ReplaceFile(folder.File("link"), "a=1\n").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadFile(victim, kMostBytes).value(), "precious\n");
}

TEST(ReplaceFileTest, WhatCannotBeWrittenIsNamedAndLeavesTheOldText) {
  const TempFolder folder;
  const absl::Status nowhere = ReplaceFile(folder.File("no/where"), "x");
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(nowhere.message(), HasSubstr(folder.File("no/.where")));

  const std::string taken = folder.File("taken");
  std::filesystem::create_directory(taken);
  const absl::Status refused = ReplaceFile(taken, "x");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("cannot replace " + taken));
  EXPECT_FALSE(std::filesystem::exists(folder.File(".taken")));
}

}  // namespace
}  // namespace fabricwise
