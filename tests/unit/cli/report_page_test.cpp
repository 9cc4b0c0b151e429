// SPDX-License-Identifier: Apache-2.0
#include "cli/report/html_page.h"
#include "cli/report/report_text.h"
#include "cli/report/svg_plot.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace moejit::cli {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

TEST(PageText, KeepsWhatXmlHas) {
  for (const char* const text :
       {"", "plain", "tab\tand\nline", "\u00B5s \u2212 \u20AC", "\U0001F600"})
    EXPECT_EQ(page_text(text), text);
}

TEST(PageText, ReplacesBytesThatAreNoCharacters) {
  for (const std::string text :
       {"\xFF", "\x80", "\xC3", "\xE2\x82", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80",
        "\xF4\x90\x80\x80", "\xF5", "\x01", "\x7F", "\xEF\xBF\xBE"}) {
    const std::string clean = page_text("a" + text + "b");
    EXPECT_EQ(clean.substr(0, 4), std::string("a") + kReplacement);
    EXPECT_EQ(clean.back(), 'b');
    for (const char c : std::string_view(clean).substr(1, clean.size() - 2))
      EXPECT_NE(std::string_view(kReplacement).find(c), std::string_view::npos);
  }
  EXPECT_EQ(page_text(std::string_view("a\0b", 3)), std::string("a") + kReplacement + "b");
}

TEST(HtmlPage, EscapesTextAndAttributes) {
  HtmlPage page("<b> & \"q\"", "");
  page.main().add("p", "</p><script>").set("title", "\"><i>");
  const std::string text = page.text();
  EXPECT_NE(text.find("<title>&lt;b&gt; &amp; \"q\"</title>"), std::string::npos) << text;
  EXPECT_EQ(text.find("<i>"), std::string::npos) << text;
  EXPECT_NE(text.find(">&lt;/p&gt;&lt;script&gt;</p>"), std::string::npos) << text;
}

TEST(HtmlPage, EndsElementsWithoutTextByTags) {
  HtmlPage page("title", "");
  page.main().add("td", "");
  EXPECT_NE(page.text().find("<td></td>"), std::string::npos) << page.text();
}

TEST(HtmlPage, CallsNumbersThatAreNotFiniteUnknown) {
  HtmlPage page("title", "");
  Element row = page.main().add("tr");
  add_number(row, std::nullopt, "0");
  add_number(row, std::nan(""), "nan");
  add_number(row, std::numeric_limits<double>::infinity(), "inf");
  add_number(row, 0.1, "0.1 s");
  const std::string text = page.text();
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  EXPECT_EQ(text.find(">inf"), std::string::npos) << text;
  EXPECT_NE(text.find("<data value=\"0.1\">0.1 s</data>"), std::string::npos) << text;
}

TEST(Scale, MapsItsEnds) {
  const Scale linear{.low = 2.0, .high = 4.0, .begin = 100.0, .end = 0.0};
  EXPECT_DOUBLE_EQ(linear.at(2.0), 100.0);
  EXPECT_DOUBLE_EQ(linear.at(3.5), 25.0);
  const Scale log{.low = 1.0, .high = 100.0, .begin = 0.0, .end = 10.0, .is_log = true};
  EXPECT_DOUBLE_EQ(log.at(10.0), 5.0);
  EXPECT_DOUBLE_EQ(log.nearest(1000.0), 100.0);
}

TEST(Scale, HasRoundTicks) {
  EXPECT_EQ(tick_texts(ticks_of({.low = 0.87, .high = 1.13}, 8)),
            (std::vector<std::string>{"0.90", "0.95", "1.00", "1.05", "1.10"}));
  EXPECT_EQ(tick_texts(ticks_of({.low = 0.0, .high = 1400.0}, 5)),
            (std::vector<std::string>{"0", "500", "1000"}));
  EXPECT_EQ(tick_texts(ticks_of({.low = 30.0, .high = 600.0, .is_log = true}, 8)),
            (std::vector<std::string>{"50", "100", "200", "500"}));
  EXPECT_EQ(tick_texts(ticks_of({.low = 1.0, .high = 1e6, .is_log = true}, 8)).size(), 7u);
  const Scale wide = rounded({.low = 0.87, .high = 1.13}, 8);
  EXPECT_NEAR(wide.low, 0.85, 1e-9);
  EXPECT_NEAR(wide.high, 1.15, 1e-9);
}

TEST(ReportText, SaysWhatARatioMeans) {
  EXPECT_EQ(change_text(0.9049), "\u22129.5 %");
  EXPECT_EQ(change_text(1.03), "+3.0 %");
  EXPECT_EQ(change_text(0.99999), "0.0 %");
  EXPECT_EQ(change_range_text(0.895, 0.91), "\u221210.5 to \u22129.0 %");
  EXPECT_EQ(change_range_text(0.0, std::numeric_limits<double>::infinity()), "unknown");
  EXPECT_EQ(shortened("\u00B5\u00B5\u00B5\u00B5", 3), "\u00B5\u00B5\u2026");
  EXPECT_EQ(shortened("abc", 3), "abc");
}

}  // namespace
}  // namespace moejit::cli
