// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of the C interface with which a host dispatches rows between ranks itself.
// <moejit/moejit.h> says what holds for all functions and records.

// NOLINTBEGIN: C, not C++

#include "moejit.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bits of moejit_tensor_info::used_by that only layers with dispatch_calls have.
enum {
  MOEJIT_USED_BY_QUANTIZE = 32,
  MOEJIT_USED_BY_EXPERTS = 64,
  MOEJIT_USED_BY_QUANTIZE_GRAD = 128,
  MOEJIT_USED_BY_EXPERTS_GRAD = 256
};

// Run the passes in parts, for layers with dispatch_calls, so that the host can move rows between
// ranks. quantize makes the tensors with MOEJIT_ROLE_DISPATCHED, "x_q" and "x_scale_inv", from a
// rank's own tokens, and needs no memory. The host sends rows of them, each with its ids and
// probabilities, to the ranks that have their experts. There experts does the rest of forward for
// the T rows that came and keeps their order: "y" has a row for each. quantize_grad and
// experts_grad do the same for "dy", and experts_grad needs the rows of x that experts had.
// quantize and experts each have their own T, and experts_grad has the T of its experts call. With
// one rank and nothing moved they give the bits of moejit_layer_forward() and
// moejit_layer_backward(), which take the dispatched tensors too. Errors: those of these two, and
// MOEJIT_ERROR_UNSUPPORTED without dispatch_calls.
MOEJIT_API moejit_error_code moejit_layer_quantize(moejit_layer* layer, const moejit_call* call);
MOEJIT_API moejit_error_code moejit_layer_experts(moejit_layer* layer, const moejit_call* call);
MOEJIT_API moejit_error_code moejit_layer_quantize_grad(moejit_layer* layer,
                                                        const moejit_call* call);
MOEJIT_API moejit_error_code moejit_layer_experts_grad(moejit_layer* layer,
                                                       moejit_gradient_mode mode,
                                                       const moejit_call* call);

#ifdef __cplusplus
}
#endif

// NOLINTEND
