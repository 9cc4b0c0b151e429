// SPDX-License-Identifier: Apache-2.0
#include "cli/commands/bench_run.h"

#include "compiler/support/utc_time.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace moejit::cli {
namespace {

nlohmann::ordered_json gpu_json(const BenchRun& run) {
  nlohmann::ordered_json json{{"name", run.gpu}, {"sm_count", run.sm_count}};
  const measure::GpuSettings& settings = run.settings;
  if (settings.driver_version) json["driver"] = *settings.driver_version;
  if (!run.cuda_version.empty()) json["cuda"] = run.cuda_version;
  if (settings.power_limit_watts) json["power_limit_watts"] = *settings.power_limit_watts;
  if (settings.most_megahertz) json["most_mhz"] = *settings.most_megahertz;
  return json;
}

}  // namespace

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
