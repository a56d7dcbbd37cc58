// SPDX-License-Identifier: Apache-2.0
#include "server/domain/plan.h"

#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

using testing::HasSubstr;

constexpr ExpertTransport kTransports[] = {
    ExpertTransport::kNone,
    ExpertTransport::kAllGatherReduceScatter,
    ExpertTransport::kNcclAllToAll,
    ExpertTransport::kDeepEpLowLatency,
    ExpertTransport::kDeepEpHighThroughput,
    ExpertTransport::kFlashinferNvlink};

// All plans of up to `max_gpus` GPUs.
std::vector<Plan> AllPlans(int max_gpus, bool is_moe) {
  std::vector<Plan> plans;
  for (int r = 1; r <= max_gpus; ++r) {
    for (int p = 1; r * p <= max_gpus; ++p) {
      for (int d = 1; r * p * d <= max_gpus; ++d) {
        for (int t = 1; r * p * d * t <= max_gpus; ++t) {
          const Plan base = {.replicas = r,
                             .pipeline = p,
                             .attention_dp = d,
                             .attention_tp = t};
          if (!is_moe) {
            plans.push_back(base);
            plans.push_back(base);
            plans.back().two_batch_overlap = true;
            continue;
          }
          for (int e = 1; e <= d * t; ++e) {
            if (d * t % e != 0) continue;
            for (const ExpertTransport transport : kTransports) {
              for (int options = 0; options < 4; ++options) {
                plans.push_back(base);
                plans.back().expert_parallel = e;
                plans.back().moe_tp = d * t / e;
                plans.back().transport = transport;
                plans.back().two_batch_overlap = (options & 1) != 0;
                plans.back().fp8_dispatch = (options & 2) != 0;
              }
            }
          }
        }
      }
    }
  }
  return plans;
}

TEST(ModeTest, EveryPlanOfUpTo16GpusHasANameOfItsOwnThatParsesBack) {
  for (const bool is_moe : {false, true}) {
    std::set<std::string> names;
    const std::vector<Plan> plans = AllPlans(16, is_moe);
    ASSERT_GT(plans.size(), 200u);
    for (const Plan& plan : plans) {
      const std::string name = ModeName(plan);
      EXPECT_TRUE(names.insert(name).second) << name << " twice";
      const auto parsed = ParseMode(name, is_moe);
      ASSERT_TRUE(parsed.ok()) << name << ": " << parsed.status();
      ASSERT_EQ(*parsed, plan) << name;
    }
  }
}

TEST(ModeTest, NamesAreTheOnesPeopleUse) {
  EXPECT_EQ(ModeName({}), "TP1");
  EXPECT_EQ(ModeName({.attention_tp = 8}), "TP8");
  EXPECT_EQ(ModeName({.attention_tp = 8, .moe_tp = 8}), "TP8");
  EXPECT_EQ(ModeName({.attention_tp = 8, .expert_parallel = 8}), "TP8+EP8");
  EXPECT_EQ(ModeName({.attention_dp = 8,
                      .expert_parallel = 8,
                      .transport = ExpertTransport::kAllGatherReduceScatter}),
            "DP8+EP8");
  EXPECT_EQ(ModeName({.replicas = 2, .attention_tp = 4}), "2xTP4");
  EXPECT_EQ(ModeName({.replicas = 8}), "8xTP1");
  EXPECT_EQ(ModeName({.pipeline = 2, .attention_tp = 4}), "PP2xTP4");
  EXPECT_EQ(ModeName({.pipeline = 4}), "PP4");
  EXPECT_EQ(ModeName({.attention_dp = 2,
                      .attention_tp = 4,
                      .expert_parallel = 8,
                      .transport = ExpertTransport::kDeepEpLowLatency}),
            "DP2xTP4+EP8:deepep-ll");
  EXPECT_EQ(ModeName({.attention_tp = 8, .expert_parallel = 4, .moe_tp = 2}),
            "TP8+EP4xMTP2");
  EXPECT_EQ(ModeName({.attention_dp = 8,
                      .expert_parallel = 8,
                      .transport = ExpertTransport::kNcclAllToAll,
                      .two_batch_overlap = true,
                      .fp8_dispatch = true}),
            "DP8+EP8:a2a+tbo+fp8d");
}

// Cells of the rows of a Markdown table that follow the line with `head`, marks
// of code dropped.
std::vector<std::vector<std::string>> TableOf(const std::string& path,
                                              const std::string& head) {
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind('|', 0) != 0) {
      inside = false;
    } else if (line.rfind(head, 0) == 0) {
      inside = true;
    } else if (inside && line.rfind("|---", 0) != 0) {
      std::vector<std::string>& row = rows.emplace_back();
      for (absl::string_view cell : absl::StrSplit(line, '|')) {
        row.push_back(
            absl::StrReplaceAll(absl::StripAsciiWhitespace(cell), {{"`", ""}}));
      }
    }
  }
  return rows;
}

TEST(ModeTest, MeansWhatTheDocumentSays) {
  const auto rows = TableOf("docs/modes.md", "| mode | GPUs |");
  EXPECT_GE(rows.size(), 10u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 11u);
    const auto plan = ParseMode(row[1], true);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<int> sizes = {
        plan->gpus(),       plan->replicas,     plan->pipeline,
        plan->attention_dp, plan->attention_tp, plan->expert_parallel,
        plan->moe_tp,
    };
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(std::to_string(sizes[i]), row[2 + i])
          << row[1] << ", column " << i;
    }
    EXPECT_EQ(std::string(ToString(plan->transport)), row[9]) << row[1];
  }
  std::set<std::string> transports;
  for (const auto& row : TableOf("docs/modes.md", "| transport | tokens")) {
    transports.insert(row.at(1));
  }
  std::set<std::string> known;
  for (const ExpertTransport transport : kTransports) {
    known.insert(std::string(ToString(transport)));
  }
  EXPECT_EQ(transports, known);
}

TEST(ModeTest, ExpertsFollowFromTheModel) {
  EXPECT_EQ(ParseMode("DP8", true)->moe_tp, 8);
  EXPECT_EQ(ParseMode("DP8", true)->transport,
            ExpertTransport::kAllGatherReduceScatter);
  EXPECT_EQ(ParseMode("DP8", false)->moe_tp, 1);
  EXPECT_EQ(ParseMode("DP8", false)->transport, ExpertTransport::kNone);
}

TEST(ModeTest, OddNamesAreRefused) {
  for (const std::string odd : {"",
                                " ",
                                "TP",
                                "TP0",
                                "TP08",
                                "TP-1",
                                "TP+8",
                                "tp8",
                                "TP8 ",
                                " TP8",
                                "TP8x",
                                "1xTP8",
                                "2x",
                                "2",
                                "2x2xTP2",
                                "PP1xTP8",
                                "DP1xTP8",
                                "DP8xTP1",
                                "PP2xTP1",
                                "TP4xPP2",
                                "TP4xDP2",
                                "xTP4",
                                "TP8+EP8+EP8",
                                "TP8+EP1",
                                "TP8+EP8xMTP1",
                                "TP8+EP4xMTP",
                                "TP8+ep8",
                                "TP8+EP8:",
                                "TP8+EP8:none",
                                "DP8+EP8:agrs",
                                "DP8+EP8:pplx",
                                "DP8+EP8:a2a:a2a",
                                "TP8+EP8+fp8d+tbo",
                                "TP8+tbo+tbo",
                                "TP8+",
                                "TP8+EP8:a2a+",
                                "TP1025",
                                "TP99999999999999999999",
                                "2147483647xTP2147483647"}) {
    const auto plan = ParseMode(odd, true);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << odd;
    EXPECT_THAT(plan.status().message(), HasSubstr("mode is '" + odd)) << odd;
  }
  EXPECT_FALSE(ParseMode(std::string("TP8\0", 4), true).ok());
}

TEST(ModeTest, RefusalsSayWhatIsAllowed) {
  EXPECT_EQ(ParseMode("TP8+EP8", false).status().message(),
            "mode is 'TP8+EP8'; allowed: no +EP; the model has no experts");
  EXPECT_EQ(ParseMode("DP8:a2a", false).status().message(),
            "mode is 'DP8:a2a'; allowed: no transport; the model has no "
            "experts");
  EXPECT_EQ(ParseMode("TP8+fp8d", false).status().message(),
            "mode is 'TP8+fp8d'; allowed: no transport; the model has no "
            "experts");
  EXPECT_EQ(ParseMode("TP8+EP4", true).status().message(),
            "mode is 'TP8+EP4'; allowed: EP x MTP equal to the 8 GPUs of a "
            "stage");
  EXPECT_EQ(ParseMode("1024xTP1024", true).status().message(),
            "mode is '1024xTP1024' on 1048576 GPUs; allowed: at most 1024 "
            "GPUs");
}

TEST(ModeTest, CountsGpus) {
  const auto plan = ParseMode("2xPP2xDP2xTP4+EP8", true);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->stage_gpus(), 8);
  EXPECT_EQ(plan->gpus(), 32);
}

}  // namespace
}  // namespace fabricwise
