// SPDX-License-Identifier: Apache-2.0
#include "cli/report/bench_report.h"

#include "cli/report/random_text.h"
#include "cli/terminal/output.h"
#include "compiler/support/table.h"
#include "runtime/measure/sm_clock.h"
#include "runtime/trial/open_engine.h"

#include <cstddef>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

std::string clock_text(double megahertz) { return fmt::format("{:.0f}", megahertz); }

nlohmann::ordered_json gpu_json(const BenchRun& run) {
  nlohmann::ordered_json json{{"name", run.gpu}, {"sm_count", run.sm_count}};
  const measure::GpuSettings& settings = run.settings;
  if (settings.driver_version) json["driver"] = *settings.driver_version;
  if (!run.cuda_version.empty()) json["cuda"] = run.cuda_version;
  if (settings.power_limit_watts) json["power_limit_watts"] = *settings.power_limit_watts;
  if (settings.most_megahertz) json["most_mhz"] = *settings.most_megahertz;
  return json;
}

double share_of_peak(const BenchLine& line, const measure::Cycles& taken) {
  return measure::utilization(line.work.multiply_adds, line.sm_count,
                              measure::peak_multiply_adds(*line.kernel), taken);
}

nlohmann::ordered_json json_of(const BenchLine& line) {
  nlohmann::ordered_json json{{"operation", line.kernel->operation},
                              {"phase", line.kernel->phase},
                              {"cool_us", line.cool.microseconds},
                              {"cool_mhz", line.cool.megahertz},
                              {"hot_us", line.hot.microseconds},
                              {"hot_mhz", line.hot.megahertz},
                              {"clock_of", trial::tells_clock(*line.kernel) ? "kernel" : "probe"},
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

// Returns a line on a pass, or nothing if it was not measured.
std::string pass_line(std::string_view name, const std::optional<measure::HotRun>& pass) {
  if (!pass) return {};
  return fmt::format("{}: {} at {} MHz\n", name, time_text(pass->microseconds),
                     clock_text(pass->megahertz));
}

}  // namespace

std::string bench_table(const compiler::Plan& plan, const BenchReport& report) {
  std::vector<Table::Column> columns = {{"kernel"}};
  for (const std::string_view name : kBenchColumns)
    columns.push_back({std::string(name), Table::Align::kRight});
  Table table(std::move(columns));
  for (const BenchLine& line : bench_lines(plan, report)) {
    std::vector<std::string> cells = {line.kernel->operation};
    for (BenchFigure& figure : bench_figures(line)) cells.push_back(std::move(figure.text));
    table.add(std::move(cells));
  }
  return fmt::format(
             "{} \"{}\", target {}{}{}\n"
             "copy bandwidth {:.0f} GB/s, bytes read plus bytes written; reads alone {:.0f} GB/s\n"
             "{}\n",
             kind_of(plan), name_of(plan), report.run.target, rows_text(report.rows),
             random_text(report.random), report.copy_bytes_per_second * 1e-9,
             report.read_bytes_per_second * 1e-9,
             report.tuning ? tuning_text(*report.tuning) + "\n" : "") +
         table.text() + "\n" + pass_line("forward pass, hot", report.forward) +
         pass_line("forward pass in a CUDA graph, hot", report.forward_graph) +
         pass_line("forward and backward pass, hot", report.step) +
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
  if (report.rows.routed_experts) json["routed_experts"] = *report.rows.routed_experts;
  json["padded_rows"] = report.rows.padded;
  add_random(json, report.random);
  json["copy_bytes_per_second"] = report.copy_bytes_per_second;
  json["read_bytes_per_second"] = report.read_bytes_per_second;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const BenchLine& line : bench_lines(plan, report)) json["kernels"].push_back(json_of(line));
  if (report.forward) {
    json["forward_hot_us"] = report.forward->microseconds;
    json["forward_hot_mhz"] = report.forward->megahertz;
  }
  if (report.forward_graph) json["forward_graph_us"] = report.forward_graph->microseconds;
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

double BenchLine::bytes_per_second() const {
  return static_cast<double>(work.min_bytes) / cool.microseconds * 1e6;
}

double BenchLine::share_of_copy() const { return bytes_per_second() / copy_bytes_per_second; }

double BenchLine::flops(double microseconds) const {
  return 2.0 * static_cast<double>(work.multiply_adds) / microseconds * 1e6;
}

double BenchLine::util_cool() const {
  return share_of_peak(*this, {cool.microseconds, cool.megahertz});
}

double BenchLine::util_hot() const {
  return share_of_peak(*this, {hot.microseconds, hot.megahertz});
}

std::vector<BenchLine> bench_lines(const compiler::Plan& plan, const BenchReport& report) {
  std::vector<BenchLine> lines;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i)
    lines.push_back({.kernel = &plan.kernels[i],
                     .cool = report.times.cool[i],
                     .hot = report.times.hot[i],
                     .work = count_work(plan.kernels[i], report.rows),
                     .copy_bytes_per_second = report.copy_bytes_per_second,
                     .sm_count = report.run.sm_count});
  return lines;
}

std::vector<BenchFigure> bench_figures(const BenchLine& line) {
  const auto figure = [](double value, double scale, std::string_view format) {
    return BenchFigure{value, fmt::format(fmt::runtime(format), value * scale)};
  };
  std::vector<BenchFigure> figures = {
      {line.cool.microseconds, time_text(line.cool.microseconds)},
      figure(line.cool.megahertz, 1.0, "{:.0f}"),
      {line.hot.microseconds, time_text(line.hot.microseconds)},
      figure(line.hot.megahertz, 1.0, "{:.0f}"),
      {line.hot.gpu.mean_watts.value_or(0.0), watts_text(line.hot.gpu)},
      {static_cast<double>(line.work.min_bytes), bytes_text(line.work.min_bytes)},
      figure(line.bytes_per_second(), 1e-9, "{:.0f}"),
      figure(line.share_of_copy(), 1.0, "{:.2f}")};
  if (!line.multiplies()) return figures;
  figures.push_back(figure(line.flops(line.cool.microseconds), 1e-12, "{:.0f}"));
  figures.push_back(figure(line.util_cool(), 1.0, "{:.3f}"));
  figures.push_back(figure(line.flops(line.hot.microseconds), 1e-12, "{:.0f}"));
  figures.push_back(figure(line.util_hot(), 1.0, "{:.3f}"));
  return figures;
}

std::string rows_text(const compiler::CallRows& rows) {
  std::string text;
  if (rows.tokens > 0) text += fmt::format(", {} tokens", rows.tokens);
  if (rows.padded > 0)
    text += fmt::format(", {} routed rows, {} with pad rows", rows.routed, rows.padded);
  return text;
}

void add_run(nlohmann::ordered_json& json, const BenchRun& run) {
  json["device"] = run.target;
  json["gpu"] = gpu_json(run);
  json["date"] = run.date;
  json["command_line"] = run.command_line;
  json["moejit"] = MOEJIT_VERSION;
  json["repeat"] = run.repeat;
  json["hot_seconds"] = run.hot_seconds;
}

void add_samples(nlohmann::ordered_json& json, const measure::GpuSamples& gpu) {
  if (gpu.count == 0) return;
  json["hot_gpu_samples"] = gpu.count;
  if (gpu.mean_watts) json["hot_watts"] = *gpu.mean_watts;
  if (gpu.most_watts) json["hot_most_watts"] = *gpu.most_watts;
  if (gpu.mean_megahertz) json["hot_driver_mhz"] = *gpu.mean_megahertz;
  if (gpu.most_degrees) json["hot_most_celsius"] = *gpu.most_degrees;
  json["hot_throttle_reasons"] = gpu.throttle_reasons;
}

std::string watts_text(const measure::GpuSamples& gpu) {
  return gpu.mean_watts ? fmt::format("{:.0f}", *gpu.mean_watts) : "-";
}

}  // namespace moejit::cli
