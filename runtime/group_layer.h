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

// One rank's part of a layer whose experts a group shares, compiled, loaded and ready. A call sends
// this rank's tokens to the ranks of their experts, runs this rank's experts for the tokens of all
// ranks, and brings the results home: all on one stream, without waiting on the host and without
// allocating, so that calls can be recorded into a CUDA graph.
//
// All ranks make the same calls of a group's layers in the same order, each with a T of its own,
// which may be 0. The tensors are those of plan().tensors. Status bits go to the group's word.
class GroupLayer {
 public:
  // Prepares the plan on the group's device. Errors: those of PreparedPlan::prepare();
  // kInvalidValue if the group was made for another rank, or for memory that lacks what the plan
  // has there.
  static Result<std::unique_ptr<GroupLayer>> prepare(const compiler::GroupPlan& plan, Group& group,
                                                     Engine& engine,
                                                     const PrepareOptions& options = {});
  ~GroupLayer();
  GroupLayer(const GroupLayer&) = delete;
  GroupLayer& operator=(const GroupLayer&) = delete;

  const compiler::GroupPlan& plan() const;

  // Quantizes this rank's weights w1 [E, 2I, H] and w2 [E, H, I], as
  // PreparedLayer::update_weights() does. Moves nothing between ranks.
  Result<void> update_weights(std::span<const TensorRef> tensors, Stream stream);

  // Moves the scales of this rank's experts on by a step, as PreparedLayer::update_scales() does.
  // Moves nothing between ranks: an expert's rows, of all ranks' tokens, are cast on its own rank.
  Result<void> update_scales(compiler::Pass pass, std::span<const TensorRef> tensors,
                             Stream stream);

  // Computes y [T, H] bf16 of x [T, H] bf16 with topk_ids [T, K], ids of all experts or -1, and
  // topk_probs [T, K]. `memory` has at least plan().workspace_bytes and plan().saved_bytes. Errors
  // come before anything is launched: kMissingTensor, kTensorMismatch, kWorkspaceTooSmall, and
  // kInvalidState if the group takes no call. If the driver fails in the middle, the group is
  // broken until it is reset.
  Result<void> forward(std::span<const TensorRef> tensors, const CallMemory& memory, Stream stream,
                       LaunchObserver* observer = nullptr);

  // Computes the gradients of the forward call that filled memory.saved: dx [T, H] and dprobs [T,
  // K] of this rank's tokens, dw1, dw2 (and db1, db2) of its experts from the tokens of all ranks.
  // Takes dy [T, H], and topk_ids with the T and the contents of the forward call. Errors: as
  // forward(); kInvalidState before any forward call; kUnsupported without a backward pass, or for
  // kAdd of bf16 gradients.
  Result<void> backward(std::span<const TensorRef> tensors, compiler::GradientMode mode,
                        const CallMemory& memory, Stream stream,
                        LaunchObserver* observer = nullptr);

 private:
  struct Impl;
  explicit GroupLayer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moejit::runtime
