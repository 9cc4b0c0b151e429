// SPDX-License-Identifier: Apache-2.0
// Figures made up so that what the page derives from them is known by hand.
#include "cli/report/bench_page.h"

#include "cli/report/bench_report.h"
#include "compiler/support/file.h"
#include "tests/support/matchers.h"
#include "tests/unit/cli/two_kernel_bench.h"

#include <gtest/gtest.h>
#include <pugixml.hpp>

namespace moejit::cli {
namespace {

using compiler::Plan;

BenchReport page_report() {
  BenchReport report = two_kernel_report("moejit bench layer.json --report page.html");
  report.run.settings = {.most_megahertz = 2000};
  report.times.hot[1].gpu = {
      .count = 30, .mean_watts = 650.0, .throttle_reasons = {"sw_power_cap"}};
  return report;
}

// A page that was read back.
struct Page {
  explicit Page(const std::string& html) : source(html) {
    const pugi::xml_parse_result read =
        document.load_string(html.c_str(), pugi::parse_default | pugi::parse_doctype);
    EXPECT_TRUE(read) << read.description();
  }
  std::vector<std::string> texts(const char* path) const {
    std::vector<std::string> texts;
    for (const pugi::xpath_node& found : document.select_nodes(path))
      texts.emplace_back(found.node().text().get());
    return texts;
  }
  std::vector<double> numbers(const char* path, const char* attribute) const {
    std::vector<double> numbers;
    for (const pugi::xpath_node& found : document.select_nodes(path))
      numbers.push_back(found.node().attribute(attribute).as_double());
    return numbers;
  }
  // Returns the place of a value on an axis whose ticks "0.0" and "1.0" are both drawn.
  double x_of_share(double share) const {
    const auto at = [&](const char* tick) {
      const std::string path = std::string("(//svg)[1]/text[. = '") + tick + "']";
      return document.select_node(path.c_str()).node().attribute("x").as_double();
    };
    return at("0.0") + share * (at("1.0") - at("0.0"));
  }

  std::string source;
  pugi::xml_document document;
};

TEST(BenchPage, HasTheNumbersOfTheJson) {
  const Plan made_up = two_kernel_plan();
  const Page page(bench_report_html(made_up, page_report()));
  const std::vector<BenchLine> lines = bench_lines(made_up, page_report());
  const std::vector<double> gemm = page.numbers("(//tr[@class='line'])[2]//data", "value");
  EXPECT_EQ(gemm, (std::vector<double>{4.0, 1280.0, 8.0, 640.0, 650.0,
                                       static_cast<double>(lines[1].work.min_bytes),
                                       lines[1].bytes_per_second(), lines[1].share_of_copy(),
                                       524.288e12, 0.5, 262.144e12, 0.5}));
  // w1 [1, 1024, 1024]: 2 bytes read and 1 written for each element, a scale for each 128 x 128.
  const double bytes = 3.0 * 1024 * 1024 + 4 * 64;
  const std::vector<double> quantize = page.numbers("(//tr[@class='line'])[1]//data", "value");
  ASSERT_EQ(quantize.size(), 7u);
  EXPECT_EQ(quantize[4], bytes);
  EXPECT_DOUBLE_EQ(quantize[6], bytes / 10e-6 / 4e12);
  EXPECT_EQ(page.numbers("//dd/data", "value"), (std::vector<double>{100.0, 90.0, 4e12, 4.25e12}));
  EXPECT_EQ(page.texts("//dd/data").front(), "100.0 \u00B5s at 1500 MHz");
}

TEST(BenchPage, HasACellBelowEachHeading) {
  const Page page(bench_report_html(two_kernel_plan(), page_report()));
  const size_t headings = page.texts("//table[@class='dense']/thead/tr/th").size();
  EXPECT_EQ(headings, 14u);
  EXPECT_EQ(page.texts("(//tr[@class='line'])[1]/td").size(), headings);
  EXPECT_EQ(page.texts("(//tr[@class='line'])[2]/td").size(), headings);
  EXPECT_EQ(page.numbers("//th[@class='group']", "colspan"), (std::vector<double>{14, 14}));
}

TEST(BenchPage, DrawsBarsAsLongAsTheirShares) {
  const Page page(bench_report_html(two_kernel_plan(), page_report()));
  const char* const bars =
      "(//svg)[1]/rect[contains(@class, 'tensor') and contains(@class, 'bar')]";
  const std::vector<double> begins = page.numbers(bars, "x"), widths = page.numbers(bars, "width");
  ASSERT_EQ(widths.size(), 4u);  // hot and cool: times, then shares
  EXPECT_NEAR(widths[1] / widths[0], 4.0 / 8.0, 1e-3);
  EXPECT_NEAR(begins[2] + widths[2], page.x_of_share(0.5), 0.1);
  EXPECT_NEAR(begins[3] + widths[3], page.x_of_share(0.5), 0.1);
}

TEST(BenchPage, PutsKernelsThatMultiplyBelowTheCeilings) {
  const Page page(bench_report_html(two_kernel_plan(), page_report()));
  EXPECT_EQ(page.texts("//svg[contains(@aria-label, 'Roofline')]/text[@class='code']"),
            std::vector<std::string>{"gemm_fc1"});
  // 2 x 4096 x 100 SMs x 2000 MHz.
  EXPECT_NE(page.source.find("tensor cores, e4m3: 1638 TFLOP/s at 2000 MHz"), std::string::npos);
  EXPECT_NE(page.source.find("copy: 4000 GB/s"), std::string::npos);
  const double roof = page.numbers("//line[contains(@class, 'ceiling')]", "y1").at(0);
  const double cool = page.numbers("//circle[contains(@class, 'mark')]", "cy").at(0);
  EXPECT_GT(cool, roof);
}

TEST(BenchPage, TellsWhatIsUnknown) {
  BenchReport unknown = page_report();
  unknown.run.settings = {};
  unknown.forward.reset();
  for (measure::CoolRun& run : unknown.times.cool) run.megahertz = 0.0;
  for (measure::HotRun& run : unknown.times.hot) run = {.microseconds = run.microseconds};
  const Page page(bench_report_html(two_kernel_plan(), unknown));
  EXPECT_NE(page.source.find("Clock: unknown. Power: unknown."), std::string::npos);
  EXPECT_NE(page.source.find("at a clock, which is unknown"), std::string::npos);
  EXPECT_EQ(page.texts("(//tr[@class='line'])[2]/td[contains(@class, 'unknown')]").size(), 5u);
  for (const char* const wrong : {">nan", ">inf", "\"nan", "\"inf", "-nan", ">0 MHz"})
    EXPECT_EQ(page.source.find(wrong), std::string::npos) << wrong;
}

TEST(BenchPage, EscapesNamesAndLoadsNothing) {
  BenchReport odd = page_report();
  odd.run.command_line = "moejit bench '</td><script>\xFF\x01'";
  Plan named = two_kernel_plan();
  named.layer->name = "<script>alert(1)</script> & \xC3\x28";
  const Page page(bench_report_html(named, odd));
  EXPECT_EQ(page.texts("//h1").front(), "layer \"<script>alert(1)</script> & \xEF\xBF\xBD(\"");
  EXPECT_NE(page.source.find("&lt;/td&gt;&lt;script&gt;\xEF\xBF\xBD\xEF\xBF\xBD'"),
            std::string::npos);
  for (const char* const wrong : {"<script", "http:", "https:", "<link", "<img", "url("})
    EXPECT_EQ(page.source.find(wrong), std::string::npos) << wrong;
}

TEST(BenchPage, IsWrittenWhereItsNameSays) {
  const testing::TestDir folder;
  const std::string path = (folder.path() / "page.html").string();
  EXPECT_TRUE(testing::succeeded(write_bench_report("", two_kernel_plan(), page_report())));
  EXPECT_TRUE(testing::succeeded(write_bench_report(path, two_kernel_plan(), page_report())));
  EXPECT_EQ(read_text_file(path).value(), bench_report_html(two_kernel_plan(), page_report()));
  const Result<void> refused =
      write_bench_report("/nowhere/page.html", two_kernel_plan(), page_report());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kFileWrite);
}

}  // namespace
}  // namespace moejit::cli
