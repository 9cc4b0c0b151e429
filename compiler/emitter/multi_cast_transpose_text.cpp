// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelText describe(const MultiCastTransposeSpec& spec) {
  const bool is_f32 = spec.input == DType::kF32;
  const bool is_e5m2 = spec.output == DType::kF8E5M2;
  const std::string_view input = is_f32 ? "f32" : "bf16";
  const std::string_view output = is_e5m2 ? "e5m2" : "e4m3";
  return {
      .types = fmt::format("{}_{}", input, output),
      .tile = "128x128",
      .summary =
          fmt::format("a list of {} tensors, each with a scale, to {} and its transpose, and "
                      "the largest magnitude of each",
                      input, output),
      .includes = {"cast/multi_cast_transpose.cuh"},
      .params = "MultiCastTransposeParams",
      .constants = {integer_constant("kThreads", spec.threads, "per CTA, which holds a tile")},
      .types_used = {{"Kernel",
                      "MultiCastTranspose",
                      {is_f32 ? "F32Input" : "Bf16Input", is_e5m2 ? "E5m2" : "E4m3", "kThreads"}}},
  };
}

}  // namespace moejit::compiler
