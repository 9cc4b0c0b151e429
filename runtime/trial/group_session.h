// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/group_layer.h"
#include "runtime/trial/device_tensors.h"
#include "runtime/trial/group_devices.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace moejit::trial {

// A layer on all ranks of a group in this process, with memory for its tensors. Devices and engine
// must live longer. Calls of one function are made on rank 0, 1, ... and do not wait.
class GroupSession {
 public:
  // Plans, adopts, compiles, allocates and uploads. `inputs` are those of split_inputs(). The ranks
  // are planned with `tuning`, null for none, which need not live longer than the call.
  static Result<std::unique_ptr<GroupSession>> create(const compiler::Layer& layer,
                                                      GroupDevices& devices,
                                                      runtime::Engine& engine,
                                                      std::span<const runtime::TensorMap> inputs,
                                                      int64_t timeout_ms = 10000,
                                                      const compiler::Tuning* tuning = nullptr);

  const compiler::GroupPlan& plan(int32_t rank) const { return at(rank).layer->plan(); }
  const runtime::CallMemory& memory(int32_t rank) const { return at(rank).memory; }
  runtime::Group& group(int32_t rank) { return *ranks_[static_cast<std::size_t>(rank)]->group; }
  Result<void> update_weights();
  Result<void> forward();
  Result<void> backward(compiler::GradientMode mode);
  // Make the calls of one rank alone.
  Result<void> update_weights(int32_t rank);
  Result<void> forward(int32_t rank, runtime::LaunchObserver* observer = nullptr);
  Result<void> backward(int32_t rank, compiler::GradientMode mode,
                        runtime::LaunchObserver* observer = nullptr);
  // Waits for all ranks, and returns the status word of each.
  Result<std::vector<uint32_t>> status();
  // Returns a tensor of a rank behind status(), as it was given: y, dx, dprobs with the rank's T.
  Result<runtime::HostTensor> read(int32_t rank, std::string_view name) const;

 private:
  struct Rank {
    explicit Rank(runtime::Device& device) : tensors(device) {}
    std::unique_ptr<runtime::Group> group;
    std::unique_ptr<runtime::GroupLayer> layer;
    DeviceTensors tensors;
    runtime::DeviceMemory workspace, saved;
    runtime::CallMemory memory;
    std::vector<runtime::TensorRef> refs, weights;  // of calls, and of update_weights
  };
  explicit GroupSession(GroupDevices& devices) : devices_(devices) {}
  Result<void> add_rank(const compiler::GroupPlan& plan, runtime::Engine& engine,
                        std::unique_ptr<runtime::Group> group, const runtime::TensorMap& inputs);
  const Rank& at(int32_t rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  GroupDevices& devices_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace moejit::trial
