// SPDX-License-Identifier: Apache-2.0
//
// Quantized widths that divide and that do not: one test for each model, plan
// and engine, named after them.
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/engines/recipes.h"

namespace fabricwise {
namespace {

constexpr EngineId kVllm = EngineId::kVllm, kSglang = EngineId::kSglang,
                   kTrtllm = EngineId::kTrtllm;

constexpr WeightFormat kFp8{NumberFormat::kFp8Block};
constexpr WeightFormat kInt4Of128{NumberFormat::kInt4Group, 128};

struct Width {
  std::string row;
  ModelShape model;
  const char* mode;
  const char* share;  // of the refusal; empty: it runs
  EngineId engine = kVllm;
};

void PrintTo(const Width& width, std::ostream* out) {
  *out << width.row << " " << width.mode;
}

ModelShape Experts(int64_t width, const WeightFormat& format) {
  ModelShape model = Preset("Qwen3-235B-A22B");
  model.moe_intermediate_size = width;
  model.expert_weights = format;
  return model;
}

ModelShape Dense(int64_t width, const WeightFormat& format) {
  ModelShape model = Preset("Llama-3.1-70B");
  model.intermediate_size = width;
  model.dense_weights = format;
  return model;
}

constexpr char k192[] = "8 = 192 is not a multiple of fp8 block 128";
constexpr char k576[] = "32 = 576 is not a multiple of fp8 block 128";

std::vector<Width> InEveryEngine() {
  const ModelShape qwen = Preset("Qwen3-235B-A22B-FP8"),
                   minimax = Preset("MiniMax-M2.5"),
                   qwen36 = Experts(512, kFp8), flash = Experts(640, kFp8),
                   deepseek = Preset("DeepSeek-V3"),
                   v4_pro = Experts(3072, kFp8),
                   glm = Experts(1536, kInt4Of128),
                   vl = Dense(29'568, kInt4Of128), kimi = Preset("Kimi-K2.5");
  return {
      {"Qwen3-235B-A22B FP8", qwen, "TP8", k192},
      {"Qwen3-235B-A22B FP8", qwen, "TP4", ""},
      {"Qwen3-235B-A22B FP8", qwen, "TP8+EP8", ""},
      {"Qwen3-235B-A22B FP8", qwen, "DP8", k192},
      {"Qwen3-235B-A22B FP8", qwen, "DP8+EP8", ""},
      {"Qwen3-235B-A22B FP8", qwen, "PP2xTP4", ""},
      {"Qwen3-235B-A22B bf16", Preset("Qwen3-235B-A22B"), "TP8", ""},
      {"MiniMax-M2.x FP8", minimax, "TP8", k192},
      {"MiniMax-M2.x FP8", minimax, "TP4", ""},
      {"MiniMax-M2.x FP8", minimax, "TP8+EP8", ""},
      {"Qwen3.6-35B-A3B FP8", qwen36, "TP8",
       "8 = 64 is not a multiple of fp8 block 128"},
      {"Qwen3.6-35B-A3B FP8", qwen36, "TP4", ""},
      {"Qwen3.6-35B-A3B FP8", qwen36, "TP8+EP8", ""},
      {"Qwen3.8-Flash-Next FP8", flash, "TP2",
       "2 = 320 is not a multiple of fp8 block 128"},
      {"Qwen3.8-Flash-Next FP8", flash, "TP4",
       "4 = 160 is not a multiple of fp8 block 128"},
      {"Qwen3.8-Flash-Next FP8", flash, "TP8",
       "8 = 80 is not a multiple of fp8 block 128"},
      {"Qwen3.8-Flash-Next FP8", flash, "TP2+EP2", ""},
      {"Qwen3.8-Flash-Next FP8", flash, "TP4+EP4", ""},
      {"Qwen3.8-Flash-Next FP8", flash, "TP8+EP8", ""},
      {"DeepSeek-V3 FP8 dense MLP", deepseek, "TP16", ""},
      {"DeepSeek-V3 FP8 experts", deepseek, "TP32",
       "32 = 64 is not a multiple of fp8 block 128"},
      {"DeepSeek-V4-Pro FP8", v4_pro, "TP16",
       "16 = 192 is not a multiple of fp8 block 128"},
      {"DeepSeek-V4-Pro FP8", v4_pro, "TP8", ""},
      {"DeepSeek-V4-Pro FP8", v4_pro, "TP16+EP16", ""},
      {"GLM-4.6 AWQ g128", glm, "TP8",
       "8 = 192 is not a multiple of int4 group 128"},
      {"GLM-4.6 AWQ g128", glm, "TP4", ""},
      {"GLM-4.6 AWQ g128", glm, "TP8+EP8", ""},
      {"Qwen2.5-VL-72B AWQ g128", vl, "TP2",
       "intermediate_size 29568 / TP 2 = 14784 is not a multiple of int4 group "
       "128"},
      {"Qwen2.5-VL-72B AWQ g128", vl, "TP1", ""},
      {"Qwen2.5-VL-72B AWQ g128", vl, "PP2", ""},
      {"Kimi-K2 INT4 g32", kimi, "TP8", ""},
      {"Kimi-K2 INT4 g32", kimi, "TP16", ""},
      {"Kimi-K2 INT4 g32 at the Marlin limit", kimi, "TP32", ""},
  };
}

std::vector<Width> Widths() {
  std::vector<Width> widths;
  for (EngineId engine : ServingEngines()) {
    for (Width width : InEveryEngine()) {
      width.engine = engine;
      widths.push_back(std::move(width));
    }
  }
  const ModelShape deepseek = Preset("DeepSeek-V3"), kimi = Preset("Kimi-K2.5"),
                   qwen = Preset("Qwen3-235B-A22B-FP8");
  const Width more[] = {
      {"DeepSeek-V3 FP8 dense MLP", deepseek, "TP32+EP32", k576, kVllm},
      {"DeepSeek-V3 FP8 dense MLP", deepseek, "TP32+EP32", k576, kSglang},
      // Split into 16, the most that keeps blocks whole.
      {"DeepSeek-V3 FP8 dense MLP", deepseek, "TP32+EP32", "", kTrtllm},
      // Whole on every attention-DP rank, or split over the stage as well.
      {"DeepSeek-V3 FP8 dense MLP", deepseek, "DP32+EP32", "", kVllm},
      {"DeepSeek-V3 FP8 dense MLP", deepseek, "DP32+EP32", k576, kSglang},
      {"Kimi-K2 INT4 g32 past the Marlin limit", kimi, "TP64",
       "64 = 32 is not a multiple of int4 group 64", kVllm},
      {"Kimi-K2 INT4 g32 past the Marlin limit", kimi, "TP64",
       "64 = 32 is not a multiple of int4 group 64", kSglang},
      {"Qwen3-235B-A22B FP8", qwen, "TP8+EP2xMTP4", "", kSglang},
      {"Qwen3-235B-A22B FP8", qwen, "TP8+EP2xMTP4", "", kTrtllm},
  };
  widths.insert(widths.end(), std::begin(more), std::end(more));
  return widths;
}

class Divisibility : public testing::TestWithParam<Width> {};

TEST_P(Divisibility, IsTheLoaders) {
  const Width& row = GetParam();
  ExpectRefusal(row.engine, row.model, row.mode, std::string(row.share));
}

INSTANTIATE_TEST_SUITE_P(Of, Divisibility, testing::ValuesIn(Widths()),
                         [](const testing::TestParamInfo<Width>& of) {
                           const Width& row = of.param;
                           return TestName(
                               absl::StrCat(row.row, " ", row.mode, " in ",
                                            std::string(ToString(row.engine))));
                         });

}  // namespace
}  // namespace fabricwise
