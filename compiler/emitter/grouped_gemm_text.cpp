// SPDX-License-Identifier: Apache-2.0
#include "compiler/emitter/kernel_text.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

constexpr int32_t kStepBytes = 128;  // of a row of A and B in a stage

std::string multiply_type(DType operands) {
  return operands == DType::kBF16 ? "MultiplyBf16" : "MultiplyE4m3";
}

std::string scales_type(GemmScales scales) {
  switch (scales) {
    case GemmScales::kRowBlock: return "RowBlockScales<Problem, Shape>";
  }
  return {};
}

std::string epilogue_type(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::kStoreBf16: return "EpilogueStoreBf16<Problem>";
  }
  return {};
}

std::vector<NamedConstant> constants_of(const GroupedGemmSpec& spec) {
  const auto step = static_cast<int32_t>(kStepBytes / size_bytes(spec.operands));
  return {
      integer_constant("kGroups", spec.local_experts, "groups of rows, one for each expert"),
      integer_constant("kSections", spec.sections, "stacked matrices in B, as gate and up"),
      integer_constant("kSectionN", spec.section_n, "columns of D from each"),
      integer_constant("kK", spec.k, "contraction"),
      integer_constant("kStepElements", step, "elements of it in a stage"),
      integer_constant("kWideColumns", spec.wide_columns, "columns of a wide tile"),
      integer_constant("kWideTiles", spec.wide_tiles, "of a section; behind them"),
      integer_constant("kNarrowColumns", spec.narrow_columns, "columns of a narrow tile"),
      integer_constant("kNarrowTiles", spec.narrow_tiles, "of a section"),
      integer_constant("kStages", spec.stages, "steps of the contraction in shared memory"),
      integer_constant("kBlocksPerPromotion", spec.blocks_per_promotion,
                       "steps added up before they are scaled"),
  };
}

}  // namespace

KernelText describe(const GroupedGemmSpec& spec) {
  const int32_t columns = spec.wide_tiles > 0 ? spec.wide_columns : spec.narrow_columns;
  return {
      .types = spec.operands == DType::kBF16 ? "bf16_bf16" : "e4m3_bf16",
      .tile = fmt::format("128x{}x{}", columns, kStepBytes / size_bytes(spec.operands)),
      .summary = fmt::format("D[P, {}] = A[P, {}] * B[expert]^T, one B for the rows of each expert",
                             int64_t{spec.sections} * spec.section_n, spec.k),
      .includes = {"gemm/epilogue_store_bf16.cuh", "gemm/grouped_gemm.cuh",
                   "gemm/row_block_scales.cuh", "gemm/row_group_scheduler.cuh",
                   "params/grouped_gemm_params.h"},
      .params = "GroupedGemmParams",
      .constants = constants_of(spec),
      .types_used =
          {
              {"Problem",
               "RowGroupProblem",
               {"kGroups", "kSections", "kSectionN", "kK", "kStepElements"}},
              {"Shape",
               "GemmTileShape",
               {"kWideColumns", "kWideTiles", "kNarrowColumns", "kNarrowTiles", "kStages"}},
              {"Mainloop",
               "PromotingMainloop",
               {multiply_type(spec.operands), "kBlocksPerPromotion"}},
              {"Kernel",
               "GroupedGemm",
               {"Shape", "RowGroupScheduler<Problem, Shape>", "Mainloop", scales_type(spec.scales),
                epilogue_type(spec.epilogue)}},
          },
  };
}

}  // namespace moejit::compiler
