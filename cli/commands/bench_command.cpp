// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"
#include "cli/commands/kernel_commands.h"
#include "cli/commands/tuning_records.h"
#include "cli/report/bench_page.h"
#include "cli/report/bench_report.h"
#include "cli/terminal/output.h"
#include "compiler/support/utc_time.h"
#include "runtime/trial/measure_trial.h"

#include <fmt/core.h>

namespace moejit::cli {
namespace {

using compiler::Plan;
using measure::GpuMonitor;

Result<void> check_options(const BenchCommand& command) {
  const auto usage = [](std::string message, std::string hint = {}) {
    return fail(Stage::kCommand, ErrorCode::kUsage, std::move(message), std::move(hint));
  };
  if (command.repeat < 1 || command.repeat > 100000)
    return usage(fmt::format("--repeat is {}, wanted 1 to 100000", command.repeat));
  if (!(command.hot_seconds >= 0.001 && command.hot_seconds <= 60.0))
    return usage(fmt::format("--hot-seconds is {}, wanted 0.001 to 60", command.hot_seconds));
  if (command.ranks > 0 && !command.report.empty())
    return usage("--report is for one rank", "leave --report out, or --ranks");
  const auto target = compiler::parse_target(command.target);
  if (!target || target->kind == compiler::TargetKind::kCuda) return {};
  return fail(Stage::kCommand, ErrorCode::kUnsupported,
              "bench needs a GPU: the time of a simulator says nothing about a kernel",
              "moejit run shows the simulator's times");
}

Result<void> measure_all(const BenchCommand& command, trial::Trial& trial, runtime::Engine& engine,
                         GpuMonitor* monitor, BenchReport& report) {
  MOEJIT_TRY_ASSIGN(auto probe, measure::ClockProbe::create(engine, trial.device()));
  MOEJIT_TRY_ASSIGN(report.copy_bytes_per_second,
                    measure::measure_copy_bytes_per_second(trial.device(), command.repeat));
  MOEJIT_TRY_ASSIGN(report.read_bytes_per_second,
                    measure::measure_read_bytes_per_second(engine, trial.device(), command.repeat));
  MOEJIT_TRY_ASSIGN(report.times.cool, measure_cool(trial, engine, probe, command.repeat));
  const double seconds = command.hot_seconds;
  MOEJIT_TRY_ASSIGN(report.times.hot, measure_hot(trial, probe, seconds, monitor));
  const Plan& plan = trial.plan();
  if (plan.operation) return {};
  MOEJIT_TRY_ASSIGN(report.forward, measure_forward(trial, probe, seconds, monitor));
  MOEJIT_TRY_ASSIGN(report.forward_graph, measure_forward_graph(trial, probe, seconds, monitor));
  if (has_backward(*plan.layer)) {
    MOEJIT_TRY_ASSIGN(report.step, measure_step(trial, probe, seconds, monitor));
  }
  return {};
}

// Measures a layer or an operation on one GPU, and prints and writes its report.
Result<void> bench_one(const BenchCommand& command, const OpenedPlans& opened,
                       const compiler::CallRows& rows, trial::Trial& trial, runtime::Engine& engine,
                       Terminal& terminal) {
  const Plan& plan = opened.plans.front();
  const auto monitor = GpuMonitor::open(opened.devices->device(0).gpu_facts().pci_bus_id);
  BenchReport report{.run = describe_run(command, *opened.devices, monitor.get()),
                     .rows = rows,
                     .random = routed_at_random(plan, command.inputs),
                     .tuning = opened.tuning};
  MOEJIT_TRY(measure_all(command, trial, engine, monitor.get(), report));
  report.run.counters = engine.counters();
  terminal.print(command.is_json ? bench_json(plan, report) : bench_table(plan, report));
  return write_bench_report(command.report, plan, report);
}

Result<void> bench_description(const BenchCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(Description description, read_layer_or_operation(command.layer));
  MOEJIT_TRY(check_description(command, description));
  MOEJIT_TRY(check_options(command));
  auto* const layer = std::get_if<compiler::Layer>(&description);
  if (layer != nullptr) choose_passes(*layer, command.pass);
  MOEJIT_TRY_ASSIGN(
      const OpenedPlans opened,
      open_plans(command, description, {.measure_gemms = command.ranks == 0}, kBenchWithoutGpu));
  if (command.ranks > 0) terminal.note(opened.devices->text());
  tell_tuning(opened.tuning, terminal);
  trial::CacheOptions cache = command.cache;
  cache.build_arguments = shell_word(command.layer) + (layer != nullptr ? " --variants all" : "") +
                          tuning_words(command.tuning);
  MOEJIT_TRY_ASSIGN(const auto engine, trial::open_engine(cache, terminal.warner()));
  MOEJIT_TRY_ASSIGN(const auto inputs, load_inputs(opened.plans, command.inputs));
  MOEJIT_TRY_ASSIGN(const auto trial,
                    trial::Trial::create(opened.plans, *engine, *opened.devices, inputs, true));
  if (command.ranks > 0) return bench_group(command, opened, *trial, *engine, terminal);
  return bench_one(command, opened, inputs.front().rows, *trial, *engine, terminal);
}

}  // namespace

Result<void> run_bench(const BenchCommand& given, Terminal& terminal) {
  BenchCommand command = given;
  if (command.target == "auto") command.target = "cuda";
  if (command.layer.empty() == command.gemms.empty())
    return fail(Stage::kCommand, ErrorCode::kUsage,
                "wanted a layer description, that of an operation, or --gemms FILE",
                "moejit bench LAYER.json, or moejit bench --gemms GEMMS.json");
  MOEJIT_TRY(check_output(command.report));
  if (command.gemms.empty()) return bench_description(command, terminal);
  MOEJIT_TRY(check_options(command));
  return bench_gemms(command, terminal);
}

BenchRun describe_run(const BenchCommand& command, trial::Devices& devices,
                      const GpuMonitor* monitor) {
  const runtime::Device& device = devices.device(0);
  return {.command_line = command.command_line,
          .date = utc_time("%Y-%m-%dT%H:%M:%SZ"),
          .target = devices.description(),
          .gpu = device.name(),
          .sm_count = device.sm_count(),
          .cuda_version = device.gpu_facts().cuda_version,
          .settings = monitor == nullptr ? measure::GpuSettings{} : monitor->settings(),
          .repeat = command.repeat,
          .hot_seconds = command.hot_seconds,
          .counters = {}};
}

}  // namespace moejit::cli
