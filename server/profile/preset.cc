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

}  // namespace

absl::Span<const ModelShape> Presets() {
  static const auto* const presets = new std::vector<ModelShape>(LoadPresets());
  return *presets;
}

absl::StatusOr<const ModelShape*> FindPreset(absl::string_view name) {
  for (const ModelShape& shape : Presets()) {
    if (absl::EqualsIgnoreCase(name, shape.name)) return &shape;
  }
  std::vector<std::string> names;
  for (const ModelShape& shape : Presets()) names.push_back(shape.name);
  return absl::NotFoundError(absl::StrCat(
      "no preset ", Quoted(name), "; nearest: ",
      absl::StrJoin(NearestNames(name, names, kSuggestions), ", ")));
}

}  // namespace fabricwise
