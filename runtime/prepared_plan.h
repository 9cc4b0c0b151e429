// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "compiler/plan.h"
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

// A list of kernels that are compiled, loaded and ready: of a layer, of a rank of a group, or of an
// operation. After
// prepare() nothing is compiled, loaded, allocated or locked, and the host never waits for the
// device. So calls can be recorded into a CUDA graph and replayed with other contents of the
// tensors. Calls on different streams with different workspaces may overlap. The prepared plan may
// be destroyed while its kernels run or are part of graphs.
class PreparedPlan {
 public:
  // Emits the plan's kernels, gets their machine code from the engine (several at once), and loads
  // them. The device has to outlive the prepared plan. Errors: all of the compiler, the cache and
  // the device; kUnsupported if the plan is for another target. kInterrupted: the deadline of the
  // options has passed, or a stop was requested.
  static Result<std::unique_ptr<PreparedPlan>> prepare(std::shared_ptr<const compiler::Plan> plan,
                                                       Engine& engine, Device& device,
                                                       const PrepareOptions& options = {});
  // Prepares one rank's part of a layer whose experts a group shares, on the group's device. All
  // ranks make the calls with CallPlan::is_of_all_ranks, in the same order. Each rank has a T of
  // its own, which may be 0. Status bits go to the group's status word. Error kInvalidValue: the
  // group was made for another rank, or its memory lacks tensors that the plan has there.
  static Result<std::unique_ptr<PreparedPlan>> prepare(std::shared_ptr<const compiler::Plan> plan,
                                                       Engine& engine, Group& group,
                                                       const PrepareOptions& options = {});
  // Prepares a copy of the plan for a device or in a group.
  template <typename Place>
  static Result<std::unique_ptr<PreparedPlan>> prepare(const compiler::Plan& plan, Engine& engine,
                                                       Place& place,
                                                       const PrepareOptions& options = {}) {
    return prepare(std::make_shared<const compiler::Plan>(plan), engine, place, options);
  }
  ~PreparedPlan();
  PreparedPlan(const PreparedPlan&) = delete;
  PreparedPlan& operator=(const PreparedPlan&) = delete;

  const compiler::Plan& plan() const;

  // Returns where tensors lie in the blocks, and the bytes that a call over T tokens needs. After a
  // call the blocks hold its intermediates.
  const compiler::MemoryLayout& layout() const;

  // Makes a call of the plan, by its index in Plan::calls or by its name. The caller gives
  // CallPlan::tensors and the blocks that the call uses; CallPlan says which tensors may be left
  // out. A call without steps does nothing. Errors: kMissingTensor, kTensorMismatch,
  // kWorkspaceTooSmall, before anything is launched; by name also kUnsupported, if there is no such
  // call.
  //
  // A call that reads the saved block must have the T of the call that filled it. If T differs, a
  // GPU's kernels compute nothing and set kStatusOtherTokens in `status`. Where the host can read
  // the block, the call returns kTensorMismatch instead.
  //
  // Calls that all ranks of a group make return kInvalidState if the group takes no call. They also
  // return it if they read the saved block before any call has filled one. If the driver fails in
  // the middle, the group is broken until it is reset.
  Result<void> call(std::size_t index, std::span<const TensorRef> tensors, const CallMemory& memory,
                    Stream stream, LaunchObserver* observer = nullptr);
  Result<void> call(std::string_view name, std::span<const TensorRef> tensors,
                    const CallMemory& memory, Stream stream, LaunchObserver* observer = nullptr);

  // Launches plan().kernels[index] alone, for tools that time one kernel. Tensors, memory, checks,
  // parameters and CTAs are as in the first of the plan's calls that runs the kernel. The kernel
  // reads what earlier kernels of the plan left in the tensors and in memory. A later kernel may
  // have overwritten that since. So launch in the order of the plan, each kernel as often as you
  // like before the next. Launching one again changes nothing, except that gradients which are
  // added to grow. Error kInternal: no such index.
  Result<void> launch(std::size_t index, std::span<const TensorRef> tensors,
                      const CallMemory& memory, Stream stream) const;

 private:
  struct Impl;
  explicit PreparedPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
