// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"
#include "cli/commands/bench_report.h"
#include "cli/commands/commands.h"
#include "cli/commands/layer_file.h"
#include "cli/execution/open_engine.h"
#include "cli/execution/open_target.h"
#include "cli/inputs/random_layer_inputs.h"
#include "cli/inputs/routed_rows.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using compiler::Plan;

// More experts' weights than these are copies: a kernel's time does not depend on it, and a host
// with all of DeepSeek-V3's would need 22 GB.
constexpr int64_t kDistinctExperts = 4;

Result<OpenedTarget> open_gpu(const BenchCommand& command) {
  const std::string name = command.target == "auto" ? "cuda" : command.target;
  MOEJIT_TRY_ASSIGN(OpenedTarget target, open_target(name, command.seed));
  if (target.device->target().kind == compiler::TargetKind::kCuda) return target;
  return fail(Stage::kCommand, ErrorCode::kUnsupported,
              "bench needs a GPU: the time of a simulator says nothing about a kernel",
              "moejit run shows the simulator's times");
}

Result<void> check_options(const BenchCommand& command) {
  if (command.repeat < 1 || command.repeat > 100000)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--repeat is {}, wanted 1 to 100000", command.repeat));
  if (!(command.hot_seconds >= 0.001 && command.hot_seconds <= 60.0))
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--hot-seconds is {}, wanted 0.001 to 60", command.hot_seconds));
  return {};
}

Result<int64_t> count_tokens(const BenchCommand& command, const compiler::Layer& layer) {
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

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

Result<void> measure(const BenchCommand& command, ForwardSession& session, runtime::Engine& engine,
                     runtime::Device& device, BenchReport& report) {
  MOEJIT_TRY_ASSIGN(ClockProbe probe, ClockProbe::create(engine, device));
  MOEJIT_TRY_ASSIGN(report.copy_bytes_per_second,
                    measure_copy_bytes_per_second(device, command.repeat));
  const runtime::GpuFacts facts = device.gpu_facts();
  const std::unique_ptr<GpuMonitor> monitor = GpuMonitor::open(facts.pci_bus_id);
  report.cuda_version = facts.cuda_version;
  if (monitor != nullptr) report.settings = monitor->settings();
  MOEJIT_TRY_ASSIGN(report.times.cool,
                    measure_cool(session, engine, device, probe, command.repeat));
  const double seconds = command.hot_seconds;
  MOEJIT_TRY_ASSIGN(report.times.hot, measure_hot(session, device, probe, seconds, monitor.get()));
  MOEJIT_TRY_ASSIGN(report.forward,
                    measure_forward(session, device, probe, seconds, monitor.get()));
  return {};
}

}  // namespace

Result<void> run_bench(const BenchCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const compiler::Layer layer, read_layer(command.layer));
  MOEJIT_TRY(check_options(command));
  MOEJIT_TRY_ASSIGN(const int64_t tokens, count_tokens(command, layer));
  MOEJIT_TRY_ASSIGN(const OpenedTarget target, open_gpu(command));
  runtime::Device& device = *target.device;
  MOEJIT_TRY_ASSIGN(const Plan plan,
                    compiler::plan_layer(layer, device.target(), {.measure_gemms = true}));
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    open_engine(command.cache, terminal));
  const TensorMap inputs = bench_inputs(layer, tokens, command.seed);
  const RoutedRows rows = count_routed_rows(layer, inputs);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<ForwardSession> session,
                    ForwardSession::create(plan, *engine, device, inputs));
  BenchReport report{.command_line = command.command_line,
                     .date = utc_now(),
                     .target = target.description,
                     .gpu = device.name(),
                     .sm_count = device.sm_count(),
                     .repeat = command.repeat,
                     .hot_seconds = command.hot_seconds,
                     .rows = {.tokens = tokens, .routed = rows.routed, .padded = rows.padded}};
  MOEJIT_TRY(measure(command, *session, *engine, device, report));
  report.counters = engine->counters();
  terminal.print(command.is_json ? bench_json(plan, report) : bench_table(plan, report));
  return {};
}

}  // namespace moejit::cli
