// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/kernels/gated_gradient.h"
#include "compiler/recipe.h"

#include <cstdint>
#include <string_view>

namespace moejit::compiler {

struct Operation;

// Activates h1 and multiplies with the routing probability.
// Reads input [P, columns] of gate and the same of up, or of up alone, probs [P], counts and offs.
// Writes output [P, columns], or with `finds_amax` the largest magnitudes of its rows [P,
// ceil(columns / 512)]. For rows with a scale for each expert it reads expert_scales [E] too.
struct Activate {
  int32_t local_experts = 0;
  int32_t columns = 0;
  Activation activation = {};
  Format format = {};  // of the output
  int32_t blocks_per_scale = 1;
  bool is_interleaved = false;  // whether columns of gate and up alternate
  bool finds_amax = false;
  AmaxColumns amax = {};  // columns of a state amax, which a cast raises to largest magnitudes
};

// Explains why columns of h1 have the order of w1's rows.
inline constexpr std::string_view kInterleavedH1Reason =
    "columns of gate and up alternate as the rows of w1 do, which is multiplied as it comes";

// Computes the gradients of an activation: of gate, if any, and up, and of the probability. Reads
// input, which is h1 [P, 2 columns], or [P, columns] without a gate; gradient [P, columns], probs
// [P], counts and offs. Writes output [P, 2 pitch], or [P, columns], and output_dprobs [P,
// ceil(columns / 128)]; each of them only if wanted. With `finds_amax` the output is the largest
// magnitudes of its rows [P, ceil(columns / 512)]. For rows with a scale for each expert it reads
// expert_scales [E] too.
struct ActivationBackward {
  int32_t local_experts = 0;
  int32_t columns = 0;
  int32_t pitch = 0;  // columns of a half of the output, zeros behind the first `columns`
  Activation activation = {};
  Format format = {};           // of the output
  bool is_interleaved = false;  // whether columns of gate and up alternate, in input and output
  bool finds_amax = false;
  AmaxColumns amax = {};  // columns of a state amax, which a cast raises to largest magnitudes
};

// Computes the gradients of a gated activation, and makes operands of wgrad from them and from the
// activation itself. One read of h1 is enough for all. Reads what ActivationBackward reads, and
// output_offs, the starts of the groups of columns. Writes act_colwise [C / 128, columns, 128];
// also output, output_dprobs and output_colwise [C / 128, 2 pitch, 128] if wanted. For rows with a
// scale for each expert it reads expert_scales [E] and act_expert_scales [E] too.
//
// Where rows have one scale each and columns one for each expert it takes two operations. The
// operation of the pass kAmax writes only largest magnitudes. These are output [P, ceil(columns /
// 128)] in fp32, output_colwise [C / 128, 2 pitch] and act_colwise [C / 128, columns] in bf16. It
// writes no output_dprobs. The operation of the pass kCast reads the first as row_amax, and
// column_scale_inv [E, 2 pitch] and act_column_scale_inv [E, columns].
struct ActivationBackwardTranspose {
  int32_t local_experts = 0;
  int32_t columns = 0;
  Activation activation = {};
  Format format = {};    // of the output
  Format operands = {};  // of the operands of wgrad
  GradientPass pass = GradientPass::kOnly;
  AmaxColumns amax = {};  // columns of a state amax, which a cast raises to largest magnitudes
};

// Reduces the operation to the gradient of the probability if it has no output.
void narrow(Operation& operation, const ActivationBackward& backward);
// Leaves out the parts of the output's cast that nobody wants, by rows or by columns.
void narrow(Operation& operation, const ActivationBackwardTranspose& backward);

}  // namespace moejit::compiler
