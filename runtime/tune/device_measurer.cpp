// SPDX-License-Identifier: Apache-2.0

#include "runtime/tune/device_measurer.h"

#include "runtime/trial/open_engine.h"

#include <fmt/core.h>
#include <string_view>
#include <utility>

namespace moejit::tune {

using measure::Launch;
using measure::LaunchBlock;

struct DeviceMeasurer::OpenProblem {
  std::size_t index = 0;
  OpenedKernel kernel;
  std::optional<measure::VersionComparison> comparison;
  std::vector<Launch> launches;  // by candidate; empty: not made yet
};

DeviceMeasurer::DeviceMeasurer(std::unique_ptr<trial::Devices> devices,
                               std::unique_ptr<runtime::Engine> engine)
    : devices_(std::move(devices)),
      engine_(std::move(engine)),
      opened_layer_(std::make_shared<OpenedLayer>()),
      monitor_(measure::GpuMonitor::open(gpu().gpu_facts().pci_bus_id)) {}

DeviceMeasurer::~DeviceMeasurer() = default;

Result<std::unique_ptr<DeviceMeasurer>> DeviceMeasurer::create(
    std::unique_ptr<trial::Devices> devices, std::unique_ptr<runtime::Engine> engine,
    const TuneSubjects& subjects) {
  std::unique_ptr<DeviceMeasurer> measurer(
      new DeviceMeasurer(std::move(devices), std::move(engine)));
  MOEJIT_TRY_ASSIGN(measurer->problems_,
                    collect_problems(subjects, measurer->gpu().target(), measurer->opened_layer_));
  return measurer;
}

MeasuredDevice DeviceMeasurer::device() const {
  return {.target = gpu().target(),
          .gpu = gpu_json(gpu()),
          .description = devices_->text(),
          .cuda_version = gpu().gpu_facts().cuda_version};
}

Result<void> DeviceMeasurer::prefetch() {
  MOEJIT_TRY_ASSIGN(const std::vector<compiler::KernelSource> all,
                    sources_of(problems_, gpu().target()));
  engine_->prefetch(all);
  return {};
}

Result<void> DeviceMeasurer::compile(std::size_t problem) {
  MOEJIT_TRY_ASSIGN(const std::vector<compiler::KernelSource> sources,
                    sources_of(problems_[problem], gpu().target()));
  for (const compiler::KernelSource& source : sources) static_cast<void>(engine_->binary(source));
  return {};
}

Result<void> DeviceMeasurer::open(std::size_t problem) {
  if (problem_ != nullptr && problem_->index == problem) return {};
  problem_.reset();
  Result<void> opened = open_new_problem(problem);
  if (!opened) return failed(std::move(opened.error()));
  return {};
}

Result<void> DeviceMeasurer::open_new_problem(std::size_t problem) {
  auto opened = std::make_unique<OpenProblem>();
  opened->index = problem;
  MOEJIT_TRY_ASSIGN(opened->kernel, problems_[problem].open(*engine_, gpu()));
  MOEJIT_TRY_ASSIGN(opened->comparison,
                    measure::VersionComparison::create(opened->kernel.kernel, *engine_, gpu()));
  opened->launches.resize(problems_[problem].candidates.size());
  opened->launches.front() = opened->comparison->usual();
  problem_ = std::move(opened);
  return {};
}

Result<int64_t> DeviceMeasurer::make(int32_t candidate) {
  const auto index = static_cast<std::size_t>(candidate);
  Result<measure::MadeVersion> made =
      problem_->comparison->make(problems_[problem_->index].candidates[index]);
  if (!made) return failed(std::move(made.error()));
  problem_->launches[index] = std::move(made->launch);
  return made->differing_words;
}

Result<double> DeviceMeasurer::heat(double seconds, double most_seconds) {
  Result<double> us = measure::heat(problem_->launches.front(), gpu(), seconds, most_seconds);
  if (!us) return failed(std::move(us.error()));
  return us;
}

Result<TimedBlocks> DeviceMeasurer::time(std::span<const int32_t> candidates, int64_t launches) {
  std::vector<LaunchBlock> blocks;
  for (const int32_t candidate : candidates)
    blocks.push_back(
        {.launch = &problem_->launches[static_cast<std::size_t>(candidate)], .launches = launches});
  return time_blocks(blocks);
}

Result<TimedBlocks> DeviceMeasurer::time_blocks(std::span<const LaunchBlock> blocks) {
  if (monitor_ != nullptr) monitor_->start();
  Result<std::vector<double>> times = measure::time_blocks(blocks, gpu());
  const measure::GpuSamples gpu = monitor_ == nullptr ? measure::GpuSamples{} : monitor_->stop();
  if (!times) return failed(std::move(times.error()));
  return TimedBlocks{
      .microseconds = std::move(*times), .megahertz = gpu.mean_megahertz, .watts = gpu.mean_watts};
}

tl::unexpected<Error> DeviceMeasurer::failed(Error error) {
  if (!gpu().synchronize(nullptr)) is_usable_ = false;
  return tl::make_unexpected(std::move(error));
}

std::string gpu_json(const runtime::Device& device) {
  compiler::GpuIdentity gpu{.name = device.name(), .arch = device.target().arch};
  if (const auto identity = measure::gpu_identity(device)) gpu = *identity;
  return compiler::gpu_to_json(gpu);
}

Result<std::unique_ptr<DeviceMeasurer>> open_measurer(const MeasureOptions& options,
                                                      const TuneSubjects& subjects,
                                                      TuneObserver& observer) {
  MOEJIT_TRY_ASSIGN(auto devices,
                    trial::Devices::open_one(options.target, options.seed, options.without_gpu));
  const auto warn = [&observer](std::string_view text) { observer.warn(text); };
  MOEJIT_TRY_ASSIGN(std::unique_ptr<runtime::Engine> engine,
                    trial::open_engine(options.cache, warn));
  return DeviceMeasurer::create(std::move(devices), std::move(engine), subjects);
}

RaceTimes race_times(const MeasureOptions& options) {
  return {.block_seconds = 1e-3 * options.block_milliseconds,
          .heat_seconds = options.heat_seconds,
          .most_heat_seconds = 5.0 * options.heat_seconds,
          .lead_seconds = options.heat_seconds / 3.0,
          .candidate_seconds = options.candidate_seconds};
}

}  // namespace moejit::tune
