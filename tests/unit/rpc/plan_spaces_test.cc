// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/plan_spaces.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/profile/preset.h"
#include "tests/support/synthetic_profile.h"

namespace fabricwise {
namespace {

class PlanSpacesTest : public testing::Test {
 protected:
  // Of the preset of that name, counting how often it had to be looked up.
  PlanSpaces::Lease Get(const std::string& preset,
                        const PlanScope& scope = {}) {
    auto lease = spaces_.Get(preset, scope, profile_,
                             [&]() -> absl::StatusOr<ModelShape> {
                               ++resolved_;
                               auto shape = FindPreset(preset);
                               if (!shape.ok()) return shape.status();
                               return **shape;
                             });
    EXPECT_TRUE(lease.ok()) << lease.status();
    return *std::move(lease);
  }

  std::shared_ptr<const Profile> profile_ = SyntheticProfile();
  PlanSpaces spaces_;
  int resolved_ = 0;
};

TEST_F(PlanSpacesTest, GiveTheSameSpaceForTheSameQuestionAgain) {
  const PlanSpace* first = &Get("Llama-3.1-8B").space();
  EXPECT_EQ(&Get("Llama-3.1-8B").space(), first);
  EXPECT_EQ(resolved_, 1);
  EXPECT_EQ(Get("Qwen3-30B-A3B").space().model().name, "Qwen3-30B-A3B");
  EXPECT_EQ(Get("Llama-3.1-8B", {.routing_skew = 0.5}).space().scope(),
            (PlanScope{.routing_skew = 0.5}));
  EXPECT_EQ(resolved_, 3);
  EXPECT_EQ(&Get("Llama-3.1-8B").space(), first);
}

TEST_F(PlanSpacesTest, NeverGiveOneThatIsInUse) {
  const PlanSpaces::Lease one = Get("Llama-3.1-8B");
  const PlanSpaces::Lease other = Get("Llama-3.1-8B");
  EXPECT_NE(&one.space(), &other.space());
}

TEST_F(PlanSpacesTest, ForgetOtherProfilesAndWhatWasNotUsedForLong) {
  Get("Llama-3.1-8B");
  for (size_t i = 0; i < PlanSpaces::kMost; ++i) {
    Get("Llama-3.1-8B", {.extra_all_reduces = static_cast<int64_t>(i + 1)});
  }
  EXPECT_EQ(resolved_, 1 + static_cast<int>(PlanSpaces::kMost));
  Get("Llama-3.1-8B", {.extra_all_reduces = 2});
  EXPECT_EQ(resolved_, 1 + static_cast<int>(PlanSpaces::kMost));
  Get("Llama-3.1-8B");
  EXPECT_EQ(resolved_, 2 + static_cast<int>(PlanSpaces::kMost));

  const std::weak_ptr<const Profile> old = profile_;
  profile_ = SyntheticProfile();
  EXPECT_FALSE(old.expired());
  EXPECT_EQ(&Get("Llama-3.1-8B").space().profile(), profile_.get());
  EXPECT_TRUE(old.expired());
}

TEST_F(PlanSpacesTest, TellWhatIsWrongWithAModel) {
  const auto lease = spaces_.Get("odd", {}, profile_, [] {
    return absl::StatusOr<ModelShape>(absl::NotFoundError("no 'odd'"));
  });
  EXPECT_EQ(lease.status(), absl::NotFoundError("no 'odd'"));
}

TEST_F(PlanSpacesTest, ServeManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto lease =
            spaces_.Get("Llama-3.1-8B", {.extra_all_reduces = i % 3}, profile_,
                        []() -> absl::StatusOr<ModelShape> {
                          return **FindPreset("Llama-3.1-8B");
                        });
        EXPECT_TRUE(lease.ok());
        EXPECT_EQ(lease->space().scope().extra_all_reduces, i % 3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fabricwise
