// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compiler/activation.h"
#include "compiler/kernels/amax_columns.h"
#include "compiler/recipe.h"

#include <cstdint>
#include <string_view>

namespace moejit::compiler {

struct KernelContext;
struct KernelPlan;
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

KernelPlan make_kernel(const Operation& operation, const Activate& activate,
                       const KernelContext& context);
inline void narrow(Operation&, const Activate&) {}

}  // namespace moejit::compiler
