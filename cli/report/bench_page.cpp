// SPDX-License-Identifier: Apache-2.0
#include "cli/report/bench_page.h"

#include "cli/report/bench_report.h"
#include "cli/report/html_page.h"
#include "cli/report/kernel_bars.h"
#include "cli/report/report_text.h"
#include "cli/report/roofline_plot.h"
#include "compiler/support/file.h"
#include "runtime/trial/open_engine.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

// Returns "1.23 ms at 1402 MHz".
std::string pass_text(const measure::HotRun& run) {
  return fmt::format("{} at {}", known_time_text(known(run.microseconds)),
                     known_text(known(run.megahertz), "{:.0f} MHz"));
}

void add_summary(Element main, const BenchReport& report) {
  const double copy = report.copy_bytes_per_second;
  std::vector<Fact> facts;
  if (report.forward)
    facts.push_back(
        {"forward pass, hot", pass_text(*report.forward), known(report.forward->microseconds)});
  if (report.forward_graph)
    facts.push_back({"forward pass in a CUDA graph, hot", pass_text(*report.forward_graph),
                     known(report.forward_graph->microseconds)});
  if (report.step)
    facts.push_back({"forward and backward pass, hot", pass_text(*report.step),
                     known(report.step->microseconds)});
  facts.push_back({"copy bandwidth, read plus written",
                   known(copy) ? fmt::format("{:.0f} GB/s", copy * 1e-9) : "unknown", known(copy)});
  const double read = report.read_bytes_per_second;
  facts.push_back({"bandwidth of reads alone",
                   known(read) ? fmt::format("{:.0f} GB/s", read * 1e-9) : "unknown", known(read)});
  add_facts(main, facts);
}

void add_times(Element main, const std::vector<BenchLine>& lines) {
  main.add("h2", "Time of each kernel");
  draw_times(
      add_figure(main,
                 "Hot: many launches back to back. Cool: single launches after the caches were "
                 "emptied; the numbers are of hot launches. Right: kernels that multiply are "
                 "compared with the tensor cores in the cycles that they took, the others, while "
                 "cool, with the device's own copy."),
      lines);
}

void add_roofline(Element main, const BenchReport& report, const std::vector<BenchLine>& lines) {
  if (std::ranges::none_of(lines, &is_on_roofline)) return;
  const std::optional<RoofClock> clock = roof_clock(report.run, lines);
  main.add("h2", "Roofline");
  draw_roofline(
      add_figure(main,
                 fmt::format("Kernels that multiply; both axes are logarithmic. The slope is the "
                             "copy bandwidth of this run. The ceiling is what all tensor cores do "
                             "at {}; under the power limit the clock is lower.",
                             clock ? clock->source : "a clock, which is unknown")),
      lines, clock);
}

void add_clocks(Element main, const std::vector<BenchLine>& lines) {
  main.add("h2", "Clock and power");
  if (!tells_clock_or_power(lines)) {
    main.add("p", "Clock: unknown. Power: unknown.").set("class", "note");
    return;
  }
  draw_kernel_clocks(add_figure(main,
                                "The numbers are of hot launches. Kernels that multiply count "
                                "their clock themselves, probes tell that of the others."),
                     lines);
}

void add_kernel(Element body, const BenchLine& line) {
  Element row = body.add("tr").set("class", "line");
  row.add("td", line.kernel->operation).set("class", "choices");
  const std::vector<BenchFigure> figures = bench_figures(line);
  for (const BenchFigure& figure : figures)
    add_number(row, known(figure.value), with_micro_sign(figure.text));
  for (std::size_t i = figures.size(); i < kBenchColumns.size(); ++i) add_no_number(row);
  std::string reasons;
  for (const std::string_view reason : line.hot.gpu.throttle_reasons)
    reasons += fmt::format("{}{}", reasons.empty() ? "" : ", ", reason);
  row.add("td", line.hot.gpu.count == 0 ? "unknown" : reasons.empty() ? "none" : reasons);
}

void add_kernels(Element main, const std::vector<BenchLine>& lines) {
  main.add("h2", "All figures");
  std::vector<Heading> headings = {{"kernel"}};
  for (const std::string_view name : kBenchColumns) headings.push_back({name, true});
  headings.push_back({"clock held down by"});
  Element body = add_table(main, headings, "dense");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i == 0 || lines[i].kernel->phase != lines[i - 1].kernel->phase)
      body.add("tr")
          .add("th", lines[i].kernel->phase)
          .set("class", "group")
          .set("scope", "colgroup")
          .set("colspan", std::string_view(std::to_string(headings.size())));
    add_kernel(body, lines[i]);
  }
}

void add_run(Element main, const BenchRun& run) {
  main.add("h2", "How it was measured");
  Element body = add_table(main, {{""}, {""}});
  const auto add = [&](std::string_view name, std::string_view text) {
    Element row = body.add("tr");
    row.add("th", name).set("scope", "row");
    row.add("td", text.empty() ? "unknown" : text);
  };
  const measure::GpuSettings& settings = run.settings;
  add("command", run.command_line);
  add("moejit", MOEJIT_VERSION);
  add("date", run.date);
  add("device", run.target);
  add("SMs", fmt::format("{}", run.sm_count));
  add("driver", settings.driver_version.value_or(""));
  add("CUDA of the driver", run.cuda_version);
  add("power limit", known_text(settings.power_limit_watts, "{:.0f} W"));
  add("highest clock",
      settings.most_megahertz ? fmt::format("{} MHz", *settings.most_megahertz) : "unknown");
  add("cool launches of a kernel", fmt::format("{}", run.repeat));
  add("hot launches of a kernel", fmt::format("for {} s at least", run.hot_seconds));
  add("kernels", trial::counters_text(run.counters));
}

}  // namespace

std::string bench_report_html(const compiler::Plan& plan, const BenchReport& report) {
  const std::vector<BenchLine> lines = bench_lines(plan, report);
  HtmlPage page(fmt::format("{} \"{}\"", kind_of(plan), name_of(plan)),
                fmt::format("measured {} on {}{}", report.run.date, report.run.target,
                            rows_text(report.rows)));
  add_summary(page.main(), report);
  add_times(page.main(), lines);
  add_roofline(page.main(), report, lines);
  add_clocks(page.main(), lines);
  add_kernels(page.main(), lines);
  add_run(page.main(), report.run);
  return page.text();
}

Result<void> write_bench_report(const std::string& path, const compiler::Plan& plan,
                                const BenchReport& report) {
  if (path.empty()) return {};
  return write_file(path, bench_report_html(plan, report));
}

}  // namespace moejit::cli
