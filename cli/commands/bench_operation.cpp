// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"
#include "cli/commands/tuning_records.h"
#include "cli/report/bench_page.h"
#include "cli/report/bench_report.h"
#include "cli/terminal/output.h"
#include "runtime/trial/open_target.h"
#include "runtime/trial/operation_inputs.h"
#include "runtime/trial/trial.h"

#include <fmt/core.h>

namespace moejit::cli {
namespace {

using runtime::elements;
using runtime::HostTensor;

using compiler::Plan;
using measure::ClockProbe;
using measure::ClockSample;
using measure::GpuMonitor;

// Waits, and returns the clock that the last launch stored, or else the clock of a probe behind it.
Result<ClockSample> read_clock(const trial::Trial& session, ClockProbe& probe) {
  if (session.tensors().has("elapsed")) {
    MOEJIT_TRY_ASSIGN(const HostTensor elapsed, session.tensors().read("elapsed"));
    return elements<ClockSample>(elapsed).front();
  }
  MOEJIT_TRY(probe.run());
  MOEJIT_TRY_ASSIGN(const std::vector<ClockSample> samples, probe.take_samples());
  return samples.back();
}

Result<void> measure_all(const BenchCommand& command, trial::Trial& session,
                         runtime::Engine& engine, runtime::Device& device, GpuMonitor* monitor,
                         BenchReport& report) {
  MOEJIT_TRY_ASSIGN(ClockProbe probe, ClockProbe::create(engine, device));
  MOEJIT_TRY_ASSIGN(measure::CacheSweep sweep, measure::CacheSweep::create(engine, device));
  MOEJIT_TRY_ASSIGN(report.copy_bytes_per_second,
                    measure::measure_copy_bytes_per_second(device, command.repeat));
  const auto launch = [&] { return session.call("run"); };
  MOEJIT_TRY_ASSIGN(
      const measure::CoolRun cool,
      run_cool(
          launch, [&] { return read_clock(session, probe); }, sweep, device, command.repeat));
  const bool is_told = session.tensors().has("elapsed");
  MOEJIT_TRY_ASSIGN(measure::HotRun hot, run_hot(launch, device, is_told ? nullptr : &probe,
                                                 command.hot_seconds, monitor));
  if (is_told) {
    MOEJIT_TRY_ASSIGN(const ClockSample clock, read_clock(session, probe));
    hot.megahertz = clock.megahertz();
  }
  report.times = {{cool}, {hot}};
  return {};
}

trial::InputOptions input_options(const BenchCommand& command, const Plan& plan) {
  trial::InputOptions options{
      .tokens = command.tokens, .seed = command.seed, .routing = command.routing};
  if (const auto size = trial::call_size(plan); size && !options.tokens)
    options.tokens = size->value;
  return options;
}

}  // namespace

Result<void> bench_operation(const BenchCommand& command,
                             const compiler::OperationDescription& operation, Terminal& terminal) {
  if (command.pass != "forward")
    return fail(Stage::kCommand, ErrorCode::kUsage,
                fmt::format("--pass {} is for layers, and {} describes the operation {}",
                            command.pass, command.layer, operation.name),
                "leave --pass out");
  MOEJIT_TRY(check_bench_options(command));
  MOEJIT_TRY_ASSIGN(const trial::OpenedTarget target, open_bench_gpu(command));
  runtime::Device& device = *target.device;
  MOEJIT_TRY_ASSIGN(const auto tuning, read_tuning_records(command.tuning, &device));
  MOEJIT_TRY_ASSIGN(const Plan plan,
                    compiler::plan_operation(operation, device.target(), {.tuning = tuning.get()}));
  trial::CacheOptions cache = command.cache;
  cache.build_arguments = shell_word(command.layer) + tuning_words(command.tuning);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(cache, terminal.warner()));
  const trial::InputOptions options = input_options(command, plan);
  MOEJIT_TRY_ASSIGN(const trial::OperationCall call, trial::load_operation_call(plan, options));
  MOEJIT_TRY_ASSIGN(const auto session, trial::Trial::create(plan, *engine, device, call, true));
  const std::unique_ptr<GpuMonitor> monitor = GpuMonitor::open(device.gpu_facts().pci_bus_id);
  BenchReport report{.run = describe_run(command, target, monitor.get()),
                     .rows = call.rows,
                     .routing = trial::routing_of(plan, options),
                     .tuning = tuning_use(plan, tuning.get())};
  tell_tuning(report.tuning, terminal);
  MOEJIT_TRY(measure_all(command, *session, *engine, device, monitor.get(), report));
  report.run.counters = engine->counters();
  terminal.print(command.is_json ? bench_json(plan, report) : bench_table(plan, report));
  return write_bench_report(command.report, plan, report);
}

}  // namespace moejit::cli
