// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/gpu_monitor.h"
#include "runtime/trial/devices.h"
#include "runtime/trial/open_engine.h"
#include "runtime/tune/measurer.h"
#include "runtime/tune/race_kernel.h"
#include "runtime/tune/tune_problem.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moejit::tune {

// The device that a tuner measures on.
struct MeasuredDevice {
  compiler::Target target;
  std::string gpu;          // gpu_to_json() of the device
  std::string description;  // Devices::text() of the device
  std::string cuda_version;
};

// Measures on a device of this process.
class DeviceMeasurer final : public Measurer {
 public:
  // Creates a measurer of the subjects' problems. Returns the errors of collect_problems().
  static Result<std::unique_ptr<DeviceMeasurer>> create(std::unique_ptr<trial::Devices> devices,
                                                        std::unique_ptr<runtime::Engine> engine,
                                                        const TuneSubjects& subjects);
  ~DeviceMeasurer() override;

  MeasuredDevice device() const;
  const std::vector<TuneProblem>& problems() const { return problems_; }

  // Start to compile all candidates in the background, and compile the candidates of one problem or
  // wait until they are compiled. A candidate that does not compile is no error here.
  Result<void> prefetch();
  Result<void> compile(std::size_t problem);

  Result<void> open(std::size_t problem) override;
  Result<int64_t> make(int32_t candidate) override;
  Result<double> heat(double seconds, double most_seconds) override;
  Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t launches) override;
  bool is_usable() const override { return is_usable_; }

 private:
  struct OpenProblem;

  DeviceMeasurer(std::unique_ptr<trial::Devices> devices, std::unique_ptr<runtime::Engine> engine);
  runtime::Device& gpu() const { return devices_->device(0); }
  Result<void> open_new_problem(std::size_t problem);
  Result<TimedBlocks> time_blocks(std::span<const measure::LaunchBlock> blocks);
  // Returns an error as it is, and remembers whether the device still works.
  tl::unexpected<Error> failed(Error error);

  std::unique_ptr<trial::Devices> devices_;
  std::unique_ptr<runtime::Engine> engine_;
  std::shared_ptr<OpenedLayer> opened_layer_;
  std::vector<TuneProblem> problems_;
  std::unique_ptr<measure::GpuMonitor> monitor_;  // may be null
  std::unique_ptr<OpenProblem> problem_;          // the problem that is open, or null
  bool is_usable_ = true;
};

// Returns the GPU's identity as JSON, as journals have it.
std::string gpu_json(const runtime::Device& device);

// What a tuner measures on, and how.
struct MeasureOptions {
  std::string target = "auto";  // as Devices::open_one() takes it
  std::string without_gpu;      // as Devices::open_one() takes it
  trial::CacheOptions cache;
  double candidate_seconds = 60.0;  // limit for a candidate to be made and run once
  double block_milliseconds = 100.0;
  double heat_seconds = 0.6;
  uint64_t seed = 0;
};

// Opens, in this process, a measurer of the subjects. The observer gets the warnings of the kernel
// cache; it must live longer.
Result<std::unique_ptr<DeviceMeasurer>> open_measurer(const MeasureOptions& options,
                                                      const TuneSubjects& subjects,
                                                      TuneObserver& observer);

// Returns how long the blocks and the heating of a race take.
RaceTimes race_times(const MeasureOptions& options);

}  // namespace moejit::tune
