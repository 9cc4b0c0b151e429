// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_report.h"

#include "cli/commands/bench_line.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "runtime/measure/sm_clock.h"
#include "runtime/trial/open_target.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

std::string clock_text(double megahertz) { return fmt::format("{:.0f}", megahertz); }

nlohmann::ordered_json json_of(const BenchLine& line) {
  nlohmann::ordered_json json{{"operation", line.kernel->operation},
                              {"phase", line.kernel->phase},
                              {"cool_us", line.cool.microseconds},
                              {"cool_mhz", line.cool.megahertz},
                              {"hot_us", line.hot.microseconds},
                              {"hot_mhz", line.hot.megahertz},
                              {"clock_of", measure::tells_clock(*line.kernel) ? "kernel" : "probe"},
                              {"hot_launches", line.hot.launches},
                              {"hot_seconds", line.hot.seconds},
                              {"min_bytes", line.work.min_bytes},
                              {"share_of_copy", line.share_of_copy()},
                              {"multiply_adds", line.work.multiply_adds}};
  add_samples(json, line.hot.gpu);
  if (!line.multiplies()) return json;
  json["peak_multiply_adds_per_sm_and_cycle"] = measure::peak_multiply_adds(*line.kernel);
  json["flops_cool"] = line.flops(line.cool.microseconds);
  json["flops_hot"] = line.flops(line.hot.microseconds);
  json["util_cool"] = line.util_cool();
  json["util_hot"] = line.util_hot();
  return json;
}

}  // namespace

std::string bench_table(const compiler::Plan& plan, const BenchReport& report) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"kernel"},
               {"cool", kRight},
               {"MHz", kRight},
               {"hot", kRight},
               {"MHz", kRight},
               {"W", kRight},
               {"least bytes", kRight},
               {"GB/s", kRight},
               {"of copy", kRight},
               {"TFLOP/s cool", kRight},
               {"util", kRight},
               {"TFLOP/s hot", kRight},
               {"util", kRight}});
  for (const BenchLine& line : bench_lines(plan, report)) {
    std::vector<std::string> cells = {line.kernel->operation,
                                      time_text(line.cool.microseconds),
                                      clock_text(line.cool.megahertz),
                                      time_text(line.hot.microseconds),
                                      clock_text(line.hot.megahertz),
                                      watts_text(line.hot.gpu),
                                      bytes_text(line.work.min_bytes),
                                      fmt::format("{:.0f}", line.bytes_per_second() * 1e-9),
                                      fmt::format("{:.2f}", line.share_of_copy())};
    if (line.multiplies()) {
      cells.push_back(fmt::format("{:.0f}", line.flops(line.cool.microseconds) * 1e-12));
      cells.push_back(fmt::format("{:.3f}", line.util_cool()));
      cells.push_back(fmt::format("{:.0f}", line.flops(line.hot.microseconds) * 1e-12));
      cells.push_back(fmt::format("{:.3f}", line.util_hot()));
    }
    table.add(std::move(cells));
  }
  return fmt::format(
             "{} \"{}\", target {}{}{}\n"
             "copy bandwidth {:.0f} GB/s, bytes read plus bytes written\n{}\n",
             kind_of(plan), name_of(plan), report.run.target, rows_text(report.rows),
             trial::routing_text(report.routing), report.copy_bytes_per_second * 1e-9,
             report.tuning ? tuning_text(*report.tuning) + "\n" : "") +
         table.text() + "\n" +
         (report.forward ? fmt::format("forward pass, hot: {} at {} MHz\n",
                                       time_text(report.forward->microseconds),
                                       clock_text(report.forward->megahertz))
                         : "") +
         (report.step ? fmt::format("forward and backward pass, hot: {} at {} MHz\n",
                                    time_text(report.step->microseconds),
                                    clock_text(report.step->megahertz))
                      : "") +
         trial::counters_text(report.run.counters) + "\n";
}

std::string bench_json(const compiler::Plan& plan, const BenchReport& report) {
  nlohmann::ordered_json json;
  json[std::string(kind_of(plan))] = name_of(plan);
  json["description"] = nlohmann::ordered_json::parse(description_of(plan));
  json["target"] = compiler::to_string(plan.target);
  add_run(json, report.run);
  add_tuning(json, report.tuning);
  json["tokens"] = report.rows.tokens;
  json["routed_tokens"] = report.rows.routed_tokens;
  json["routed_rows"] = report.rows.routed;
  json["padded_rows"] = report.rows.padded;
  if (report.routing) json["routing"] = to_string(*report.routing);
  json["copy_bytes_per_second"] = report.copy_bytes_per_second;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const BenchLine& line : bench_lines(plan, report)) json["kernels"].push_back(json_of(line));
  if (report.forward) {
    json["forward_hot_us"] = report.forward->microseconds;
    json["forward_hot_mhz"] = report.forward->megahertz;
  }
  if (report.step) {
    json["step_hot_us"] = report.step->microseconds;
    json["step_hot_mhz"] = report.step->megahertz;
    json["workspace_bytes"] = plan.workspace_bytes;
    json["saved_bytes"] = plan.saved_bytes;
  }
  json["compiled"] = report.run.counters.compiled;
  json["from_cache"] = report.run.counters.from_cache;
  json["from_packs"] = report.run.counters.from_packs;
  return json_output(json);
}

}  // namespace moejit::cli
