// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/memory_layout.h"
#include "runtime/call.h"
#include "runtime/device.h"
#include "runtime/engine.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace moejit::runtime {

struct BoundTensors;
class Transport;

// Options of preparing a plan. After an interruption, kernels compiled so far stay in engine and
// cache.
struct PrepareOptions {
  ObtainOptions patience;  // deadline, and a request to stop
  // Is called on the preparing thread with the number of kernels that are ready, from 0 to all.
  std::function<void(std::size_t)> progress;
  // The tensors that the plan has in the memory of a group, which must stay as long as its calls.
  std::span<const GroupTensor> group = {};
  // What does the plan's collective steps, and must stay as long as its calls; null if it has none.
  Transport* transport = nullptr;
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
  ~PreparedPlan();
  PreparedPlan(const PreparedPlan&) = delete;
  PreparedPlan& operator=(const PreparedPlan&) = delete;

  const compiler::Plan& plan() const;

  // Returns where the tensors are in the blocks, which hold the intermediates after a call, and the
  // bytes that a call over T tokens needs.
  const compiler::MemoryLayout& layout() const;

  // Runs all kernels of the forward phase, the only one of an operation, in the order of the plan.
  // The tensors that they touch are in `tensors`.
  Result<void> run(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                   LaunchObserver* observer = nullptr);

  // Checks the tensors and the memory of a call of this part and binds them to `bound`, which must
  // be as it was constructed.
  Result<void> bind(const CallPart& part, std::span<const TensorRef> tensors,
                    const CallMemory& memory, BoundTensors& bound) const;

  // Launches the kernels of this part for what was bound, except kernels of another gradient mode.
  Result<void> run(const CallPart& part, std::optional<compiler::GradientMode> mode,
                   const BoundTensors& bound, Stream stream, LaunchObserver* observer) const;

  // Launches plan().kernels[index] alone for what was bound for a call of its phase, for tools that
  // time one kernel. It reads what the kernels before it in the plan left in the tensors and in
  // memory, where a later kernel may have put something else since. So launch in the order of the
  // plan, each kernel as often as you like before the next: launching one again changes nothing,
  // except that gradients which are added to grow.
  Result<void> launch(std::size_t index, const BoundTensors& bound, Stream stream) const;

 private:
  struct Impl;
  explicit PreparedPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
