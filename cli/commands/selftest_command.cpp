// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"
#include "cli/commands/env_command.h"
#include "cli/commands/kernel_commands.h"
#include "cli/commands/run.h"
#include "cli/commands/selftest_report.h"
#include "cli/terminal/output.h"
#include "compiler/compiler.h"
#include "compiler/recipe.h"
#include "compiler/support/file.h"

#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

using compiler::GemmScales;
using measure::GemmCase;
using measure::GemmOperation;

// The sizes of what is tested. A GPU gets enough for all of its SMs; the simulator takes long.
struct Sizes {
  int64_t problems;  // of each question to the tensor cores
  int32_t hidden, intermediate, max_tokens;
};
constexpr Sizes kSizesOfGpu{.problems = 16, .hidden = 1024, .intermediate = 416, .max_tokens = 512};
constexpr Sizes kSizesOfSimulator{
    .problems = 1, .hidden = 256, .intermediate = 160, .max_tokens = 64};

// Grouped GEMMs of moderate size, in bf16 and by block scales, and a wgrad: they fit on any GPU.
std::vector<GemmCase> cases() {
  const GemmCase rows{.groups = 8, .rows_per_group = 2048, .n = 4096, .k = 2048, .sections = 2};
  GemmCase bf16 = rows, fp8 = rows;
  bf16.name = "bf16";
  bf16.scales = GemmScales::kNone;
  fp8.name = "fp8_flow";
  return {bf16,
          fp8,
          {.name = "fp8_flow_wgrad",
           .operation = GemmOperation::kContractionGroupedGemm,
           .groups = 8,
           .n = 2048,
           .columns_per_group = 2048,
           .rows = 4096}};
}

// Runs a layer of the recipe forward and backward, and compares every kernel with the reference.
Result<std::vector<check::TensorCheck>> check_layer(std::string_view recipe, const Sizes& sizes,
                                                    const RunCommand& command, Terminal& terminal) {
  const nlohmann::json text = {{"name", fmt::format("selftest-{}", recipe)},
                               {"experts", 8},
                               {"local_experts", 8},
                               {"top_k", 2},
                               {"hidden", sizes.hidden},
                               {"intermediate", sizes.intermediate},
                               {"activation", "swiglu"},
                               {"dtype", "bf16"},
                               {"recipe", recipe},
                               {"max_tokens", sizes.max_tokens},
                               {"passes", {"forward", "backward"}}};
  MOEJIT_TRY_ASSIGN(const Description layer, compiler::parse_layer(text.dump(), "selftest"));
  MOEJIT_TRY_ASSIGN(Run run, open_run(command, layer));
  MOEJIT_TRY(complete_run(run, layer, terminal));
  return std::move(run.report.checks);
}

SelftestLayer test_layer(std::string_view recipe, const Sizes& sizes, const RunCommand& command,
                         Terminal& terminal) {
  auto checks = check_layer(recipe, sizes, command, terminal);
  if (checks) return {.recipe = recipe, .checks = std::move(*checks), .failure = {}};
  return {.recipe = recipe, .checks = {}, .failure = std::move(checks).error()};
}

void ask_tensor_cores(const SelftestCommand& command, int64_t problems, runtime::Device& device,
                      Terminal& terminal, SelftestReport& report) {
  auto engine = trial::open_engine(command.cache, terminal.warner());
  auto checks = engine ? check_tensor_cores(report.rules, problems, **engine, device)
                       : tl::make_unexpected(std::move(engine).error());
  if (checks)
    report.tensor_cores = std::move(*checks);
  else
    report.tensor_cores_error = std::move(checks).error();
}

void measure_cases(const BenchCommand& command, Terminal& terminal, SelftestReport& report) {
  auto measured = measure_gemms(command, cases(), terminal);
  if (measured)
    report.gemms = std::move(*measured);
  else
    report.gemms.failure = std::move(measured).error();
}

bool is_wanted(const SelftestCommand& command, std::string_view recipe) {
  return command.recipes.empty() ||
         std::ranges::find(command.recipes, recipe) != command.recipes.end();
}

// Tests everything; what fails is in the report.
Result<SelftestReport> test_device(const SelftestCommand& command, trial::Devices& devices,
                                   Terminal& terminal) {
  runtime::Device& device = devices.device(0);
  const compiler::Target target = device.target();
  const bool is_gpu = target.kind == compiler::TargetKind::kCuda;
  const Sizes& sizes = is_gpu ? kSizesOfGpu : kSizesOfSimulator;
  RunCommand run;
  run.target = to_string(target);
  run.cache = command.cache;
  run.pass = "backward";
  run.check = true;
  BenchCommand bench;
  bench.target = run.target;
  bench.cache = command.cache;
  bench.command_line = command.command_line;
  const auto monitor = measure::GpuMonitor::open(device.gpu_facts().pci_bus_id);
  const compiler::Architecture* const known = compiler::find_architecture(target);
  SelftestReport report{
      .gemms = {.run = describe_run(bench, devices, monitor.get())},
      .target = run.target,
      .evidence = std::string(is_gpu && known != nullptr ? known->evidence : "simulated"),
      .rules = check::addition_rules(target)};
  MOEJIT_TRY_ASSIGN(report.compiler, compiler_in_keys(target));
  ask_tensor_cores(command, sizes.problems, device, terminal, report);
  for (const compiler::Recipe& recipe : compiler::kRecipes)
    if (recipe.has_kernels && is_wanted(command, recipe.name))
      report.layers.push_back(test_layer(recipe.name, sizes, run, terminal));
  if (is_gpu && !command.skips_bench) measure_cases(bench, terminal, report);
  return report;
}

Result<void> judge(const SelftestReport& report, bool is_written) {
  const std::vector<std::string> failures = failures_of(report);
  if (failures.empty()) return {};
  const std::string more =
      failures.size() == 1 ? "" : fmt::format(", and {} more failures", failures.size() - 1);
  return fail(Stage::kLaunch, ErrorCode::kCheckFailed, failures.front() + more,
              is_written ? "docs/targets.md tells what to do with the report"
                         : "--report FILE writes all of them, and docs/targets.md tells what then");
}

}  // namespace

Result<void> run_selftest(const SelftestCommand& command, Terminal& terminal) {
  MOEJIT_TRY(check_output(command.report));
  MOEJIT_TRY_ASSIGN(const auto devices, trial::Devices::open_one(
                                            command.target, 0, "test the simulator: --target sim"));
  terminal.note(devices->text());
  MOEJIT_TRY_ASSIGN(const SelftestReport report, test_device(command, *devices, terminal));
  const std::string json = json_output(selftest_json(report));
  terminal.print(command.is_json ? json : selftest_table(report, terminal.width()));
  if (!command.report.empty()) MOEJIT_TRY(write_file(command.report, json));
  return judge(report, !command.report.empty());
}

}  // namespace moejit::cli
