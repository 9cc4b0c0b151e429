// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of the C interface for recipes whose scales follow from the steps before: fp8_delayed.
// <moejit/moejit.h> says what holds for all functions and records.

// NOLINTBEGIN: C, not C++

#include "moejit.h"

#ifdef __cplusplus
extern "C" {
#endif

// A bit of moejit_tensor_info::used_by that only layers with a state have, for either pass.
enum { MOEJIT_USED_BY_UPDATE_SCALES = 1024 };

typedef enum moejit_pass { MOEJIT_PASS_FORWARD = 0, MOEJIT_PASS_BACKWARD = 1 } moejit_pass;

// The state is the tensors with MOEJIT_ROLE_STATE: "fc1_amax_history" F32 [L, 3E] and "fc1_scale"
// F32 [3E], those of "fc2", and of gradients "fc1_grad_amax_history" F32 [L, 2E], "fc1_grad_scale"
// F32 [2E], ... (docs/recipes.md, fp8_delayed). It is the caller's, and kept over all steps; it
// starts with histories of zeros and scales of ones. update_weights, forward and backward read
// scales, and raise row 0 of the histories to the largest magnitudes that they cast.

// Moves the state of a pass on by a step, in place: what row 0 of the histories has recorded joins
// the steps before, and the scales of the next step follow. Call it once a step behind the last
// call of the pass; before it, row 0 may be reduced over ranks, with max. It needs no workspace.
// With recipes without a history it does nothing. Errors: those of other calls, and
// MOEJIT_ERROR_UNSUPPORTED for the backward pass of a layer that has none.
MOEJIT_API moejit_error_code moejit_layer_update_scales(moejit_layer* layer, moejit_pass pass,
                                                        const moejit_call* call);

#ifdef __cplusplus
}
#endif

// NOLINTEND
