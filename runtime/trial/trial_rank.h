// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "runtime/prepared_plan.h"
#include "runtime/trial/device_tensors.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace moejit::trial {

// One device's part of a trial: what runs, the caller's tensors, and the blocks of memory.
class TrialRank {
 public:
  // Creates the part; the device must live longer. `dims` are the sizes of the calls. Error
  // kInternal: as MemoryLayout::make() returns it.
  static Result<std::unique_ptr<TrialRank>> create(std::unique_ptr<runtime::PreparedPlan> prepared,
                                                   runtime::Device& device,
                                                   const compiler::CallDims& dims);

  runtime::PreparedPlan& prepared() const { return *prepared_; }
  const compiler::Plan& plan() const { return prepared_->plan(); }
  int64_t tokens() const { return dims_.tokens; }
  runtime::Device& device() const { return device_; }
  DeviceTensors& tensors() { return tensors_; }
  const DeviceTensors& tensors() const { return tensors_; }
  const runtime::CallMemory& memory() const { return memory_; }
  // Returns the tensors of the calls, by index into Plan::calls.
  std::span<const std::vector<runtime::TensorRef>> refs() const { return refs_; }

  // Allocates a tensor of the plan with these contents; without contents, as DeviceTensors::add()
  // does.
  Result<void> add(const compiler::TensorPlan& tensor, const runtime::HostTensor* content);
  // Allocates the blocks and binds the tensors that were added.
  Result<void> finish(const compiler::MemorySizes& sizes);

  // Returns the memory of a tensor in these calls. Error kInternal: the tensor was not added.
  Result<runtime::MemoryRegion> memory_of(const compiler::TensorPlan& tensor) const;
  // Returns a tensor after a call. An intermediate of a layer is cut to the rows before offs[E].
  Result<runtime::HostTensor> read(const compiler::TensorPlan& tensor) const;

 private:
  TrialRank(std::unique_ptr<runtime::PreparedPlan> prepared, runtime::Device& device,
            const compiler::CallDims& dims)
      : prepared_(std::move(prepared)), device_(device), dims_(dims), tensors_(device) {}
  // Returns offs[E] of the last call. Error kInternal if it is not between 0 and P.
  Result<int64_t> permuted_rows() const;
  Result<void> copy_out(const compiler::TensorPlan& tensor, int64_t offset_bytes, void* destination,
                        int64_t bytes) const;

  std::unique_ptr<runtime::PreparedPlan> prepared_;
  runtime::Device& device_;
  compiler::CallDims dims_;
  compiler::MemoryLayout layout_;
  DeviceTensors tensors_;
  runtime::DeviceMemory workspace_, saved_, deferred_;
  runtime::CallMemory memory_;                         // all three blocks
  std::vector<std::vector<runtime::TensorRef>> refs_;  // arguments, by index into Plan::calls
};

}  // namespace moejit::trial
