// SPDX-License-Identifier: Apache-2.0
#include "cli/tune/device_measurer.h"

#include "cli/commands/tuning_records.h"
#include "compiler/compiler.h"

namespace moejit::cli {

using measure::Launch;

struct DeviceMeasurer::OpenProblem {
  std::size_t index = 0;
  OpenedKernel kernel;
  std::optional<measure::VersionComparison> comparison;
  std::vector<Launch> launches;  // by candidate; empty: not made
};

DeviceMeasurer::DeviceMeasurer(OpenedTarget target, std::unique_ptr<runtime::Engine> engine,
                               std::vector<TuneProblem> problems)
    : target_(std::move(target)),
      engine_(std::move(engine)),
      problems_(std::move(problems)),
      monitor_(measure::GpuMonitor::open(target_.device->gpu_facts().pci_bus_id)) {}

DeviceMeasurer::~DeviceMeasurer() = default;

MeasuredDevice DeviceMeasurer::device() const {
  return {.target = target_.device->target(),
          .gpu = gpu_json(*target_.device),
          .description = target_text(target_),
          .cuda_version = target_.device->gpu_facts().cuda_version};
}

Result<void> DeviceMeasurer::prefetch() {
  MOEJIT_TRY_ASSIGN(const std::vector<compiler::KernelSource> all,
                    sources_of(problems_, target_.device->target()));
  engine_->prefetch(all);
  return {};
}

Result<void> DeviceMeasurer::compile(std::size_t problem) {
  MOEJIT_TRY_ASSIGN(const std::vector<compiler::KernelSource> sources,
                    sources_of(problems_[problem], target_.device->target()));
  for (const compiler::KernelSource& source : sources) static_cast<void>(engine_->binary(source));
  return {};
}

Result<void> DeviceMeasurer::open(std::size_t problem) {
  if (open_ != nullptr && open_->index == problem) return {};
  open_.reset();
  auto opened = std::make_unique<OpenProblem>();
  opened->index = problem;
  Result<OpenedKernel> kernel = problems_[problem].open(*engine_, *target_.device);
  if (!kernel) return failed(std::move(kernel.error()));
  opened->kernel = std::move(*kernel);
  auto comparison =
      measure::VersionComparison::create(opened->kernel.kernel, *engine_, *target_.device);
  if (!comparison) return failed(std::move(comparison.error()));
  opened->comparison = std::move(*comparison);
  opened->launches.resize(problems_[problem].candidates.size());
  opened->launches.front() = opened->comparison->usual();
  open_ = std::move(opened);
  return {};
}

Result<int64_t> DeviceMeasurer::make(int32_t candidate) {
  const auto index = static_cast<std::size_t>(candidate);
  Result<measure::MadeVersion> made =
      open_->comparison->make(problems_[open_->index].candidates[index]);
  if (!made) return failed(std::move(made.error()));
  open_->launches[index] = std::move(made->launch);
  return made->differing_words;
}

Result<double> DeviceMeasurer::heat(double seconds, double most_seconds) {
  Result<double> us =
      measure::heat(open_->launches.front(), *target_.device, seconds, most_seconds);
  if (!us) return failed(std::move(us.error()));
  return us;
}

Result<TimedBlocks> DeviceMeasurer::time(std::span<const int32_t> candidates, int64_t launches) {
  std::vector<measure::LaunchBlock> blocks;
  for (const int32_t candidate : candidates)
    blocks.push_back(
        {.launch = &open_->launches[static_cast<std::size_t>(candidate)], .launches = launches});
  if (monitor_ != nullptr) monitor_->start();
  Result<std::vector<double>> times = measure::time_blocks(blocks, *target_.device);
  const measure::GpuSamples gpu = monitor_ == nullptr ? measure::GpuSamples{} : monitor_->stop();
  if (!times) return failed(std::move(times.error()));
  return TimedBlocks{
      .microseconds = std::move(*times), .megahertz = gpu.mean_megahertz, .watts = gpu.mean_watts};
}

tl::unexpected<Error> DeviceMeasurer::failed(Error error) {
  if (!target_.device->synchronize(nullptr)) loss_ = tune::Fault::kCrashes;
  return tl::make_unexpected(std::move(error));
}

std::string gpu_json(const runtime::Device& device) {
  compiler::GpuIdentity gpu{.name = device.name(), .arch = device.target().arch};
  if (const auto identity = gpu_identity(device)) gpu = *identity;
  return compiler::gpu_to_json(gpu);
}

}  // namespace moejit::cli
