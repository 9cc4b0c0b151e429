// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/compiler.h"
#include "runtime/device.h"
#include "runtime/engine.h"
#include "runtime/prepared_plan.h"
#include "tests/fakes/fake_nvrtc.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::testing {

// A small layer, forward and backward, with kernels of the fake NVRTC and all its tensors in memory
// of the device. The device outlives it.
class DriverLayer {
 public:
  struct Options {
    int32_t hidden = 256;         // another number makes other kernels
    int64_t param_bytes_off = 0;  // by which the images say another size of their parameters
    bool has_backward = true;
  };
  static Result<std::unique_ptr<DriverLayer>> create(runtime::Engine& engine,
                                                     runtime::Device& device,
                                                     FakeNvrtcControl& nvrtc,
                                                     const Options& options);
  static compiler::Plan plan(const Options& options);
  // Tells the fake NVRTC what its images of the plan's kernels are to say.
  static void describe_kernels(const compiler::Plan& plan, FakeNvrtcControl& nvrtc,
                               int64_t param_bytes_off = 0);
  ~DriverLayer();
  DriverLayer(const DriverLayer&) = delete;
  DriverLayer& operator=(const DriverLayer&) = delete;

  Result<void> update_weights(runtime::Stream stream = nullptr);
  Result<void> forward(runtime::Stream stream = nullptr);
  Result<void> call(std::string_view name, runtime::Stream stream = nullptr);
  Result<void> run_all(runtime::Stream stream = nullptr);  // each of the four calls

  std::vector<runtime::TensorRef> tensors() const;
  runtime::CallMemory memory() const { return memory_; }
  void replace(const std::string& tensor, void* address) { addresses_[tensor] = address; }
  void* address(const std::string& tensor) const { return addresses_.at(tensor); }
  runtime::PreparedPlan& prepared() { return *prepared_; }
  // Lets go of the layer, but not of its memory.
  void destroy() { prepared_.reset(); }
  std::size_t kernels() const { return kernels_; }
  // Launches of run_all().
  int64_t launches() const;

 private:
  DriverLayer(runtime::Device& device) : device_(device) {}
  Result<void> allocate();

  runtime::Device& device_;
  std::unique_ptr<runtime::PreparedPlan> prepared_;
  compiler::Plan plan_;
  std::size_t kernels_ = 0;
  std::map<std::string, void*> addresses_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::vector<void*> allocated_;
  runtime::CallMemory memory_;
};

}  // namespace moejit::testing
