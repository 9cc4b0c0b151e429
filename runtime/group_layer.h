// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/group_plan.h"
#include "runtime/call.h"
#include "runtime/engine.h"
#include "runtime/group.h"
#include "runtime/prepared_plan.h"

#include <cstdint>
#include <memory>
#include <span>

namespace moejit::runtime {

// The calls of the PreparedPlan of one rank's part of a layer, under names of their own.
class GroupLayer {
 public:
  using Tensors = std::span<const TensorRef>;

  // Prepares the plan on the group's device, with the errors of PreparedPlan::prepare().
  static Result<std::unique_ptr<GroupLayer>> prepare(const compiler::GroupPlan& plan, Group& group,
                                                     Engine& engine,
                                                     const PrepareOptions& options = {});

  const compiler::GroupPlan& plan() const { return *plan_; }
  PreparedPlan& prepared() { return *prepared_; }

  Result<void> update_weights(Tensors tensors, Stream stream) {
    return prepared_->call("update_weights", tensors, {}, stream);
  }
  Result<void> update_scales(compiler::Pass pass, Tensors tensors, Stream stream) {
    return prepared_->call(
        pass == compiler::Pass::kBackward ? "update_backward_scales" : "update_forward_scales",
        tensors, {}, stream);
  }
  Result<void> forward(Tensors tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr) {
    return prepared_->call("forward", tensors, memory, stream, observer);
  }
  Result<void> backward(Tensors tensors, compiler::GradientMode mode, const CallMemory& memory,
                        Stream stream, LaunchObserver* observer = nullptr) {
    return prepared_->call(mode == compiler::GradientMode::kAdd ? "backward+add" : "backward",
                           tensors, memory, stream, observer);
  }

 private:
  GroupLayer() = default;
  std::shared_ptr<const compiler::GroupPlan> plan_;
  std::unique_ptr<PreparedPlan> prepared_;
};

}  // namespace moejit::runtime
