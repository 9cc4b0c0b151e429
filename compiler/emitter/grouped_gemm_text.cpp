// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {

KernelText describe(const GroupedGemmSpec& spec) {
  return {
      .types = "e4m3_bf16",
      .tile = fmt::format("{}x{}x{}", spec.tile_m, spec.tile_n, spec.tile_k),
      .summary = fmt::format("D[P, {}] = A[P, {}] * B[expert]^T, one B for the rows of each expert",
                             int64_t{spec.sections} * spec.section_n, spec.k),
      .include = "gemm/grouped_gemm.cuh",
      .params = "GroupedGemmParams",
      .constants =
          {
              integer_constant("kLocalExperts", spec.local_experts, "groups of rows"),
              integer_constant("kSections", spec.sections, "stacked matrices in B, as gate and up"),
              integer_constant("kSectionN", spec.section_n, "columns of D from each"),
              integer_constant("kK", spec.k, "contraction"),
              integer_constant("kTileM", spec.tile_m, "rows of D that a CTA computes at a time"),
              integer_constant("kTileN", spec.tile_n, "columns likewise"),
              integer_constant("kTileK", spec.tile_k, "contraction between two scalings"),
              integer_constant("kWarpsM", spec.warps_m, "warps that share the rows of a tile"),
              integer_constant("kWarpsN", spec.warps_n, "warps that share its columns"),
              integer_constant("kStages", spec.stages,
                               "blocks of the contraction in shared memory"),
              integer_constant("kThreads", 32 * spec.warps_m * spec.warps_n, "per CTA"),
          },
      .types_used =
          {
              {"Problem", "GemmProblem", {"kLocalExperts", "kSections", "kSectionN", "kK"}},
              {"Shape", "GemmTileShape", {"kTileM", "kTileN", "kTileK", "kWarpsM", "kWarpsN"}},
              {"Kernel",
               "GroupedGemm",
               {"Shape", "GroupedScheduler<Problem, Shape>",
                "MainloopMmaSyncFp8Blockscaled<Problem, Shape, kStages>",
                "EpilogueStoreBf16<Problem, Shape>"}},
          },
  };
}

}  // namespace moejit::compiler
