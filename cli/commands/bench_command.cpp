// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"
#include "cli/execution/open_engine.h"
#include "cli/execution/open_target.h"
#include "cli/inputs/random_layer_inputs.h"
#include "cli/inputs/routed_rows.h"
#include "cli/terminal/table.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::Plan;

// More experts' weights than these are copies: a kernel's time does not depend on it, and a host
// with all of DeepSeek-V3's would need 22 GB.
constexpr int64_t kDistinctExperts = 4;

struct BenchReport {
  std::string target;
  int64_t tokens = 0;
  RoutedRows rows;
  double copy_bytes_per_second = 0.0;
  KernelTimes times;
  runtime::EngineCounters counters;
};

// One kernel's line.
struct Line {
  std::string operation;
  double cool_us = 0.0, hot_us = 0.0;
  compiler::Work work;

  double bytes_per_second() const { return static_cast<double>(work.min_bytes) / cool_us * 1e6; }
  double flops(double microseconds) const {
    return 2.0 * static_cast<double>(work.multiply_adds) / microseconds * 1e6;
  }
};

std::vector<Line> lines_of(const Plan& plan, const BenchReport& report) {
  std::vector<Line> lines;
  for (size_t i = 0; i < plan.kernels.size(); ++i)
    lines.push_back({plan.kernels[i].operation, report.times.cool[i], report.times.hot[i],
                     count_work(plan.kernels[i], plan.layer,
                                {.tokens = report.tokens,
                                 .routed = report.rows.routed,
                                 .padded = report.rows.padded})});
  return lines;
}

std::string text_of(const Plan& plan, const BenchReport& report) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"kernel"},
               {"cool", kRight},
               {"hot", kRight},
               {"least bytes", kRight},
               {"GB/s", kRight},
               {"of copy", kRight},
               {"TFLOP/s cool", kRight},
               {"hot", kRight}});
  for (const Line& line : lines_of(plan, report)) {
    const bool multiplies = line.work.multiply_adds > 0;
    table.add({line.operation, time_text(line.cool_us), time_text(line.hot_us),
               bytes_text(line.work.min_bytes),
               fmt::format("{:.0f}", line.bytes_per_second() * 1e-9),
               fmt::format("{:.2f}", line.bytes_per_second() / report.copy_bytes_per_second),
               multiplies ? fmt::format("{:.0f}", line.flops(line.cool_us) * 1e-12) : "",
               multiplies ? fmt::format("{:.0f}", line.flops(line.hot_us) * 1e-12) : ""});
  }
  return fmt::format(
             "layer \"{}\", target {}, {} tokens, {} routed rows, {} with pad rows\n"
             "copy bandwidth {:.0f} GB/s, bytes read plus bytes written\n\n",
             plan.layer.name, report.target, report.tokens, report.rows.routed, report.rows.padded,
             report.copy_bytes_per_second * 1e-9) +
         table.text() +
         fmt::format("\nforward pass, hot: {}\ncompiled: {}, from cache: {}\n",
                     time_text(report.times.layer_hot), report.counters.compiled,
                     report.counters.from_cache);
}

std::string json_of(const Plan& plan, const BenchReport& report) {
  nlohmann::ordered_json json;
  json["layer"] = plan.layer.name;
  json["target"] = compiler::to_string(plan.target);
  json["device"] = report.target;
  json["tokens"] = report.tokens;
  json["routed_rows"] = report.rows.routed;
  json["padded_rows"] = report.rows.padded;
  json["copy_bytes_per_second"] = report.copy_bytes_per_second;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const Line& line : lines_of(plan, report))
    json["kernels"].push_back(
        {{"operation", line.operation},
         {"cool_us", line.cool_us},
         {"hot_us", line.hot_us},
         {"min_bytes", line.work.min_bytes},
         {"share_of_copy", line.bytes_per_second() / report.copy_bytes_per_second},
         {"multiply_adds", line.work.multiply_adds},
         {"flops_cool", line.flops(line.cool_us)},
         {"flops_hot", line.flops(line.hot_us)}});
  json["forward_hot_us"] = report.times.layer_hot;
  json["compiled"] = report.counters.compiled;
  json["from_cache"] = report.counters.from_cache;
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<OpenedTarget> open_gpu(const BenchCommand& command) {
  const std::string name = command.target == "auto" ? "cuda" : command.target;
  MOEJIT_TRY_ASSIGN(OpenedTarget target, open_target(name, command.seed));
  if (target.device->target().kind == compiler::TargetKind::kCuda) return target;
  return fail(Stage::kCommand, ErrorCode::kUnsupported,
              "bench needs a GPU: the time of a simulator says nothing about a kernel",
              "moejit run shows the simulator's times");
}

Result<int64_t> count_tokens(const BenchCommand& command, const compiler::Layer& layer) {
  if (command.repeat < 1 || command.repeat > 100000)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--repeat is {}, wanted 1 to 100000", command.repeat));
  const int64_t tokens = command.tokens.value_or(layer.max_tokens);
  if (tokens >= 1 && tokens <= layer.max_tokens) return tokens;
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("--tokens is {}, wanted 1 to {} (max_tokens of the layer)", tokens,
                          layer.max_tokens));
}

TensorMap bench_inputs(const compiler::Layer& layer, int64_t tokens, uint64_t seed) {
  TensorMap inputs = random_tokens(layer, tokens, seed);
  inputs.merge(
      random_weights_of(layer, std::min<int64_t>(layer.local_experts, kDistinctExperts), seed));
  return inputs;
}

}  // namespace

Result<void> run_bench(const BenchCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, read_layer(command.layer));
  MOEJIT_TRY_ASSIGN(const int64_t tokens, count_tokens(command, layer));
  MOEJIT_TRY_ASSIGN(const OpenedTarget target, open_gpu(command));
  MOEJIT_TRY_ASSIGN(const Plan plan, compiler::plan_layer(layer, target.device->target()));
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    open_engine(command.cache, terminal));
  const TensorMap inputs = bench_inputs(layer, tokens, command.seed);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<ForwardSession> session,
                    ForwardSession::create(plan, *engine, *target.device, inputs));
  BenchReport report;
  report.target = target.description;
  report.tokens = tokens;
  report.rows = count_routed_rows(layer, inputs);
  MOEJIT_TRY_ASSIGN(report.copy_bytes_per_second,
                    measure_copy_bytes_per_second(*target.device, command.repeat));
  MOEJIT_TRY_ASSIGN(report.times,
                    measure_kernels(*session, *engine, *target.device, command.repeat));
  report.counters = engine->counters();
  terminal.print(command.is_json ? json_of(plan, report) : text_of(plan, report));
  return {};
}

}  // namespace moejit::cli
