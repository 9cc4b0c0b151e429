// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/launch/bound_tensors.h"
#include "runtime/transport.h"

#include <cstddef>
#include <span>
#include <vector>

namespace moejit::runtime {

// A collective step of a plan with everything resolved that does not change from call to call.
class CollectiveCall {
 public:
  // Resolves plan.collectives[index]. `group` has the memory of each rank. Error kInternal: the
  // plan names a tensor that does not exist.
  static Result<CollectiveCall> resolve(const compiler::Plan& plan, std::size_t index,
                                        std::span<std::byte* const> group);

  // Moves the blocks of these tensors. Allocates nothing. Errors: as of Transport::move().
  Result<void> run(Transport& transport, const BoundTensors& tensors, Stream stream) const;

 private:
  static constexpr std::size_t kMostMoves = 8;
  // Where a tensor is in a call: in the memory of the group, or in the slot of Plan::tensors.
  struct Place {
    void* in_group = nullptr;
    std::size_t slot = 0;

    void* address(const BoundTensors& tensors) const {
      return in_group != nullptr ? in_group : tensors.address[slot];
    }
  };
  struct Move {
    compiler::Movement movement = compiler::Movement::kGather;
    Place source, destination;
    int64_t bytes = 0;
  };
  CollectiveCall() = default;

  std::vector<Move> moves_;
};

}  // namespace moejit::runtime
