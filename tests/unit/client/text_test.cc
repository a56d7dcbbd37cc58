// SPDX-License-Identifier: Apache-2.0
#include "client/render/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "client/render/plot.h"
#include "client/render/style.h"
#include "client/render/table.h"
#include "client/render/units.h"

namespace fabricwise {
namespace {

constexpr Style kUnicode = {false, true, 80};
constexpr Style kPipe = {false, false, 0};

TEST(Printable, KeepsTextAndReplacesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("Qwen3 模型 é"), "Qwen3 模型 é");
  EXPECT_EQ(Printable("a\x1b[31mb\r\n\x7f"), "a?[31mb???");
  EXPECT_EQ(Printable("\xc2\x9b"), "?");             // C1 control
  EXPECT_EQ(Printable("\xe2\x80\xae"), "?");         // right-to-left override
  EXPECT_EQ(Printable("\xff\xc0\x80"), "???");       // no UTF-8 at all
  EXPECT_EQ(Printable("\xed\xa0\x80"), "???");       // a surrogate
  EXPECT_EQ(Printable("ok\xe6\xa8"), "ok??");        // cut short
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "????");  // beyond Unicode
}

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("TP8"), 3);
  EXPECT_EQ(DisplayWidth("é"), 1);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1);
  EXPECT_EQ(DisplayWidth("模型"), 4);
  EXPECT_EQ(DisplayWidth("🚀"), 2);
  EXPECT_EQ(DisplayWidth("█▌"), 2);
}

TEST(Fitted, CutsByColumnsAndMarksTheCut) {
  EXPECT_EQ(Fitted(kUnicode, "abcdef", 6), "abcdef");
  EXPECT_EQ(Fitted(kUnicode, "abcdefg", 6), "abcde…");
  EXPECT_EQ(Fitted(kPipe, "abcdefg", 6), "abcd..");
  EXPECT_EQ(Fitted(kUnicode, "模型模型", 6), "模型…");
}

TEST(Wrapped, BreaksAtSpacesAndKeepsUnitsWithTheirNumbers) {
  EXPECT_EQ(Wrapped("one two three", 7),
            (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(Wrapped("it is 14 %, or so", 8),
            (std::vector<std::string>{"it is", "14 %, or", "so"}));
  EXPECT_EQ(Wrapped("abcdefghij", 4),
            (std::vector<std::string>{"abcd", "efgh", "ij"}));
  EXPECT_EQ(Wrapped("a b", 0), (std::vector<std::string>{"a b"}));
  EXPECT_EQ(Wrapped("", 10), (std::vector<std::string>{""}));
}

TEST(Paragraph, IndentsWhatFollowsItsLabel) {
  EXPECT_EQ(Paragraph({false, false, 26}, "label ", "one two three four five"),
            "label one two three four\n      five\n");
}

TEST(FormatNumber, HasThreeDigitsAndNoExponent) {
  EXPECT_EQ(FormatNumber(0), "0");
  EXPECT_EQ(FormatNumber(0.012345), "0.0123");
  EXPECT_EQ(FormatNumber(1.25), "1.25");
  EXPECT_EQ(FormatNumber(9.999), "10.0");
  EXPECT_EQ(FormatNumber(78), "78.0");
  EXPECT_EQ(FormatNumber(999.7), "1,000");
  EXPECT_EQ(FormatNumber(1007), "1,007");
  EXPECT_EQ(FormatNumber(12345), "12,345");
  EXPECT_EQ(FormatNumber(1234567), "1,230,000");
  EXPECT_EQ(FormatNumber(-2.5), "-2.50");
  EXPECT_EQ(FormatNumber(std::nan("")), "-");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(FormatNumber(1e300), "1e+300");
}

TEST(FormatSeconds, PicksTheUnit) {
  EXPECT_EQ(FormatSeconds(7.63e-6), "7.63 us");
  EXPECT_EQ(FormatSeconds(999.9e-6), "1.00 ms");
  EXPECT_EQ(FormatSeconds(1.007e-3), "1.01 ms");
  EXPECT_EQ(FormatSeconds(12.3), "12.3 s");
  EXPECT_EQ(FormatRoundSeconds(1e-3), "1 ms");
  EXPECT_EQ(FormatRoundSeconds(500e-6), "500 us");
}

TEST(FormatBytes, IsExactForPowersOfTwo) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(14336), "14 KiB");
  EXPECT_EQ(FormatBytes(229376), "224 KiB");
  EXPECT_EQ(FormatBytes(1835008), "1.75 MiB");
  EXPECT_EQ(FormatBytes(1048575), "1.00 MiB");
}

TEST(FormatPercent, SaysNoMoreThanIsKnown) {
  EXPECT_EQ(FormatPercent(0.142), "14 %");
  EXPECT_EQ(FormatPercent(0.083), "8.3 %");
  EXPECT_EQ(FormatPercent(0), "0 %");
  EXPECT_EQ(FormatChange(0.12), "+12 %");
  EXPECT_EQ(FormatChange(-0.031), "-3.1 %");
  EXPECT_EQ(FormatChange(0.0001), "0 %");
}

TEST(FormatAge, GoesFromMinutesToDays) {
  absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_EQ(FormatAge(absl::UnixEpoch(), now), "at a time not known");
  EXPECT_EQ(FormatAge(now + absl::Seconds(5), now), "just now");
  EXPECT_EQ(FormatAge(now + absl::Hours(5), now),
            "in the future by this clock");
  EXPECT_EQ(FormatAge(now - absl::Minutes(5), now), "5 min ago");
  EXPECT_EQ(FormatAge(now - absl::Hours(47), now), "47 h ago");
  EXPECT_EQ(FormatAge(now - absl::Hours(48), now), "2 days ago");
}

TEST(Table, AlignsAndLeavesEmptyColumnsOut) {
  Table table({{"name"}, {"n", Align::kRight}, {"empty"}});
  table.Add({{"a"}, {"1"}, {}});
  table.Add({{"bcdef"}, {"23"}, {}});
  EXPECT_EQ(table.Render(kPipe), " name    n\n a       1\n bcdef  23\n");
  EXPECT_EQ(Table({{"x"}}).Render(kPipe), "");
}

TEST(Table, DropsTheMostExpendableColumnFirst) {
  Table table({{"aaaa"}, {"bbbb", Align::kLeft, 1}, {"cccc", Align::kLeft, 2}});
  table.Add({{"1"}, {"2"}, {"3"}});
  EXPECT_EQ(table.Render({false, false, 12}), " aaaa  bbbb\n 1     2\n");
  EXPECT_EQ(table.Render({false, false, 6}), " aaaa\n 1\n");
}

TEST(Bar, CountsEighthsOfACell) {
  EXPECT_EQ(Bar(kUnicode, 0.5, 4), "██");
  EXPECT_EQ(Bar(kUnicode, 0.53125, 4), "██▏");
  EXPECT_EQ(Bar(kUnicode, 7, 2), "██");
  EXPECT_EQ(Bar(kPipe, 0.5, 4), "##");
  EXPECT_EQ(Bar(kUnicode, std::nan(""), 4), "");
}

TEST(StyleFor, FollowsTerminalChoiceAndEnvironment) {
  TerminalFacts terminal = {true, 90, "xterm", "en_US.UTF-8", false};
  Style rich = StyleFor(terminal, StyleChoice::kAuto);
  EXPECT_TRUE(rich.color && rich.unicode);
  EXPECT_EQ(rich.width, 90);

  terminal.no_color = true;
  EXPECT_FALSE(StyleFor(terminal, StyleChoice::kAuto).color);
  EXPECT_TRUE(StyleFor(terminal, StyleChoice::kAuto).unicode);
  terminal = {true, 90, "dumb", "C", false};
  EXPECT_FALSE(StyleFor(terminal, StyleChoice::kAuto).color);
  EXPECT_FALSE(StyleFor(terminal, StyleChoice::kAuto).unicode);
  terminal = {true, 5, "xterm", "C.utf8", false};
  EXPECT_EQ(StyleFor(terminal, StyleChoice::kAuto).width, 40);
  EXPECT_FALSE(StyleFor(terminal, StyleChoice::kNever).color);

  TerminalFacts pipe = {false, 0, "xterm", "C.UTF-8", false};
  Style plain = StyleFor(pipe, StyleChoice::kAuto);
  EXPECT_FALSE(plain.color || plain.unicode);
  EXPECT_EQ(plain.width, 0);
  EXPECT_TRUE(StyleFor(pipe, StyleChoice::kAlways).color);
  EXPECT_EQ(StyleFor(pipe, StyleChoice::kAlways).width, 100);
}

TEST(RenderLogLogPlot, RefusesWhatHasNoLogarithm) {
  LogLogPlot plot;
  plot.format_x = FormatBytes;
  plot.format_y = FormatSeconds;
  EXPECT_EQ(RenderLogLogPlot(kUnicode, plot), "");
  plot.points = {{1, 0}};
  EXPECT_EQ(RenderLogLogPlot(kUnicode, plot), "");
  plot.points = {{4096, 1e-5}, {1024, 1e-5}};
  EXPECT_EQ(RenderLogLogPlot(kUnicode, plot), "");
  plot.points = {{4096, 1e-5}};
  EXPECT_NE(RenderLogLogPlot(kUnicode, plot).find("●"), std::string::npos);
}

TEST(Sparkline, RisesWithTheCurve) {
  EXPECT_EQ(Sparkline(kUnicode, {{1, 1}, {128, 128}}, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(Sparkline(kUnicode, {{1, 5}, {128, 5}}, 3), "▁▁▁");
  EXPECT_EQ(Sparkline(kPipe, {{1, 1}, {2, 2}}, 3), "");
}

}  // namespace
}  // namespace fabricwise
