// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/group_plan.h"
#include "compiler/memory_layout.h"
#include "runtime/call.h"
#include "runtime/device.h"
#include "runtime/engine.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

namespace moejit::runtime {

class Group;

// Options of preparing a plan. After an interruption, kernels compiled so far stay in engine and
// cache.
struct PrepareOptions {
  ObtainOptions patience;  // deadline, and a request to stop
  // Is called on the preparing thread with the number of kernels that are ready, from 0 to all.
  std::function<void(std::size_t)> progress;
};

// A list of kernels that are compiled, loaded and ready: a layer's, or an operation's. After
// prepare() nothing is compiled, loaded, allocated or locked, and the host never waits for the
// device, so calls can be recorded into a CUDA graph and replayed with other contents of the
// tensors. Calls on different streams with different workspaces may overlap. It may be destroyed
// while its kernels run, or are part of graphs.
class PreparedPlan {
 public:
  // Emits the plan's kernels, gets their machine code from the engine (several at once), and loads
  // them. The device has to outlive the prepared plan. Errors: of the compiler, the cache and the
  // device; kUnsupported if the plan is for another target; kInterrupted at the deadline or the
  // request to stop of the options.
  static Result<std::unique_ptr<PreparedPlan>> prepare(std::shared_ptr<const compiler::Plan> plan,
                                                       Engine& engine, Device& device,
                                                       const PrepareOptions& options = {});
  // Prepares one rank's part of a layer whose experts a group shares, on the group's device. All
  // ranks make the calls that are CallPlan::is_of_all_ranks in the same order, each with a T of its
  // own, which may be 0; status bits go to the group's word. Error kInvalidValue: the group was
  // made for another rank, or for memory that lacks what the plan has there.
  static Result<std::unique_ptr<PreparedPlan>> prepare(
      std::shared_ptr<const compiler::GroupPlan> plan, Engine& engine, Group& group,
      const PrepareOptions& options = {});
  ~PreparedPlan();
  PreparedPlan(const PreparedPlan&) = delete;
  PreparedPlan& operator=(const PreparedPlan&) = delete;

  const compiler::Plan& plan() const;

  // Returns where the tensors are in the blocks, which hold the intermediates after a call, and the
  // bytes that a call over T tokens needs.
  const compiler::MemoryLayout& layout() const;

  // Makes a call of the plan, by its index in Plan::calls or by its name. The caller gives
  // CallPlan::tensors and the blocks that the call uses; CallPlan says which it may leave out. A
  // call without steps does nothing. Errors: kMissingTensor, kTensorMismatch, kWorkspaceTooSmall,
  // before anything is launched; by name also kUnsupported, if there is no such call. A call that
  // reads the saved block has the T of the call that filled it: if T differs, a GPU's kernels
  // compute nothing and set kStatusOtherTokens in `status`; where the host can read the block, the
  // call returns kTensorMismatch. Calls of a group, that all ranks make, return kInvalidState if
  // the group takes no call, or if they read the saved block before any call has filled one; if the
  // driver fails in the middle, the group is broken until it is reset.
  Result<void> call(std::size_t index, std::span<const TensorRef> tensors, const CallMemory& memory,
                    Stream stream, LaunchObserver* observer = nullptr);
  Result<void> call(std::string_view name, std::span<const TensorRef> tensors,
                    const CallMemory& memory, Stream stream, LaunchObserver* observer = nullptr);

  // Launches plan().kernels[index] alone, for tools that time one kernel. Tensors, memory, checks,
  // parameters and CTAs are those of the first of the plan's calls that runs the kernel. It reads
  // what the kernels before it in the plan left in the tensors and in memory, where a later kernel
  // may have put something else since. So launch in the order of the plan, each kernel as often as
  // you like before the next: launching one again changes nothing, except that gradients which are
  // added to grow. Error kInternal: no such index.
  Result<void> launch(std::size_t index, std::span<const TensorRef> tensors,
                      const CallMemory& memory, Stream stream) const;

 private:
  struct Impl;
  explicit PreparedPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
