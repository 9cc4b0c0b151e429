// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/group.h"
#include "runtime/trial/devices.h"
#include "runtime/trial/inputs.h"
#include "runtime/trial/trial_rank.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moejit::trial {

// Runs a plan on 1 to R devices with tensors of the host. The plan is a layer's or an operation's
// on one device, or the plans of the ranks of a group in this process. Calls do not wait for the
// devices. call() makes a call on all ranks, rank 0 first. Engine and devices must live longer.
class Trial {
 public:
  // Loads the kernels of each plan, allocates its tensors and uploads the inputs, which
  // load_inputs() returns. If these have weights of fewer experts than a layer, the weights are
  // repeated. A missing state is the state of a first step. Bytes that no call has written yet are
  // 255. If `tells_clock`, GEMMs of an operation write how long they ran to "elapsed". Also returns
  // the errors of Group::adopt() and Group::open().
  static Result<std::unique_ptr<Trial>> create(std::span<const compiler::Plan> plans,
                                               runtime::Engine& engine, Devices& devices,
                                               std::span<const CallInputs> inputs,
                                               bool tells_clock = false);
  // Creates a trial of a plan that is not of a group.
  static Result<std::unique_ptr<Trial>> create(const compiler::Plan& plan, runtime::Engine& engine,
                                               runtime::Device& device, const CallInputs& inputs,
                                               bool tells_clock = false);

  // Creates a trial of an operation whose tensors are in this memory, named as in the plan and each
  // as large as its bound.
  static Result<std::unique_ptr<Trial>> create(const compiler::Plan& plan, runtime::Engine& engine,
                                               runtime::Device& device,
                                               std::vector<runtime::NamedMemory> tensors);

  int32_t ranks() const { return static_cast<int32_t>(ranks_.size()); }
  const compiler::Plan& plan(int32_t rank = 0) const { return at(rank).plan(); }
  int64_t tokens(int32_t rank = 0) const { return at(rank).tokens(); }
  const runtime::CallMemory& memory(int32_t rank = 0) const { return at(rank).memory(); }
  const DeviceTensors& tensors(int32_t rank = 0) const { return at(rank).tensors(); }
  runtime::Group& group(int32_t rank) { return *groups_[static_cast<std::size_t>(rank)]; }

  // Make a call on all ranks and on one rank. `name` is from Plan::calls: "update_weights",
  // "forward", "backward+add", for an operation "run". "update_weights" does nothing if the weights
  // came quantized. "forward" first clears the status word of a layer on one device.
  Result<void> call(std::string_view name, runtime::LaunchObserver* observer = nullptr);
  Result<void> call_on(int32_t rank, std::string_view name,
                       runtime::LaunchObserver* observer = nullptr);

  // Records a call of a plan on one device, `times` times in a row; nothing runs. Nothing clears
  // the status word. Device::record() says which errors come back.
  Result<std::unique_ptr<runtime::Recording>> record(std::string_view name, int32_t times);

  // Waits for all ranks and returns the status word of each; 0 if a plan has none.
  Result<std::vector<uint32_t>> status();
  // Return a tensor of the plan after a call, and a tensor's memory, as TrialRank does.
  // Intermediates need a plan that keeps them.
  Result<runtime::HostTensor> read(const compiler::TensorPlan& tensor, int32_t rank = 0) const {
    return at(rank).read(tensor);
  }
  Result<runtime::MemoryRegion> memory_of(const compiler::TensorPlan& tensor) const {
    return at(0).memory_of(tensor);
  }
  // Returns the results of a rank: outputs and states, for a layer without the status word. On
  // request also returns all other tensors that its kernels wrote. Tensors
  // of a layer are left out as long as no call has written them. multi_cast_transpose writes
  // "output.0", "output_colwise.0", "amax.0", "scale_inv.0", ...
  Result<runtime::TensorMap> results(int32_t rank = 0, bool with_intermediates = false) const;

  // Return rank 0's device, and launch a kernel of its plan alone, as PreparedPlan::launch() does.
  // A version was prepared for this plan with other choices.
  runtime::Device& device() const { return at(0).device(); }
  Result<void> launch(std::size_t kernel) const { return launch(kernel, at(0).prepared()); }
  Result<void> launch(std::size_t kernel, const runtime::PreparedPlan& version) const {
    return version.launch(kernel, at(0).refs()[call_of_kernel(plan(), kernel)], memory(), nullptr);
  }

 private:
  Trial() = default;
  const TrialRank& at(int32_t rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  // Returns whether a call that was made writes the tensor.
  bool was_written(std::string_view tensor, int32_t rank) const;
  // Adds a device's part.
  Result<void> add(std::unique_ptr<runtime::PreparedPlan> prepared, runtime::Device& device,
                   const CallInputs& inputs, bool tells_clock);
  Result<void> add_group(std::span<const compiler::Plan> plans, runtime::Engine& engine,
                         Devices& devices, std::span<const CallInputs> inputs);

  Devices* devices_ = nullptr;                           // the group's devices; null on one device
  std::vector<std::unique_ptr<runtime::Group>> groups_;  // one for each rank of a group
  std::vector<std::unique_ptr<TrialRank>> ranks_;
  std::vector<std::string> listed_;  // results of an operation that the plan does not name
  std::vector<std::size_t> made_;    // calls made so far, as indices into Plan::calls
  bool came_quantized_ = false;      // whether the weights came quantized
};

// Returns whether a tensor is a result of a layer: an output, or the state for the next step. The
// status word is not a result.
bool is_result(const compiler::TensorPlan& tensor);

// Plans each rank's part of a layer. Returns the errors of plan_layer().
Result<std::vector<compiler::Plan>> plan_ranks(const compiler::Layer& layer,
                                               const compiler::Target& target,
                                               compiler::PlanOptions options = {});

}  // namespace moejit::trial
