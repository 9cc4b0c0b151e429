// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/prepared_plan.h"
#include "runtime/trial/device_tensors.h"
#include "runtime/trial/operation_inputs.h"

#include <memory>
#include <vector>

namespace moejit::trial {

// A prepared operation together with the tensors of one call, in device memory. Engine and device
// must live longer.
class OperationSession {
 public:
  // Compiles, loads, allocates and uploads. What the operation does not write holds bytes of 255.
  // GEMMs tell how long they ran, in "elapsed", if `tells_clock`.
  static Result<std::unique_ptr<OperationSession>> create(const compiler::OperationPlan& plan,
                                                          runtime::Engine& engine,
                                                          runtime::Device& device,
                                                          const OperationCall& call,
                                                          bool tells_clock = false);

  // Runs the operation; does not wait for it.
  Result<void> run(runtime::LaunchObserver* observer = nullptr);

  // Returns what the operation wrote, whole tensors. multi_cast_transpose writes "output.0",
  // "output_colwise.0", "amax.0", "scale_inv.0", ... Waits for it.
  Result<runtime::TensorMap> results() const;

  const DeviceTensors& tensors() const { return tensors_; }

 private:
  explicit OperationSession(runtime::Device& device) : tensors_(device) {}

  std::unique_ptr<runtime::PreparedPlan> prepared_;
  DeviceTensors tensors_;
  std::vector<std::string> written_;
  std::vector<runtime::TensorRef> refs_;
  runtime::DeviceMemory workspace_;
  runtime::CallMemory memory_;
};

}  // namespace moejit::trial
