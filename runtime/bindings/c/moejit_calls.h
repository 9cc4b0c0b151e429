// SPDX-License-Identifier: Apache-2.0
#pragma once

// Calls of prepared plans: moejit_plan_call(), a function for each call of layers and operations,
// and the status word. <moejit/moejit.h> includes this header.

// NOLINTBEGIN: C, not C++

#include "moejit.h"

#ifdef __cplusplus
extern "C" {
#endif

// Calls of a prepared plan. They start kernels on the stream and return. They allocate nothing on
// the device, never wait for it, and may be recorded into a CUDA graph. On the host, a call without
// an error allocates only the thread's last error, in the thread's first call. (The simulator does
// allocate, and returns when the kernels are done.)
//
// What a call writes must not overlap anything else that it uses. Calls write outputs, states,
// workspace, what forward saves, what a data half defers, and the weights that update_weights
// quantizes. Memory that a call only reads may overlap. An output may overlap an input that no
// kernel reads any more when the output's first kernel runs (last_use and first_use of
// moejit_tensor_info). Errors of arguments
// (MOEJIT_ERROR_MISSING_TENSOR, _TENSOR_MISMATCH, _WORKSPACE_TOO_SMALL, _INVALID_VALUE) come before
// anything is launched. After an error of launching (_DRIVER, _STREAM_CAPTURE, _SIMULATOR_FAULT)
// some of the kernels may run: what the call writes is then undefined.

// The addresses of a call's blocks, workspace, saved and deferred, are multiples of 128 on a GPU
// and of 64 on the simulator. Blocks have at least the bytes that moejit_plan_get_sizes() tells
// for the T of the call. Their contents do not depend on their address: a copy of the saved block
// at another address serves backward as well.

// A tensor by its name in the plan. It is on the plan's device: kDLCUDA with its ordinal or
// kDLCUDAManaged; for the simulator kDLCPU or kDLCUDAHost. It is row-major and contiguous, where
// strides of dimensions of size 1 do not matter; data + byte_offset is 16-byte aligned. Its dtype
// is as in moejit_tensor_info; uint8 stands for the float8 types too, and int32 for uint32.
typedef struct moejit_tensor {
  const char* name;
  const DLTensor* tensor;
} moejit_tensor;

typedef struct moejit_call {
  size_t struct_size;
  const moejit_tensor* tensors;  // the tensors that the call touches, in any order; other
  size_t tensor_count;           // tensors of the caller in the plan are ignored
  void* workspace;               // free again when the call's kernels are done
  int64_t workspace_bytes;
  void* saved;  // keeps its contents from a forward to its backward call; NULL without backward
  int64_t saved_bytes;
  void* stream;    // a CUstream; NULL: the default stream
  void* deferred;  // keeps its contents from a data half of backward to its weights half; NULL
                   // without backward_halves, and in other calls than backward ones
  int64_t deferred_bytes;
} moejit_call;

// Makes a call of a prepared plan, by its name in moejit_call_info. Below is a function for each
// call, which says what the call does. "update_weights+forward" alone has none: it makes both, one
// behind the other, with the tensors of both. MOEJIT_ERROR_UNSUPPORTED: the plan has no such call;
// the hint tells the field of the description that adds it.
MOEJIT_API moejit_error_code moejit_plan_call(moejit_plan* plan, const char* name,
                                              const moejit_call* call);

// Quantizes w1 and w2 into the tensors with MOEJIT_ROLE_QUANTIZED. Call it after each change of the
// weights. Results stay as they are if the optional "skip_update" U32 [1], a word on the device, is
// not 0 when kernels run. Layers with weight_checks skip weights that have not changed since the
// last call; fill their "weights_digest" with zeros before the first. It needs no workspace.
static inline moejit_error_code moejit_layer_update_weights(moejit_plan* layer,
                                                            const moejit_call* call) {
  return moejit_plan_call(layer, "update_weights", call);
}

// Runs one forward pass over T tokens, T from 0 to max_tokens: "y" from "x", "topk_ids",
// "topk_probs" and the weights; "status" gets bits (below). Fills call->saved for backward. A layer
// with a router reads "logits", and what its formula needs, and writes "topk_ids" and "topk_probs".
static inline moejit_error_code moejit_layer_forward(moejit_plan* layer, const moejit_call* call) {
  return moejit_plan_call(layer, "forward", call);
}

typedef enum moejit_gradient_mode {
  MOEJIT_GRADIENT_OVERWRITE = 0,  // dw1, dw2, db1 and db2
  MOEJIT_GRADIENT_ADD = 1         // add to what they hold
} moejit_gradient_mode;

// Returns the name of a call in a mode; in an unknown mode a name that no plan has, which
// moejit_plan_call() refuses.
static inline const char* moejit_name_in_mode(moejit_gradient_mode mode, const char* overwrites,
                                              const char* adds) {
  return mode == MOEJIT_GRADIENT_OVERWRITE ? overwrites
         : mode == MOEJIT_GRADIENT_ADD     ? adds
                                           : "in an unknown mode";
}

// Runs the backward pass of the forward call that filled call->saved. It makes from "dy" the
// gradients that the description asks for: "dx", "dprobs", and the gradients of weights and biases.
// A layer with a router has "dlogits" in the place of "dprobs", from "logits" and "topk_ids" of the
// forward call.
// Neither the saved block nor the inputs of forward that backward takes again may change in
// between. T has to be as in the forward call; the saved block records it. On the simulator another
// T is MOEJIT_ERROR_TENSOR_MISMATCH. On a GPU the kernels then compute nothing and set
// MOEJIT_STATUS_OTHER_TOKENS in "status". The outputs are undefined then, and no other memory is
// touched. "status" may be left out here. MOEJIT_ERROR_UNSUPPORTED: the layer's passes have no
// backward, or its gradients are bf16 and are to be added to.
static inline moejit_error_code moejit_layer_backward(moejit_plan* layer, moejit_gradient_mode mode,
                                                      const moejit_call* call) {
  return moejit_plan_call(layer, moejit_name_in_mode(mode, "backward", "backward+add"), call);
}

// Run backward in two calls, for layers with backward_halves. The data half makes "dx" and
// "dprobs". The weights half then makes the gradients of weights and biases, at any time and on any
// stream that waits for the data half. The gradients have the bits of moejit_layer_backward(). T is
// the same in both calls. Each half takes only its own tensors. The weights half takes only the
// shape of "dy", which gives T; its data may be NULL, or freed. It reads the data too if the
// description asks for neither "dx" nor "dprobs", or has grouped rows of bf16 that are not padded.
// call->saved and what the data half leaves in
// call->deferred must not change until the weights half is done; the workspace may. A half with
// nothing to compute does nothing. Errors: all of moejit_layer_backward(), and
// MOEJIT_ERROR_UNSUPPORTED without backward_halves.
static inline moejit_error_code moejit_layer_backward_data(moejit_plan* layer,
                                                           const moejit_call* call) {
  return moejit_plan_call(layer, "backward_data", call);
}
static inline moejit_error_code moejit_layer_backward_weights(moejit_plan* layer,
                                                              moejit_gradient_mode mode,
                                                              const moejit_call* call) {
  return moejit_plan_call(
      layer, moejit_name_in_mode(mode, "backward_weights", "backward_weights+add"), call);
}

// Run the passes in parts, for layers with dispatch_calls, so that the host can move rows between
// ranks. quantize makes the tensors with MOEJIT_ROLE_DISPATCHED, "x_q" and "x_scale_inv", from a
// rank's own tokens, and needs no memory. The host sends rows of them, each with its ids and
// probabilities, to the ranks that have their experts. There experts does the rest of forward for
// the T rows that came and keeps their order: "y" has a row for each. quantize_grad and
// experts_grad do for "dy" and the backward pass what quantize and experts do for "x". experts_grad
// also needs the rows of x that experts had. quantize and experts each have their own T, and
// experts_grad has the T of its experts call. With one rank and nothing moved they give the bits of
// moejit_layer_forward() and moejit_layer_backward(), which take the dispatched tensors too.
// Errors: all of these two functions, and MOEJIT_ERROR_UNSUPPORTED without dispatch_calls.
static inline moejit_error_code moejit_layer_quantize(moejit_plan* layer, const moejit_call* call) {
  return moejit_plan_call(layer, "quantize", call);
}
static inline moejit_error_code moejit_layer_experts(moejit_plan* layer, const moejit_call* call) {
  return moejit_plan_call(layer, "experts", call);
}
static inline moejit_error_code moejit_layer_quantize_grad(moejit_plan* layer,
                                                           const moejit_call* call) {
  return moejit_plan_call(layer, "quantize_grad", call);
}
static inline moejit_error_code moejit_layer_experts_grad(moejit_plan* layer,
                                                          moejit_gradient_mode mode,
                                                          const moejit_call* call) {
  return moejit_plan_call(layer, moejit_name_in_mode(mode, "experts_grad", "experts_grad+add"),
                          call);
}

typedef enum moejit_pass { MOEJIT_PASS_FORWARD = 0, MOEJIT_PASS_BACKWARD = 1 } moejit_pass;

// Moves the state of a pass on by a step, in place, for recipes whose scales follow from the steps
// before (fp8_delayed). The state is the tensors with MOEJIT_ROLE_STATE (docs/recipes.md,
// fp8_delayed). For forward they are "fc1_amax_history" F32 [L, 3E] and "fc1_scale" F32 [3E], for
// gradients "fc1_grad_amax_history" F32 [L, 2E] and "fc1_grad_scale" F32 [2E]. "fc2" has the same
// tensors. The state is the caller's, who keeps it over all steps; it starts with histories of
// zeros and scales of ones. update_weights, forward and backward read scales, and raise row 0 of
// the histories to the largest magnitudes that they cast. This call adds what row 0 has recorded to
// the steps before, and computes the scales of the next step. Make it once a step, after the last
// call of the pass; before it, row 0 may be reduced over ranks, with max. It needs no workspace.
// With recipes without a history it does nothing. Errors: all of other calls, and
// MOEJIT_ERROR_UNSUPPORTED for the backward pass of a layer that has none.
static inline moejit_error_code moejit_layer_update_scales(moejit_plan* layer, moejit_pass pass,
                                                           const moejit_call* call) {
  return moejit_plan_call(layer,
                          pass == MOEJIT_PASS_FORWARD    ? "update_forward_scales"
                          : pass == MOEJIT_PASS_BACKWARD ? "update_backward_scales"
                                                         : "of an unknown pass",
                          call);
}

// Runs an operation. The call has neither a saved nor a deferred block. Sizes called T, P and C are
// taken from the first tensor that has them. Where tensors have both T and P, P is at least what a
// routing of T tokens may need, or max_permuted_rows (MOEJIT_ERROR_TENSOR_MISMATCH). It may be less
// if the description says any_permuted_rows.
static inline moejit_error_code moejit_operation_run(moejit_plan* operation,
                                                     const moejit_call* call) {
  return moejit_plan_call(operation, "run", call);
}

// One tensor of the list of multi_cast_transpose, in device memory: X [rows, columns] in the
// input's dtype becomes its cast and the cast's transpose. The operation's "tensors" I64 [N, 8] is
// an array of these. Multiples of 16 in sizes and addresses are faster.
typedef struct moejit_cast_transpose_tensor {
  const void* input;        // [rows, columns]
  uint8_t* output;          // [rows, columns]
  uint8_t* output_colwise;  // [columns, rows]: the same bytes, transposed
  const float* scale;       // [1], what values are multiplied by; NULL: 1
  float* amax;              // [1], is raised to the largest magnitude; NULL: not wanted
  float* scale_inv;         // [1]: 1 / scale; NULL: not wanted
  int64_t rows;             // as in the description, in its order
  int64_t columns;
} moejit_cast_transpose_tensor;

// Bits that kernels set (by or) in the tensor "status", which the caller clears and reads.
enum {
  MOEJIT_STATUS_BAD_EXPERT_ID = 1,      // an expert id below -1, or not below E where
                                        // "foreign_experts" is "report"; not routed here
  MOEJIT_STATUS_ROW_OVERFLOW = 2,       // more rows than max_permuted_rows; the rest is dropped
  MOEJIT_STATUS_BAD_SCALE = 4,          // an operation's scale that is neither a power of two nor
                                        // 0, or too far below others of its tile to be packed
  MOEJIT_STATUS_OTHER_TOKENS = 8,       // T of a backward call differs from its forward call's
  MOEJIT_STATUS_TOO_MANY_EXPERTS = 16,  // a token of a routing map has more than top_k experts; the
                                        // last ones are not routed
  MOEJIT_STATUS_BAD_LOGIT = 32          // a value that orders a router's choice is NaN, or a
                                        // probability is not finite; routed all the same
};

// Returns what one bit means, or NULL for another number.
MOEJIT_API const char* moejit_status_text(uint32_t bit);
// Returns MOEJIT_ERROR_DEVICE_STATUS with a sentence about all bits of the word, or MOEJIT_OK for
// 0.
MOEJIT_API moejit_error_code moejit_status_check(uint32_t status);

#ifdef __cplusplus
}
#endif

// NOLINTEND
