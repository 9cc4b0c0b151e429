// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/host_tensor.h"
#include "runtime/trial/inputs.h"

#include <cstdint>
#include <string_view>

namespace moejit::trial {

// Loads x, topk_ids, topk_probs, the state if there is one, and the weights of one call, each
// checked against the plan. Grouped input has tokens_per_expert and probs instead. dy is loaded if
// a call takes it. Gradients that a call adds to begin as zeros. If a file lacks the state, it is
// the state of a first step. Weights are w1 and w2. If the file or checkpoint has them quantized,
// they are w1_q, w1_scale_inv, w2_q and w2_scale_inv instead. Errors name file and tensor:
// kMissingTensor, kTensorMismatch, kInvalidValue.
Result<runtime::TensorMap> load_layer_inputs(const compiler::Plan& plan,
                                             const InputOptions& options);

// Returns whether the weights among `inputs` came quantized.
bool has_quantized_weights(const runtime::TensorMap& inputs);

// Returns T of these inputs.
int64_t token_count(const runtime::TensorMap& inputs);

// Returns the state with which training starts: histories of zeros, scales of ones. `tensor` has
// the role kState.
runtime::HostTensor first_state(const compiler::TensorPlan& tensor);

// Returns zeros for a tensor, with every dimension at its bound.
runtime::HostTensor zeros(const compiler::TensorPlan& tensor);

// Returns zeros for each gradient that the call adds to; empty if it adds to none.
runtime::TensorMap first_gradients(const compiler::Plan& plan, std::string_view call);

// Returns states as some steps of training leave them, for all tensors of the role kState. Seeded
// histories hold the usual largest magnitudes of activations, weights and gradients. The scales
// follow from them, and nothing is recorded in this step. Empty if the recipe has no history.
runtime::TensorMap random_states(const compiler::Plan& plan, uint64_t seed);

}  // namespace moejit::trial
