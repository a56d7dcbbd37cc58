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
#include "server/profile/model_file.h"
#include "server/profile/preset_data.h"

namespace fabricwise {
namespace {

// Names offered where none fits: a line, not a page.
constexpr size_t kSuggestions = 4;
// More of a name than any preset has; bounds the work on a hostile one.
constexpr size_t kComparedBytes = 64;

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

// Insertions, deletions and replacements between two names; text added at the
// end of `asked` or missing there costs least, as in "Llama-3.1" or
// "gpt-oss-120b-mxfp4".
int Distance(absl::string_view asked, absl::string_view name) {
  constexpr int kEdit = 4, kTail = 1;
  std::vector<int> row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) {
    row[j] = static_cast<int>(j) * (asked.empty() ? kTail : kEdit);
  }
  for (size_t i = 1; i <= asked.size(); ++i) {
    int diagonal = row[0];
    row[0] += kEdit;
    for (size_t j = 1; j <= name.size(); ++j) {
      const int replaced = diagonal + (asked[i - 1] == name[j - 1] ? 0 : kEdit);
      const int added = row[j] + (j == name.size() ? kTail : kEdit);
      const int missing = row[j - 1] + (i == asked.size() ? kTail : kEdit);
      diagonal = row[j];
      row[j] = std::min({replaced, added, missing});
    }
  }
  return row[name.size()];
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
  const std::string asked =
      absl::AsciiStrToLower(name.substr(0, kComparedBytes));
  std::vector<std::pair<int, std::string>> near;
  for (const ModelShape& shape : Presets()) {
    near.emplace_back(Distance(asked, absl::AsciiStrToLower(shape.name)),
                      shape.name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  near.resize(std::min(near.size(), kSuggestions));
  return absl::NotFoundError(absl::StrCat(
      "no preset ", Quoted(name), "; nearest: ",
      absl::StrJoin(near, ", ", [](std::string* out, const auto& entry) {
        out->append(entry.second);
      })));
}

}  // namespace fabricwise
