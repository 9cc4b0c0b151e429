// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/plan.h"
#include "runtime/host_tensor.h"
#include "runtime/trial/inputs.h"

#include <cstdint>
#include <vector>

namespace moejit::trial {

// The functions below are for layers with a router.

// Returns what the router reads at random: logits, router_bias, expert_scale, topk_ids if they are
// given, and the sums that it adds to. The experts of random_topk_ids() have larger logits than
// others of a token, so that a plain formula mostly chooses them.
runtime::TensorMap random_logits(const compiler::Layer& layer, int64_t tokens,
                                 const RandomInputs& random);

// Returns aux_coefficient and z_coefficient, as far as the formula has these losses.
runtime::TensorMap loss_coefficients(const compiler::RouterFormula& formula);

// Returns whether the tensor is a sum to which forward calls add: counts, score_sums, ...
bool is_sum_of_router(const compiler::Plan& plan, const compiler::TensorPlan& tensor);

// Returns the ids [T, K] by which the layer's experts are chosen of these inputs, computed by the
// reference if the router chooses. Without a router returns topk_ids.
std::vector<int64_t> chosen_ids(const compiler::Layer& layer, const runtime::TensorMap& inputs);

}  // namespace moejit::trial
