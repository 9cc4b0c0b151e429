// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/planner/dataflow.h"

#include <string>
#include <string_view>

namespace moejit::compiler {

// What the kernels of both passes are made of.

// Smallest amax that activations and gradients are scaled for, so that an all-zero row gets the
// scale 2^-42 and cannot raise its neighbours' (semantics of the FP8-Flow-MoE dispatch quantiser).
inline constexpr float kActivationEpsilon = 1e-10f;

// That, or 0 where nothing is quantised.
float smallest_amax(const Layer& layer);

// The data of what GEMMs multiply, and the scales beside it: "<name>_q" and "<name>_scale_inv", or
// "<name>" and nothing in bf16.
std::string data_of(const Layer& layer, std::string_view name);
std::string scales_of(const Layer& layer, std::string_view name);

// Where nothing is quantised, columns of h1 and dh1 have the order of w1's rows.
bool has_interleaved_h1(const Layer& layer);
inline constexpr std::string_view kInterleavedH1Reason =
    "columns of gate and up alternate as the rows of w1 do, which is multiplied as it comes";

// Element types of topk_ids, and of topk_probs and dprobs.
DType topk_ids_dtype(const Layer& layer);
DType topk_probs_dtype(const Layer& layer);

// Scale blocks that share a scale are quantised together.
QuantizeStage quantize_stage(const Layer& layer);

// Rows of tokens on their way to the experts: x, or dy, whose rows go where x's went. Names are
// those of tensors without "_q" and "_scale_inv".
struct TokenRows {
  std::string_view name;
  std::string_view permuted;
  QuantizeStage quantize = QuantizeStage::k1x128;
  bool moves_probs = true;
  bool tells_tokens = false;  // whose row each permuted one is
  bool keeps_rows = false;    // un-permuted rows are read again
  std::string_view cast;      // which of the layer's explicit casts quantises them
};
TokenRows rows_of_x(const Layer& layer, const Dataflow& flow);
TokenRows rows_of_dy(const Dataflow& flow);

KernelPlan quantize(const Layer& layer, const TokenRows& rows);
KernelPlan permute_pad(const Layer& layer, const TokenRows& rows);
KernelPlan quantize_permute_pad(const Layer& layer, const TokenRows& rows,
                                const PlanOptions& options);

// D = A * B[e]^T with operands as the layer's recipe has them. `problem` says what is multiplied:
// sections, section_n, k, b_major, the bias, and how many scale blocks of the contraction share a
// scale. `a` and `b` are names for data_of(), `bias` is that of a tensor.
KernelPlan grouped_gemm(const Layer& layer, GroupedGemmSpec problem, std::string_view a,
                        std::string_view b, std::string_view d, std::string_view bias = {});

// The tensor that says where the columns of wgrad's operands start.
std::string colwise_offs(const Layer& layer);

// The gradient of the activation: of gate, up and, where somebody reads it, the probability; of the
// probability alone; and with wgrad's operands, those that somebody reads.
KernelPlan activation_backward(const Layer& layer, const Dataflow& flow);
KernelPlan activation_dprobs(const Layer& layer);
KernelPlan activation_backward_transpose(const Layer& layer, const Dataflow& flow,
                                         const PlanOptions& options);

// The kernel of an operation of the backward pass that the forward pass has not.
KernelPlan make_backward_kernel(Operation operation, const Layer& layer, const Dataflow& flow,
                                const PlanOptions& options);

}  // namespace moejit::compiler
