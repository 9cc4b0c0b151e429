// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"
#include "cli/commands/gemm_cases.h"
#include "cli/report/gemms_report.h"
#include "cli/terminal/output.h"
#include "runtime/check/sampled_gemm.h"
#include "runtime/trial/measure_trial.h"
#include "runtime/trial/open_engine.h"

#include <algorithm>
#include <atomic>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <thread>

namespace moejit::cli {
namespace {

using measure::GemmCase;
using measure::GpuMonitor;

// Reads the file's cases that the command names; all if it names none.
Result<std::vector<GemmCase>> read_cases(const BenchCommand& command) {
  MOEJIT_TRY_ASSIGN(std::vector<GemmCase> cases, read_gemm_cases(command.gemms));
  std::vector<std::string> names;
  for (const GemmCase& gemm : cases) names.push_back(gemm.name);
  for (const std::string& name : command.cases)
    if (std::ranges::find(names, name) == names.end())
      return fail(Stage::kCommand, ErrorCode::kUsage,
                  fmt::format("{} has no case \"{}\", wanted one of {}", command.gemms, name,
                              fmt::join(names, ", ")));
  if (command.cases.empty()) return cases;
  std::erase_if(cases, [&](const GemmCase& gemm) {
    return std::ranges::find(command.cases, gemm.name) == command.cases.end();
  });
  return cases;
}

// Compiles all kernels of the cases with one thread per core, so that no case waits for a compiler.
// A failure is ignored here: it returns when its case asks for the kernel.
void compile_ahead(const std::vector<GemmCase>& cases, runtime::Engine& engine,
                   const compiler::Target& target) {
  std::vector<compiler::KernelSource> all;
  for (const GemmCase& gemm : cases)
    if (const auto sources = trial::GemmTrial::sources(gemm, target))
      all.insert(all.end(), sources->begin(), sources->end());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < all.size(); i = next++) static_cast<void>(engine.binary(all[i]));
  };
  std::vector<std::jthread> workers;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) workers.emplace_back(work);
  work();
}

Result<GemmResult> bench_case(const GemmCase& gemm, const BenchCommand& command,
                              runtime::Engine& engine, runtime::Device& device,
                              measure::ClockProbe& probe, GpuMonitor* monitor) {
  const uint64_t seed = command.inputs.random.seed;
  MOEJIT_TRY_ASSIGN(const auto session, trial::GemmTrial::create(gemm, engine, device, seed));
  GemmResult result{.gemm = gemm,
                    .kernel = session->kernel(),
                    .rows = {.routed = session->groups().real_rows(),
                             .padded = session->groups().rows(),
                             .routed_experts = std::ranges::count_if(
                                 session->groups().counts, [](int32_t rows) { return rows > 0; })}};
  MOEJIT_TRY(session->launch());
  MOEJIT_TRY_ASSIGN(const testing::Comparison check, check::check_gemm(*session, seed));
  if (!check.is_equal())
    return fail(
        Stage::kLaunch, ErrorCode::kCheckFailed,
        fmt::format("case \"{}\" differs from the reference: {}", gemm.name, check.message));
  result.compared = check.compared;
  trial::Trial& trial = session->trial();
  MOEJIT_TRY_ASSIGN(const auto cool, measure_cool(trial, engine, probe, command.repeat));
  MOEJIT_TRY_ASSIGN(const auto hot, measure_hot(trial, probe, command.hot_seconds, monitor));
  result.cool = cool.front();
  result.hot = hot.front();
  return result;
}

}  // namespace

Result<GemmsReport> measure_gemms(const BenchCommand& command, const std::vector<GemmCase>& cases,
                                  Terminal& terminal) {
  const uint64_t seed = command.inputs.random.seed;
  MOEJIT_TRY_ASSIGN(const auto devices,
                    trial::Devices::open_one(command.target, seed, kBenchWithoutGpu));
  runtime::Device& device = devices->device(0);
  MOEJIT_TRY_ASSIGN(const std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(command.cache, terminal.warner()));
  compile_ahead(cases, *engine, device.target());
  MOEJIT_TRY_ASSIGN(auto probe, measure::ClockProbe::create(*engine, device));
  const std::unique_ptr<GpuMonitor> monitor = GpuMonitor::open(device.gpu_facts().pci_bus_id);
  GemmsReport report{.run = describe_run(command, *devices, monitor.get())};
  for (const GemmCase& gemm : cases) {
    terminal.show_progress("cases", std::ssize(report.results), std::ssize(cases));
    Result<GemmResult> result = bench_case(gemm, command, *engine, device, probe, monitor.get());
    if (!result) {
      report.failure = std::move(result).error();
      break;
    }
    report.results.push_back(std::move(*result));
  }
  terminal.clear_progress();
  report.run.counters = engine->counters();
  return report;
}

Result<void> bench_gemms(const BenchCommand& command, Terminal& terminal) {
  MOEJIT_TRY_ASSIGN(const std::vector<GemmCase> cases, read_cases(command));
  MOEJIT_TRY_ASSIGN(GemmsReport report, measure_gemms(command, cases, terminal));
  terminal.print(command.is_json ? json_output(gemms_json(report.results, report.run))
                                 : gemms_table(report.results, report.run));
  if (report.failure) return tl::make_unexpected(std::move(*report.failure));
  return {};
}

}  // namespace moejit::cli
