// SPDX-License-Identifier: Apache-2.0
#include "server/base/nearest.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace fabricwise {
namespace {

// Longer than any name of ours; what follows decides nothing.
constexpr size_t kComparedBytes = 128;

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

std::vector<std::string> NearestNames(absl::string_view asked,
                                      const std::vector<std::string>& names,
                                      size_t count) {
  const std::string lower =
      absl::AsciiStrToLower(asked.substr(0, kComparedBytes));
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& name : names) {
    near.emplace_back(Distance(lower, absl::AsciiStrToLower(name)), name);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  std::vector<std::string> nearest;
  for (size_t i = 0; i < std::min(near.size(), count); ++i) {
    nearest.push_back(std::move(near[i].second));
  }
  return nearest;
}

}  // namespace fabricwise
