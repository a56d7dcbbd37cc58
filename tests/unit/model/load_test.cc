// SPDX-License-Identifier: Apache-2.0
#include "server/model/load.h"

#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(DecodeLoad, FillsTheFullestRankOfTheFullestReplica) {
  const Workload workload{
      .concurrency = 65, .phase = Phase::kDecode, .context_tokens = 2048};
  const StepLoad load = DecodeLoad(
      workload, {.replicas = 2, .attention_dp = 4, .attention_tp = 2});
  EXPECT_EQ(load.replica_sequences, 33);
  EXPECT_EQ(load.micro_batches, 1);
  EXPECT_EQ(load.rank_sequences, 9);
  EXPECT_EQ(load.rank_tokens, 9);
  EXPECT_EQ(load.slice_tokens, 5);
  EXPECT_EQ(load.stage_tokens, 36);
  EXPECT_EQ(load.output_rows, 9);
  EXPECT_EQ(load.prompt_tokens, 0);
  EXPECT_EQ(load.context_tokens, 2048);
}

TEST(DecodeLoad, SplitsAReplicaIntoAsManyMicroBatchesAsItCan) {
  Workload workload{.concurrency = 10, .phase = Phase::kDecode};
  const Plan plan{.pipeline = 4};
  EXPECT_EQ(DecodeLoad(workload, plan).micro_batches, 4);
  EXPECT_EQ(DecodeLoad(workload, plan).rank_sequences, 3);
  workload.concurrency = 2;
  EXPECT_EQ(DecodeLoad(workload, plan).micro_batches, 2);
  EXPECT_EQ(DecodeLoad(workload, plan).rank_sequences, 1);
}

TEST(DecodeLoad, CanLeaveSequencesOut) {
  const Workload workload{
      .concurrency = 8, .input_tokens = 3000, .output_tokens = 1000};
  const Plan plan{.attention_dp = 2, .attention_tp = 2};
  const StepLoad load = DecodeLoad(DecodeLoad(workload, plan), plan, 3);
  EXPECT_EQ(load.replica_sequences, 8);
  EXPECT_EQ(load.rank_sequences, 3);
  EXPECT_EQ(load.prompt_tokens, 0);
  EXPECT_EQ(load.rank_tokens, 3);
  EXPECT_EQ(load.stage_tokens, 6);
  EXPECT_EQ(load.output_rows, 3);
  EXPECT_EQ(load.context_tokens, 3500);
  EXPECT_EQ(load.prompt_context, 1500);
}

TEST(AdmissionLoad, HasPromptsBesideWhatDecodes) {
  const Workload workload{
      .concurrency = 8, .input_tokens = 1000, .output_tokens = 1000};
  const Plan plan{.attention_dp = 4};
  const StepLoad load =
      AdmissionLoad(DecodeLoad(workload, plan), workload, plan, 2, 1500, 30);
  EXPECT_EQ(load.rank_sequences, 2);
  EXPECT_EQ(load.prompt_tokens, 1500);
  EXPECT_EQ(load.rank_tokens, 1502);
  EXPECT_EQ(load.stage_tokens, 1502 + 30);
  EXPECT_EQ(load.output_rows, 2 + 2);
}

TEST(PromptLoad, HasNothingToDecode) {
  const Workload workload{
      .concurrency = 8, .phase = Phase::kPrefill, .input_tokens = 1000};
  const StepLoad load =
      PromptLoad(workload, {.pipeline = 2, .attention_tp = 4}, 2500);
  EXPECT_TRUE(load.prompts_only);
  EXPECT_EQ(load.micro_batches, 1);
  EXPECT_EQ(load.rank_sequences, 0);
  EXPECT_EQ(load.rank_tokens, 2500);
  EXPECT_EQ(load.slice_tokens, 625);
  EXPECT_EQ(load.output_rows, 3);
}

TEST(PromptLoad, IsNotPaddedToTheFullestRank) {
  Workload workload{
      .concurrency = 1, .phase = Phase::kPrefill, .input_tokens = 1000};
  const Plan plan{.attention_dp = 4};
  EXPECT_EQ(PromptLoad(workload, plan, 1000).stage_tokens, 1000);
  workload.concurrency = 6;
  EXPECT_EQ(PromptLoad(workload, plan, 2000).stage_tokens, 6000);
  workload.concurrency = 8;
  EXPECT_EQ(PromptLoad(workload, plan, 2000).stage_tokens, 8000);
}

TEST(Context, IsOfMidAnswerOrAsGiven) {
  Workload workload{.input_tokens = 1000, .output_tokens = 500};
  EXPECT_EQ(MeanContext(workload), 1250);
  EXPECT_EQ(FinalContext(workload), 1500);
  workload.phase = Phase::kDecode;
  EXPECT_EQ(MeanContext(workload), 1250);
  EXPECT_EQ(FinalContext(workload), 1250);
  workload.context_tokens = 77;
  EXPECT_EQ(MeanContext(workload), 77);
  EXPECT_EQ(FinalContext(workload), 77);
  workload.phase = Phase::kPrefill;
  EXPECT_EQ(FinalContext(workload), 1000);
}

}  // namespace
}  // namespace fabricwise
