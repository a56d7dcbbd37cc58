// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/catalogue.h"

#include <cctype>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fabricwise {
namespace {

TEST(Catalogue, NamesEachMetricOnceInThePrometheusForm) {
  std::set<std::string> names;
  std::set<Metric> ids;
  for (const MetricSpec& spec : Catalogue()) {
    const std::string name = spec.name;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(ids.insert(spec.id).second) << name;
    for (const char c : name) {
      EXPECT_TRUE(std::islower(c) || std::isdigit(c) || c == '_') << name;
    }
    EXPECT_TRUE(absl::StartsWith(name, "fabricwise_") ||
                absl::StartsWith(name, "process_"))
        << name;
    EXPECT_EQ(spec.kind == MetricKind::kCounter, absl::EndsWith(name, "_total"))
        << name;
    if (absl::StrContains(spec.unit, "seconds")) {
      EXPECT_TRUE(absl::StrContains(name, "_seconds")) << name;
    }
    if (std::string(spec.unit) == "bytes") {
      EXPECT_TRUE(absl::EndsWith(name, "_bytes")) << name;
    }
    EXPECT_TRUE(absl::EndsWith(spec.help, ".")) << name;
  }
}

TEST(Catalogue, IsWhatTheDocumentSays) {
  std::ifstream file("docs/metrics.md");
  ASSERT_TRUE(file) << "run from the root of the tree";
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), CatalogueMarkdown())
      << "print it anew: fabricwised --print-metrics > docs/metrics.md";
}

}  // namespace
}  // namespace fabricwise
