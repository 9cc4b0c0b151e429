// SPDX-License-Identifier: Apache-2.0
#include "compiler/planner/check_grouped_gemm.h"

#include <fmt/core.h>

namespace moejit::compiler {
namespace {

tl::unexpected<Error> refuse(std::string_view part, std::string_view got, std::string_view beside,
                             std::string_view hint) {
  return fail(Stage::kPlan, ErrorCode::kUnsupported,
              fmt::format("grouped GEMM: {} \"{}\" with {}", part, got, beside), std::string(hint));
}

}  // namespace

Result<void> check_grouped_gemm(const GroupedGemmSpec& problem) {
  const std::string_view scales = to_string(problem.scales);
  if (problem.operands == DType::kBF16 && problem.scales != GemmScales::kNone &&
      problem.scales != GemmScales::kTensor)
    return refuse("scales", scales, "operands in BF16",
                  "bf16 operands have none, or one for each expert: tensor; other scales belong to "
                  "e4m3 operands");
  if (problem.operands != DType::kBF16 && problem.scales == GemmScales::kNone)
    return refuse("scales", scales, fmt::format("operands in {}", to_string(problem.operands)),
                  "without scales operands are bf16");
  const bool has_end_scales =
      problem.scales == GemmScales::kTensor || problem.scales == GemmScales::kRowColumn;
  if (problem.is_a_e5m2 && (problem.operands != DType::kF8E4M3 || !has_end_scales))
    return refuse("a", to_string(a_format(problem)),
                  fmt::format("B in {} and the scales {}", to_string(problem.operands), scales),
                  "gradients in e5m2 are multiplied with e4m3, with the scales tensor or "
                  "row_column");
  if (stores_activation(problem) && problem.scales != GemmScales::kRowBlock)
    return refuse(
        "epilogue", to_string(problem.epilogue), fmt::format("the scales {}", scales),
        "it makes an activation with scales of blocks from operands with such; with other "
        "scales D is stored, and the activation is a kernel of its own");
  if (problem.b_major == Major::kMn && problem.operands != DType::kBF16)
    return refuse("b_major", to_string(problem.b_major),
                  fmt::format("operands in {}", to_string(problem.operands)),
                  "WGMMA takes e4m3 along the contraction alone; b_major \"mn\" is for bf16");
  if (problem.accumulation != GemmAccumulation::kFast) return {};
  const std::string_view fast = to_string(problem.accumulation);
  if (problem.scales == GemmScales::kRowBlock)
    return refuse("accumulation", fast, "the scales row_block",
                  "these change along the contraction, so partial sums meet them in fp32");
  if (problem.operands == DType::kBF16)
    return refuse("accumulation", fast, "operands in BF16",
                  "the tensor cores add bf16 products in fp32 at full speed");
  return {};
}

}  // namespace moejit::compiler
