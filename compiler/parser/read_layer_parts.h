// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/layer.h"
#include "compiler/support/json_view.h"

#include <optional>

namespace moejit::compiler {

// Reads the value of "activation": a preset's name, or an object with a preset and its parameters
// or with a formula. Errors carry the JSON path and, for a formula, the column.
Result<Activation> read_activation(const JsonView& view);

// Reads the choices that some recipes have into a layer whose recipe is known. These are
// power_of_2_scales, gradient_format and weight_format (members of the recipe), margin,
// amax_history_len and amax_compute_algo. Errors: a field's, and kInvalidValue for a choice that
// the recipe does not have.
Result<void> read_recipe_choices(const JsonView& root, Layer& layer);

// Reads the field "input"; tokens without it.
Result<LayerInput> read_input(const JsonView& root);

// Refuses fields that tell of tokens and their choices where rows are grouped, and fields of
// grouped rows where they are not. Error: kInvalidValue, with what replaces the field.
Result<void> check_fields_of_input(const JsonView& root, const Layer& layer);

// Reads the field "router" of a layer whose experts and top_k are known; nothing without the field,
// or where rows are grouped. Errors: as read_router(), and for experts, top_k or fields of a
// formula that no kernel of a layer takes.
Result<std::optional<RouterFormula>> read_router_of_layer(const JsonView& root, const Layer& layer);

// Refuses what a layer with a router cannot have. These are probabilities in bf16, experts of other
// ranks that are reported, and dispatch_calls with a backward pass.
Result<void> check_fields_of_router(const JsonView& root, const Layer& layer);

// Reads the field "expert_parallel" of a description with so many experts. Without the field the
// record has no ranks. Errors: unknown keys, ranks that do not divide the experts, an unknown
// combine or transport.
Result<ExpertParallel> read_expert_parallel(const JsonView& root, int32_t experts);

// Returns the experts of each rank that the layer's `experts` and `expert_parallel` give.
int32_t experts_of_rank(const Layer& layer);

// Refuses fields that a layer of a group cannot have. These are a wrong local_experts, more tokens
// or choices than an exchange takes, and fields for a host that dispatches rows itself.
Result<void> check_fields_of_group(const JsonView& root, const Layer& layer);

// Reads the field "shared". Without the field the record has no experts.
Result<SharedExperts> read_shared(const JsonView& root);

// Refuses fields that a layer with shared experts cannot have. These are ranks that the layer knows
// nothing of, a dispatch by the host, and more experts or choices than kernels take.
Result<void> check_fields_of_shared(const JsonView& root, const Layer& layer);

// Refuses options of recipes that other libraries have and no target of this version can do. These
// are GEMMs in a microscaling format itself ("native_gemm"), "random_hadamard_transform" and
// "stochastic_rounding". Errors: kUnsupported where one is given.
Result<void> refuse_options(const JsonView& root);

}  // namespace moejit::compiler
