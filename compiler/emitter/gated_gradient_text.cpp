// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/activation_text.h"
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelText describe(const GatedGradientSpec& spec) {
  return {
      .types = fmt::format("{}_bf16_e4m3", spec.activation.preset),
      .tile = "128x128",
      .summary =
          "gradients of gate, up and probability from bf16 rows, to e4m3 rows with 1x128 "
          "scales and, with the activation itself, to columns of their experts with 128x128 "
          "scales",
      .includes = {"transpose/gated_gradient_tiles.cuh"},
      .params = "GatedGradientParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "groups of rows"),
              integer_constant("kColumns", spec.columns, "of gate and of up"),
              integer_constant("kPitch", (spec.columns + 127) / 128 * 128,
                               "of a half that is stored, with zeros behind"),
              float_bits_constant("kEpsilonBits", spec.epsilon, "the smallest amax of a scale"),
              integer_constant("kThreads", spec.threads, "per CTA"),
          },
      .own_type = value_and_gradients_type_text(spec.activation),
      .types_used = {{"Kernel",
                      "GatedGradientTiles",
                      {"kLocalExperts", "kColumns", "kPitch", "Activation",
                       "Quantize1x128<kEpsilonBits>", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
