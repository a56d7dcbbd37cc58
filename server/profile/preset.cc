// SPDX-License-Identifier: Apache-2.0
#include "server/profile/preset.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/argument.h"
#include "server/base/nearest.h"
#include "server/profile/model_file.h"
#include "server/profile/preset_data.h"

namespace fabricwise {
namespace {

// Names offered where none fits: a line, not a page.
constexpr size_t kSuggestions = 4;

// Repositories of a preset's shape and formats: trained further, or named
// otherwise. What is quantized otherwise or has another vocabulary is not among
// them.
struct Twin {
  absl::string_view repository;
  absl::string_view preset;
};

constexpr Twin kTwins[] = {
    {"deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1"},
    {"deepseek-ai/DeepSeek-R1-Zero", "DeepSeek-R1"},
    {"deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3"},
    {"deepseek-ai/DeepSeek-V3-Base", "DeepSeek-V3"},
    {"deepseek-ai/DeepSeek-V3.1", "DeepSeek-V3"},
    {"deepseek-ai/DeepSeek-V3.1-Base", "DeepSeek-V3"},
    {"deepseek-ai/DeepSeek-V3.1-Terminus", "DeepSeek-V3"},
    {"google/gemma-3-27b-pt", "Gemma-3-27B"},
    {"meta-llama/Llama-3.1-405B-Instruct", "Llama-3.1-405B"},
    {"meta-llama/Llama-3.1-70B-Instruct", "Llama-3.1-70B"},
    {"meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"},
    {"meta-llama/Llama-3.3-70B-Instruct", "Llama-3.1-70B"},
    {"meta-llama/Meta-Llama-3.1-405B", "Llama-3.1-405B"},
    {"meta-llama/Meta-Llama-3.1-405B-Instruct", "Llama-3.1-405B"},
    {"meta-llama/Meta-Llama-3.1-70B", "Llama-3.1-70B"},
    {"meta-llama/Meta-Llama-3.1-70B-Instruct", "Llama-3.1-70B"},
    {"meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B"},
    {"meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"},
    {"mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B"},
    {"moonshotai/Kimi-K2-Base", "Kimi-K2-Instruct"},
    {"moonshotai/Kimi-K2-Instruct-0905", "Kimi-K2-Instruct"},
    {"Qwen/Qwen2.5-72B-Instruct", "Qwen2.5-72B"},
    {"Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen3-235B-A22B"},
    {"Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3-235B-A22B-FP8"},
    {"Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen3-235B-A22B"},
    {"Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "Qwen3-235B-A22B-FP8"},
    {"Qwen/Qwen3-30B-A3B-Base", "Qwen3-30B-A3B"},
    {"Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"},
    {"Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen3-30B-A3B"},
    {"Qwen/Qwen3-8B-Base", "Qwen3-8B"},
    {"Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3-30B-A3B"},
    {"Qwen/Qwen3-Next-80B-A3B-Thinking", "Qwen3-Next-80B-A3B"},
    {"zai-org/GLM-4.5-Air-Base", "GLM-4.5-Air"},
    {"zai-org/GLM-4.5-Base", "GLM-4.5"},
};

absl::string_view WithoutOrganisation(absl::string_view repository) {
  return repository.substr(repository.rfind('/') + 1);
}

std::vector<ModelShape> LoadPresets() {
  std::vector<ModelShape> shapes;
  for (const absl::string_view text : PresetFiles()) {
    auto shape = ParseModelFile(text);
    if (!shape.ok()) {
      // Our own file, checked by a test: a broken build.
      std::fprintf(stderr, "preset: %s\n", shape.status().ToString().c_str());
      std::abort();
    }
    shapes.push_back(*std::move(shape));
  }
  std::sort(shapes.begin(), shapes.end(),
            [](const ModelShape& a, const ModelShape& b) {
              return absl::AsciiStrToLower(a.name) <
                     absl::AsciiStrToLower(b.name);
            });
  return shapes;
}

std::vector<ModelShape> MakeTwins() {
  std::vector<ModelShape> shapes;
  for (const Twin& twin : kTwins) {
    for (const ModelShape& preset : Presets()) {
      if (preset.name != twin.preset) continue;
      ModelShape& shape = shapes.emplace_back(preset);
      shape.name = std::string(WithoutOrganisation(twin.repository));
      shape.repository = std::string(twin.repository);
    }
  }
  return shapes;
}

// The first of `shapes` that is called `name` in one of its ways.
const ModelShape* FindIn(absl::Span<const ModelShape> shapes,
                         absl::string_view name) {
  for (const ModelShape& shape : shapes) {
    if (absl::EqualsIgnoreCase(name, shape.name) ||
        absl::EqualsIgnoreCase(name, shape.repository) ||
        absl::EqualsIgnoreCase(name, WithoutOrganisation(shape.repository))) {
      return &shape;
    }
  }
  return nullptr;
}

}  // namespace

absl::Span<const ModelShape> Presets() {
  static const auto* const presets = new std::vector<ModelShape>(LoadPresets());
  return *presets;
}

absl::Span<const ModelShape> PresetTwins() {
  static const auto* const twins = new std::vector<ModelShape>(MakeTwins());
  return *twins;
}

absl::StatusOr<const ModelShape*> FindPreset(absl::string_view name) {
  for (const absl::Span<const ModelShape> shapes : {Presets(), PresetTwins()}) {
    if (const ModelShape* shape = FindIn(shapes, name)) return shape;
  }
  std::vector<std::string> names;
  for (const ModelShape& shape : Presets()) names.push_back(shape.name);
  return absl::NotFoundError(absl::StrCat(
      "no preset ", Quoted(name), "; nearest: ",
      absl::StrJoin(
          NearestNames(WithoutOrganisation(name), names, kSuggestions), ", "),
      "; any other model is told by its config.json"));
}

}  // namespace fabricwise
