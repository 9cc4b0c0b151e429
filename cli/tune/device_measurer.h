// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/execution/open_target.h"
#include "cli/tune/measurer.h"
#include "cli/tune/tune_problem.h"
#include "runtime/measure/gpu_monitor.h"

#include <memory>
#include <vector>

namespace moejit::cli {

// Measures on a device of this process. A version that ends the device's context ends what this
// measurer can do: it then is no longer usable.
class DeviceMeasurer final : public Measurer {
 public:
  DeviceMeasurer(OpenedTarget target, std::unique_ptr<runtime::Engine> engine,
                 std::vector<TuneProblem> problems);
  ~DeviceMeasurer() override;

  MeasuredDevice device() const;

  Result<void> prefetch() override;
  Result<void> compile(std::size_t problem) override;
  Result<void> open(std::size_t problem) override;
  Result<int64_t> make(int32_t candidate) override;
  Result<double> heat(double seconds, double most_seconds) override;
  Result<TimedBlocks> time(std::span<const int32_t> candidates, int64_t launches) override;
  std::optional<tune::Fault> loss() const override { return loss_; }
  bool is_usable() const override { return !loss_; }

 private:
  struct OpenProblem;
  // Returns an error as it is, and keeps in mind whether the device still works.
  tl::unexpected<Error> failed(Error error);

  OpenedTarget target_;
  std::unique_ptr<runtime::Engine> engine_;
  std::vector<TuneProblem> problems_;
  std::unique_ptr<measure::GpuMonitor> monitor_;  // may be null
  std::unique_ptr<OpenProblem> open_;
  std::optional<tune::Fault> loss_;
};

// Returns the GPU's identity as JSON, as journals have it.
std::string gpu_json(const runtime::Device& device);

}  // namespace moejit::cli
