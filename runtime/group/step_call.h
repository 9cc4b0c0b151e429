// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/group_plan.h"
#include "runtime/group/group_state.h"
#include "runtime/launch/bound_tensors.h"
#include "runtime/prepared_plan.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace moejit::runtime {

// A list of kernels as a part of a group's call: a step of the exchange, or the experts. It knows
// where each of its tensors lies: at a fixed place of the group's memory, at an offset of a block
// of the call, or with the caller.
class StepCall {
 public:
  // Finds the tensors that a call of `part` touches. `prepared` has to outlive the step. Error
  // kInternal: a tensor that lies nowhere.
  static Result<StepCall> make(const compiler::GroupPlan& plan, const GroupState& state,
                               const PreparedPlan& prepared, const compiler::Plan& of,
                               const compiler::CallPart& part);

  // Binds a call's tensors, with the errors of PreparedPlan::bind(). Allocates only for errors.
  // `memory` is as large as the group's plan says.
  Result<void> bind(std::span<const TensorRef> tensors, const CallMemory& memory,
                    BoundTensors& bound) const;
  // Launches the kernels for what was bound.
  Result<void> run(std::optional<compiler::GradientMode> mode, const BoundTensors& bound,
                   Stream stream) const {
    return prepared_->run(part_, mode, bound, stream, nullptr);
  }

 private:
  enum class Place { kGroup, kWorkspace, kSaved, kCaller };
  struct Source {
    Place place = Place::kCaller;
    std::byte* address = nullptr;  // in the group's memory
    int64_t offset = 0;            // in a block
  };
  static Result<Source> find(const compiler::GroupPlan& plan, const GroupState& state,
                             const std::string& name);

  const PreparedPlan* prepared_ = nullptr;
  compiler::CallPart part_;
  CallMemory own_;  // the bytes that the kernels themselves take of each block
  std::vector<std::string> names_;
  std::vector<compiler::DType> dtypes_;
  std::vector<std::vector<int64_t>> shapes_;  // with every dimension at its bound
  std::vector<Source> sources_;
};

}  // namespace moejit::runtime
