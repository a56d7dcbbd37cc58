// SPDX-License-Identifier: Apache-2.0
#include "server/profile/csv.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/profile/decimal.h"

namespace fabricwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CsvTable, ReadsCommentsColumnsAndRows) {
  const auto table = CsvTable::Parse(
      "a.csv",
      "# one\r\n#two\n\nm, time_us ,iqr_us\r\n1,2.5,\n# three\n7,3,0\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->comments(), ElementsAre("one", "two", "three"));
  EXPECT_THAT(table->columns(), ElementsAre("m", "time_us", "iqr_us"));
  ASSERT_EQ(table->size(), 2u);
  EXPECT_EQ(table->row(0).Size("m").value(), 1);
  EXPECT_EQ(table->row(0).Seconds("time_us").value(), 2.5e-6);
  EXPECT_EQ(table->row(0).SecondsOrNone("iqr_us").value(), -1);
  EXPECT_EQ(table->row(0).SecondsOrNone("p99_us").value(), -1);
  EXPECT_EQ(table->row(1).SecondsOrNone("iqr_us").value(), 0);
  EXPECT_TRUE(table->HasColumns({"m", "iqr_us"}));
  EXPECT_FALSE(table->HasColumns({"m", "n"}));
}

TEST(CsvTable, ThatIsOffIsRefusedByItsLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "a.csv:0: has no rows"},
      {"# only\n", "a.csv:1: has no rows"},
      {"m,n\n", "a.csv:1: has no rows"},
      {"m,m\n1,2\n", "a.csv:1: a column is named twice"},
      {"m,n\n1,2\n3\n", "a.csv:3: has 1 fields; allowed: 2, one a column"},
      {"m,n\n1,2\n3,4", "a.csv:3: the last line does not end"},
  };
  for (const auto& [content, part] : cases) {
    const absl::Status status = CsvTable::Parse("a.csv", content).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(CsvTable, AFieldThatIsOffIsRefusedByColumnAndValue) {
  const auto table =
      CsvTable::Parse("a.csv", "m,t\n0,x\n9007199254740993,-1\n");
  ASSERT_TRUE(table.ok());
  const auto expect = [](const absl::Status& status, const std::string& text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect(table->row(0).Size("m").status(),
         "a.csv:2: m is '0'; allowed: a whole number from 1 to");
  expect(table->row(1).Size("m").status(), "a.csv:3: m is '9007199254740993'");
  expect(table->row(0).Int("m", 2, 4).status(), "from 2 to 4");
  expect(table->row(0).Seconds("t").status(), "a.csv:2: t is 'x'");
  expect(table->row(1).Seconds("t").status(), "a.csv:3: t is '-1'");
  expect(table->row(1).SecondsOrNone("t").status(), "0 or more");
}

TEST(ParseDecimal, TakesWholeFiniteNumbersOnly) {
  EXPECT_EQ(ParseDecimal("-1.5e3"), -1500);
  for (const absl::string_view text :
       {"", " 1", "1 ", "1x", "+1", "0x10", "inf", "nan", "1e999", "1e"}) {
    EXPECT_EQ(ParseDecimal(text), std::nullopt) << text;
  }
}

TEST(SecondsFromMicros, GivesTheDoubleNearestToTheDecimalNumber) {
  EXPECT_EQ(SecondsFromMicros("6.77591"), 6.77591e-6);
  EXPECT_EQ(SecondsFromMicros("1.2e+07"), 12.0);
  EXPECT_EQ(SecondsFromMicros("1e-7"), 1e-13);
  EXPECT_EQ(SecondsFromMicros("x"), std::nullopt);
  EXPECT_EQ(SecondsFromMicros("1e308"), 1e302);
  for (const double micros : {6.77591, 841.6676, 1e-3, 123456789.0}) {
    EXPECT_DOUBLE_EQ(SecondsFromMicros(micros), micros / 1e6);
  }
  EXPECT_EQ(SecondsFromMicros(445.37732), 445.37732e-6);
}

}  // namespace
}  // namespace fabricwise
