// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/measure/measure_layer.h"
#include "runtime/prepared_layer.h"
#include "runtime/trial/device_tensors.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace moejit::trial {

// Returns the shape of a tensor in one call.
std::vector<int64_t> actual_shape(const compiler::TensorPlan& tensor,
                                  const compiler::CallDims& dims);

// A prepared layer together with device memory for all of its tensors. Engine and device must live
// longer.
class LayerSession {
 public:
  // Compiles, loads, allocates and uploads. `inputs` are those of load_inputs(); weights of fewer
  // experts than the layer has are repeated.
  static Result<std::unique_ptr<LayerSession>> create(const compiler::LayerPlan& plan,
                                                      runtime::Engine& engine,
                                                      runtime::Device& device,
                                                      const runtime::TensorMap& inputs);

  const compiler::LayerPlan& plan() const { return layer_->plan(); }
  int64_t tokens() const { return tokens_; }

  // Quantizes the weights; does nothing if they came quantized.
  Result<void> update_weights(runtime::LaunchObserver* observer = nullptr);
  // Clears the status word and runs one forward pass; does not wait for it.
  Result<void> forward(runtime::LaunchObserver* observer = nullptr);
  // Runs the backward pass of the last forward pass; does not wait for it.
  Result<void> backward(compiler::GradientMode mode, runtime::LaunchObserver* observer = nullptr);
  // Finds the scales of the next step from the passes so far, if the recipe has a history; does not
  // wait.
  Result<void> update_scales(compiler::Pass pass, runtime::LaunchObserver* observer = nullptr);
  // Returns the layer with these tensors, for measurements.
  measure::LayerCall call();

  // Returns the memory of a tensor of the plan in these calls.
  Result<runtime::MemoryRegion> memory_of(const compiler::TensorPlan& tensor) const;

  Result<uint32_t> status();
  // Returns a tensor of the plan after a call, without rows past offs[E]. Intermediates need a plan
  // that keeps them.
  Result<runtime::HostTensor> read(const compiler::TensorPlan& tensor);

 private:
  explicit LayerSession(runtime::Device& device) : device_(device), tensors_(device) {}
  Result<void> clear_status();
  std::vector<runtime::TensorRef> refs_of(compiler::Phase phase) const;
  // Returns offs[E] of the last call. Error kInternal if it is not between 0 and P.
  Result<int64_t> permuted_rows();
  Result<void*> address_of(const compiler::TensorPlan& tensor) const;
  Result<void> copy_out(const compiler::TensorPlan& tensor, int64_t offset_bytes, void* destination,
                        int64_t bytes);

  runtime::Device& device_;
  std::unique_ptr<runtime::PreparedLayer> layer_;
  int64_t tokens_ = 0;
  bool came_quantized_ = false;
  DeviceTensors tensors_;
  runtime::DeviceMemory workspace_, saved_, deferred_;
  runtime::CallMemory memory_;  // all three blocks
  // Arguments of calls, by phase.
  std::array<std::vector<runtime::TensorRef>, compiler::kPhaseCount> refs_;
};

}  // namespace moejit::trial
