// SPDX-License-Identifier: Apache-2.0
#include "server/profile/name_pattern.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using testing::HasSubstr;

constexpr int64_t kPlenty = 1'000'000;

bool Matches(const absl::StatusOr<NamePattern>& pattern,
             const std::string& name) {
  int64_t steps = kPlenty;
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  const bool matches = pattern.ok() && pattern->Matches(name, &steps);
  EXPECT_GE(steps, 0);
  return matches;
}

TEST(RegexTest, MatchesFromTheStartAsPythonsReMatch) {
  struct Case {
    std::string pattern;
    std::vector<std::string> yes, no;
  };
  const std::vector<Case> cases = {
      {"", {"", "x"}, {}},
      {"abc", {"abc", "abcd"}, {"ab", "xabc"}},
      {"a.c", {"abc", "a.c"}, {"ac"}},
      {"a\\.c", {"a.c"}, {"abc"}},
      {".*a|b", {"xxa", "b"}, {"xb"}},
      {".*ab+$", {"ab", "xabb", "ababb"}, {"abx", "xa"}},
      {".*?gate$", {"a.gate"}, {"a.gates"}},
      {".*x^a", {}, {"xa"}},
      {".*self_attn.*", {"model.layers.0.self_attn.q_proj"}, {"self-attn"}},
      {".*mlp\\.(gate|up|gate_up|down)_proj.*",
       {"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.gate_up_proj"},
       {"model.layers.0.mlp.experts.0.gate_proj", "model.layers.0.mlp.gate"}},
      {".*mlp.gate$", {"model.layers.0.mlp.gate"}, {"model.mlp.gate_proj"}},
      {"^model\\.layers\\.\\d+\\.mlp",
       {"model.layers.12.mlp.x"},
       {"model.layers.x.mlp", "a.model.layers.1.mlp"}},
      {"x^a", {}, {"xa", "a"}},
      {"a$b", {}, {"ab", "a"}},
      {"ab*c", {"ac", "abbbc"}, {"abb"}},
      {"ab+c", {"abc", "abbc"}, {"ac"}},
      {"ab?c", {"ac", "abc"}, {"abbc"}},
      {"ab*?c$", {"ac", "abbc"}, {"acx"}},
      {"(?:ab)+$", {"ab", "abab"}, {"aba"}},
      {"(a|b|)c", {"ac", "bc", "c"}, {"dc"}},
      {"(a*)*b", {"b", "aaab"}, {"aaa"}},
      {"(^)*a", {"a"}, {"b"}},
      {"[abc]+$", {"abcabc"}, {"abd", ""}},
      {"[^abc]$", {"d"}, {"a", ""}},
      {"[a-c0-9_.]+$", {"a0_.c"}, {"d", "A"}},
      {"[]a]+$", {"]a"}, {"b"}},
      {"[a-]+$", {"a-"}, {"b"}},
      {"[\\d\\.]+$", {"1.2"}, {"1a"}},
      {"\\w+$", {"aZ_9"}, {"a-b", ""}},
      {"model\\.layers\\.(0|1|2[0-9])\\.",
       {"model.layers.0.x", "model.layers.25.x"},
       {"model.layers.2.x", "model.layers.30.x"}},
  };
  for (const Case& c : cases) {
    const auto pattern = NamePattern::Regex(c.pattern);
    for (const auto& name : c.yes) {
      EXPECT_TRUE(Matches(pattern, name)) << c.pattern << " on " << name;
    }
    for (const auto& name : c.no) {
      EXPECT_FALSE(Matches(pattern, name)) << c.pattern << " on " << name;
    }
  }
}

TEST(RegexTest, WhatIsNotUnderstoodIsRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"^(?!.*experts).*", "an unknown kind of group at byte 3"},
      {"(?P<x>a)", "an unknown kind of group"},
      {"a{2}", "a counted repetition at byte 1"},
      {"a**", "a repeated repetition"},
      {"*a", "nothing to repeat at byte 0"},
      {"a|+", "nothing to repeat"},
      {"(a", "an unmatched ("},
      {"a)", "an unmatched ) at byte 1"},
      {"[a", "an unmatched ["},
      {"[", "an unmatched ["},
      {"[z-a]", "an odd range"},
      {"[a-\\d]", "an odd range"},
      {"a\\", "nothing after \\"},
      {"\\bgate", "an unknown escape"},
      {"[\\s]", "an unknown escape"},
      {std::string(40, '(') + "a" + std::string(40, ')'),
       "groups nested too deep at byte 16"},
  };
  for (const auto& [pattern, reason] : cases) {
    const auto parsed = NamePattern::Regex(pattern);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
        << pattern;
    EXPECT_THAT(parsed.status().message(), HasSubstr(" has " + reason));
    EXPECT_THAT(parsed.status().message(), HasSubstr("; allowed: literals"));
  }
  EXPECT_THAT(NamePattern::Regex(std::string(1025, 'a')).status().message(),
              HasSubstr("is 1025 bytes long; allowed: at most 1024"));
  EXPECT_THAT(NamePattern::Glob(std::string(1025, '*')).status().message(),
              HasSubstr("is 1025 bytes long; allowed: at most 1024"));
}

// Patterns that take a backtracking matcher for ever.
TEST(RegexTest, HostilePatternsTakeFewSteps) {
  const std::string name(200, 'a');
  for (const std::string& hostile :
       {std::string("(a*)*b"), std::string("(a|a)*b"), std::string("(a+)+$b"),
        std::string(".*.*.*.*.*.*.*.*b"),
        "(((((a*)*)*)*)*)*b" + std::string(100, '|')}) {
    const auto pattern = NamePattern::Regex(hostile);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    int64_t steps = kPlenty;
    pattern->Matches(name, &steps);
    EXPECT_GT(steps, kPlenty - 100'000) << hostile;
  }
}

TEST(MatchesTest, StopsWhereTheStepsRunOut) {
  const auto pattern = NamePattern::Regex("a*b");
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  int64_t steps = 10;
  EXPECT_FALSE(pattern->Matches("aaaaaaaaaaaaaab", &steps));
  EXPECT_LT(steps, 0);
  EXPECT_FALSE(pattern->Matches("b", &steps));
}

TEST(GlobTest, MatchesARunOfWholeParts) {
  struct Case {
    std::string glob;
    std::vector<std::string> yes, no;
  };
  const std::vector<Case> cases = {
      {"model.layers.*.self_attn",
       {"model.layers.3.self_attn", "model.layers.3.self_attn.q_proj",
        "language_model.model.layers.3.self_attn.q_proj"},
       {"model.layers.3.self_attn2", "xmodel.layers.3.self_attn",
        "model.layers.3.mlp"}},
      {"model.layers.0*",
       {"model.layers.0.mlp.gate_proj"},
       {"model.layers.1.mlp"}},
      {"*.gate", {"a.b.gate", "a.gate.c"}, {"a.gate_proj", "gate"}},
      {"mlp*", {"a.mlp.b", "mlp", "a.mlp2"}, {"a.xmlp"}},
      {"a*a", {"a.a", "b.a.x.a.c", "aa"}, {"a", "b.xa"}},
      {"*", {"", "anything"}, {}},
      {"[a](b", {"x.[a](b.c"}, {"a"}},
  };
  for (const Case& c : cases) {
    const auto pattern = NamePattern::Glob(c.glob);
    for (const auto& name : c.yes) {
      EXPECT_TRUE(Matches(pattern, name)) << c.glob << " on " << name;
    }
    for (const auto& name : c.no) {
      EXPECT_FALSE(Matches(pattern, name)) << c.glob << " on " << name;
    }
  }
}

}  // namespace
}  // namespace fabricwise
