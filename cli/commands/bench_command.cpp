// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"
#include "cli/commands/kernel_commands.h"
#include "cli/commands/layer_file.h"
#include "cli/commands/tuning_records.h"
#include "cli/report/bench_page.h"
#include "cli/report/bench_report.h"
#include "cli/terminal/output.h"
#include "compiler/group_plan.h"
#include "compiler/support/utc_time.h"
#include "runtime/measure/measure_layer.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/random_layer_inputs.h"
#include "runtime/trial/routing_tensors.h"
#include "runtime/trial/trial.h"

#include <algorithm>
#include <fmt/core.h>

namespace moejit::cli {
namespace {

using runtime::TensorMap;

using compiler::Plan;
using measure::ClockProbe;
using measure::GpuMonitor;

Result<int64_t> count_tokens(const BenchCommand& command, const compiler::Layer& layer) {
  const int64_t tokens = command.tokens.value_or(layer.max_tokens);
  if (tokens >= 1 && tokens <= layer.max_tokens) return tokens;
  return fail(Stage::kCommand, ErrorCode::kUsage,
              fmt::format("--tokens is {}, wanted 1 to {} (max_tokens of the layer)", tokens,
                          layer.max_tokens));
}

Result<void> measure_all(const BenchCommand& command, const measure::LayerCall& call,
                         runtime::Engine& engine, GpuMonitor* monitor, BenchReport& report) {
  MOEJIT_TRY_ASSIGN(ClockProbe probe, ClockProbe::create(engine, call.device));
  MOEJIT_TRY_ASSIGN(report.copy_bytes_per_second,
                    measure::measure_copy_bytes_per_second(call.device, command.repeat));
  MOEJIT_TRY_ASSIGN(report.times.cool, measure_cool(call, engine, probe, command.repeat));
  const double seconds = command.hot_seconds;
  MOEJIT_TRY_ASSIGN(report.times.hot, measure_hot(call, probe, seconds, monitor));
  MOEJIT_TRY_ASSIGN(report.forward, measure_forward(call, probe, seconds, monitor));
  if (has_backward(*call.prepared.plan().layer)) {
    MOEJIT_TRY_ASSIGN(report.step, measure_step(call, probe, seconds, monitor));
  }
  return {};
}

Result<void> bench_layer(const BenchCommand& command, compiler::Layer layer, Terminal& terminal) {
  MOEJIT_TRY(check_is_of_one_rank(layer));
  choose_passes(layer, command.pass);
  MOEJIT_TRY(check_bench_options(command));
  MOEJIT_TRY_ASSIGN(const int64_t tokens, count_tokens(command, layer));
  MOEJIT_TRY_ASSIGN(const trial::OpenedTarget target, open_bench_gpu(command));
  runtime::Device& device = *target.device;
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, &device));
  MOEJIT_TRY_ASSIGN(const Plan plan,
                    compiler::plan_layer(layer, device.target(),
                                         {.measure_gemms = true, .tuning = tuning.get()}));
  trial::CacheOptions cache = command.cache;
  cache.build_arguments =
      shell_word(command.layer) + " --variants all" + tuning_words(command.tuning);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(cache, terminal.warner()));
  const TensorMap inputs = trial::measuring_inputs(layer, tokens, command.seed, command.routing);
  MOEJIT_TRY_ASSIGN(const auto session, trial::Trial::create(plan, *engine, device, inputs));
  const std::unique_ptr<GpuMonitor> monitor = GpuMonitor::open(device.gpu_facts().pci_bus_id);
  BenchReport report{.run = describe_run(command, target, monitor.get()),
                     .rows = trial::count_call_rows(layer, inputs),
                     .routing = command.routing,
                     .tuning = tuning_use(plan, tuning.get())};
  tell_tuning(report.tuning, terminal);
  MOEJIT_TRY(measure_all(command, session->layer_call(), *engine, monitor.get(), report));
  report.run.counters = engine->counters();
  terminal.print(command.is_json ? bench_json(plan, report) : bench_table(plan, report));
  return write_bench_report(command.report, plan, report);
}

}  // namespace

Result<void> run_bench(const BenchCommand& command, Terminal& terminal) {
  if (command.layer.empty() == command.gemms.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "wanted a layer description, that of an operation, or --gemms FILE",
                "moejit bench LAYER.json, or moejit bench --gemms GEMMS.json");
  MOEJIT_TRY(check_output(command.report));
  if (!command.gemms.empty()) return bench_gemms(command, terminal);
  MOEJIT_TRY_ASSIGN(Description description, read_layer_or_operation(command.layer));
  auto* const layer = std::get_if<compiler::Layer>(&description);
  if (layer == nullptr && command.ranks > 0)
    return fail(Stage::kCommand, ErrorCode::kUsage, "--ranks is for layers, not for operations");
  if (layer != nullptr && command.ranks > 0) return bench_group(command, *layer, terminal);
  if (layer != nullptr) return bench_layer(command, std::move(*layer), terminal);
  return bench_operation(command, std::get<compiler::OperationDescription>(description), terminal);
}

Result<void> check_bench_options(const BenchCommand& command) {
  if (command.repeat < 1 || command.repeat > 100000)
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--repeat is {}, wanted 1 to 100000", command.repeat));
  if (!(command.hot_seconds >= 0.001 && command.hot_seconds <= 60.0))
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--hot-seconds is {}, wanted 0.001 to 60", command.hot_seconds));
  return {};
}

Result<trial::OpenedTarget> open_bench_gpu(const BenchCommand& command) {
  const std::string name = command.target == "auto" ? "cuda" : command.target;
  MOEJIT_TRY_ASSIGN(
      trial::OpenedTarget target,
      trial::open_target(name, command.seed,
                         "bench has no other target; without a GPU, moejit run --target sim "
                         "--check runs a layer, and moejit plan has its bytes and FLOP"));
  if (target.device->target().kind == compiler::TargetKind::kCuda) return target;
  return fail(Stage::kCommand, ErrorCode::kUnsupported,
              "bench needs a GPU: the time of a simulator says nothing about a kernel",
              "moejit run shows the simulator's times");
}

BenchRun describe_run(const BenchCommand& command, const trial::OpenedTarget& target,
                      const measure::GpuMonitor* monitor) {
  return {.command_line = command.command_line,
          .date = utc_time("%Y-%m-%dT%H:%M:%SZ"),
          .target = target.description,
          .gpu = target.device->name(),
          .sm_count = target.device->sm_count(),
          .cuda_version = target.device->gpu_facts().cuda_version,
          .settings = monitor == nullptr ? measure::GpuSettings{} : monitor->settings(),
          .repeat = command.repeat,
          .hot_seconds = command.hot_seconds,
          .counters = {}};
}

}  // namespace moejit::cli
